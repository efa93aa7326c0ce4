"""Content of one golden file, and how it is measured: transformers in float32, against exact.py."""

import json
import re

import numpy as np
import torch
import transformers

import exact
import exact_layer_norm


SIGMOIDS = ("dots1", "glm4_moe", "minimax_m2")  # the families whose routers score by them


def reference_logits(model, ids, rows):
    """transformers, float32 arithmetic, the plain attention: [len(rows), vocab]."""
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0, rows].numpy()


def greedy_text(model, prompt, count):
    model.generation_config.eos_token_id = None  # go on past the end: the tests want `count` tokens
    model.generation_config.pad_token_id = 0
    ids = torch.tensor([prompt])
    with torch.no_grad():  # an explicit mask: else tokens equal to the padding would be masked
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                             max_new_tokens=count)
    tokens = out[0, len(prompt):].tolist()
    assert len(tokens) == count
    return tokens


def auto_class(config):
    """The class of a decoder, or of a model around one that also sees."""
    wraps = config.get_text_config() is not config
    return transformers.AutoModelForImageTextToText if wraps else transformers.AutoModelForCausalLM


def load(directory):
    """A checkpoint directory in float32."""
    config = transformers.AutoConfig.from_pretrained(directory)
    return auto_class(config).from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()


def decoder_of(model):
    return getattr(model.model, "language_model", model.model)


def of_gpt_oss(config):
    """Windows by layer, and the numbers of a clamped gate."""
    if config.model_type != "gpt_oss":
        return [], ()
    windows = [config.sliding_window if kind == "sliding_attention" else 0 for kind in config.layer_types]
    return windows, (config.swiglu_limit, config.swiglu_alpha)


def shape_of(model):
    """The shape, its rotary frequencies recomputed in float64 and compared with the library's."""
    c = model.config.get_text_config()
    if c.model_type in exact_layer_norm.NAMES:
        return exact_layer_norm.Shape(c.model_type, c.num_hidden_layers, c.num_attention_heads,
                                      getattr(c, "layer_norm_epsilon", 1e-5),
                                      not getattr(c, "do_layer_norm_before", True))
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    rope = c.rope_parameters
    rotary_dim = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    frequency, magnitude = exact.inverse_frequencies(rotary_dim, rope["rope_theta"], rope)
    rotary = decoder_of(model).rotary_emb
    np.testing.assert_allclose(rotary.inv_freq.numpy(), frequency, rtol=1e-6)
    np.testing.assert_allclose(rotary.attention_scaling, magnitude, rtol=1e-6)
    return exact.Shape(c.num_hidden_layers, c.num_attention_heads, c.num_key_value_heads, head_dim,
                       c.rms_norm_eps, frequency, magnitude, getattr(c, "num_experts_per_tok", 0),
                       getattr(c, "norm_topk_prob", True), [],
                       rope.get("llama_4_scaling_beta") or 0.0,
                       rope.get("original_max_position_embeddings") or 1, c.model_type in SIGMOIDS,
                       getattr(c, "routed_scaling_factor", 1.0), *of_gpt_oss(c))


def measure(model, prompt, rows, new_tokens, samples):
    """The golden of a model: reference logits of the prompt's `rows`, greedy text, tolerance.

    The tolerance bounds |ours - reference| <= |ours - exact| + |reference - exact|, and each of the
    two is a float32 evaluation, so twice what float32 rounding does to any checked logit.
    """
    weights = {k.replace("model.language_model.", "model."): v.numpy()
               for k, v in model.state_dict().items()}
    shape = shape_of(model)
    tokens = greedy_text(model, prompt, new_tokens)
    ids = prompt + tokens[:-1]
    steps = list(range(len(prompt) - 1, len(ids)))  # the row that chooses each greedy token
    every = rows + steps
    reference = reference_logits(model, ids, every)
    rotary = isinstance(shape, exact.Shape)
    logits = exact.logits if rotary else exact_layer_norm.logits

    def evaluate(seed):
        """Routing is the one step that is not smooth: rounding must not change it."""
        before = list(shape.routes) if rotary else []
        result = logits(weights, shape, ids, every, seed)
        same = seed is None or not rotary or all(map(np.array_equal, shape.routes, before))
        assert same, "rounding changes which experts a row has: take another seed"
        return result

    truth = evaluate(None)
    spread = exact.rounding_spread(evaluate, truth, samples)
    error = float(np.abs(reference - truth).max())
    assert error < spread, f"the library is off by {error}, rounding explains {spread}"
    choice = np.sort(reference[len(rows):], axis=-1)
    assert (np.argmax(reference[len(rows):], axis=-1) == tokens).all()
    margins = choice[:, -1] - choice[:, -2]
    print(f"  logit std {truth.std():.2f}, reference error {error:.1e}, tolerance {2 * spread:.1e}, "
          f"{int((margins <= 2 * spread).sum())} of {len(margins)} greedy choices too close to test")
    return {
        "reference": f"transformers {transformers.__version__}, torch {torch.__version__}, float32",
        "prompt": prompt,
        "rows": rows,
        "tolerance": 2 * spread,
        "reference_error": error,
        "rope_magnitude": shape.magnitude if rotary else 1.0,
        "inverse_frequency": decoder_of(model).rotary_emb.inv_freq.numpy() if rotary else [],
        "greedy_tokens": tokens,
        "greedy_margins": margins,
        "logits": reference[:len(rows)],
    }


def save(path, golden):
    """JSON; floats with the nine digits that give a float32 back, innermost lists on one line."""
    def plain(value):
        if isinstance(value, np.ndarray):
            return [plain(v) for v in value]
        if isinstance(value, (np.floating, float)):
            return float(f"{value:.9g}")
        return value

    text = json.dumps({k: plain(v) for k, v in golden.items()}, indent=1)
    text = re.sub(r"\[[^\[\]{}]*\]", lambda m: " ".join(m.group().split()), text)
    path.write_text(text + "\n")
