"""Content of one golden file, and how it is measured: transformers in float32, against exact.py."""

import json
import re

import numpy as np
import torch
import transformers

import delta_configs
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
    model = auto_class(config).from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
    return round_embedding_factor(model, config.dtype)


GEMMAS = ("gemma2", "gemma3_text", "gemma4_text", "gemma4_unified_text")


def round_embedding_factor(model, dtype):
    """Gemma multiplies its embedding by a factor that has the type of its weights, as they are stored."""
    if model.config.get_text_config().model_type in GEMMAS:
        table = decoder_of(model).embed_tokens
        table.embed_scale = table.embed_scale.to(dtype).to(torch.float32)
    return model


def decoder_of(model):
    return getattr(model.model, "language_model", model.model)


def windows_of(config):
    """By layer, as transformers' models read their configs; empty where there is none."""
    window = getattr(config, "sliding_window", None)
    if not window:
        return []
    if config.model_type in ("mistral", "phi3", "starcoder2"):
        return [window] * config.num_hidden_layers
    return [window if kind == "sliding_attention" else 0 for kind in getattr(config, "layer_types", [])]


def clamp_of(config):
    """The numbers of a clamped gate."""
    return (config.swiglu_limit, config.swiglu_alpha) if config.model_type == "gpt_oss" else ()


RESULTS = ("", "post_attention_layernorm", "", "post_feedforward_layernorm")
GEMMA = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
GLM4 = ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")
NORMS = {kind: GEMMA for kind in GEMMAS} | {
    "glm4": GLM4, "olmo2": RESULTS, "olmo3": RESULTS,
    "exaone4": RESULTS, "cohere": ("input_layernorm", "", "", ""), "cohere2": ("input_layernorm", "", "", "")}
ACTIVATIONS = {kind: "gelu" for kind in GEMMAS} | {
    "arcee": "relu2", "nemotron": "relu2", "starcoder2": "gelu_up", "apertus": "xielu"}


def own_parts(model, c):
    """Returns what a dense family has besides Llama's equations, as fields of exact.Shape."""
    kind = c.model_type
    parts = dict(activation=ACTIVATIONS.get(kind, "silu"), plus=float(kind in ("gemma2", "gemma3_text", "nemotron")),
                 neighbours=kind in ("glm4", "cohere", "cohere2", "ernie4_5_moe"), parallel=kind in ("cohere", "cohere2"),
                 layer_norm=kind in ("cohere", "cohere2", "nemotron", "starcoder2"))
    if kind in NORMS:
        parts["norms"] = NORMS[kind]
    if kind in ("gemma2", "gemma3_text"):
        parts |= dict(embedding=float(decoder_of(model).embed_tokens.embed_scale), score=c.query_pre_attn_scalar**-0.5,
                      logit_cap=c.final_logit_softcapping or 0.0,
                      score_cap=c.attn_logit_softcapping or 0.0 if kind == "gemma2" else 0.0)
    if kind.startswith("gemma4"):
        sizes = [c.per_layer_config[layer].head_dim for layer in range(c.num_hidden_layers)]
        parts |= dict(embedding=float(decoder_of(model).embed_tokens.embed_scale), score=1.0, value_norm=True,
                      logit_cap=c.final_logit_softcapping or 0.0, head_dims=sizes)
    if kind in delta_configs.KINDS:
        parts |= dict(plus=1.0, output_gate=True, delta=(c.linear_num_key_heads, c.linear_num_value_heads,
                                                         c.linear_key_head_dim, c.linear_value_head_dim))
    parts["norm_rotated"] = kind == "hunyuan_v1_dense"
    if kind in ("granite", "granitemoe", "granitemoehybrid"):
        parts |= dict(embedding=c.embedding_multiplier, branch=c.residual_multiplier, logit=1 / c.logits_scaling,
                      score=c.attention_multiplier)
    if kind in ("cohere", "cohere2"):
        parts["logit"] = c.logit_scale
    if kind == "smollm3":
        parts["rotated"] = c.no_rope_layers
    if kind == "cohere2" or (kind == "exaone4" and c.sliding_window):
        parts["rotated"] = [kind == "sliding_attention" for kind in c.layer_types]
    return parts


def unfused(weights):
    """Rows of several matrices under names of their own."""
    apart = {}
    for name, value in weights.items():
        if name.endswith("mlp.gate_up_proj.weight"):
            for part, rows in zip(("gate", "up"), np.split(value, 2)):
                apart[name.replace("gate_up_proj", part + "_proj")] = rows
        elif name.endswith("self_attn.qkv_proj.weight"):
            queries = weights[name.replace("qkv_proj", "o_proj")].shape[1]
            kv = (len(value) - queries) // 2
            for part, rows in zip("qkv", np.split(value, [queries, queries + kv])):
                apart[name.replace("qkv_proj", part + "_proj")] = rows
        else:
            apart[name] = value
    return apart


EPSILONS = ("rms_norm_eps", "layer_norm_eps", "norm_eps", "norm_epsilon")


def rotary_of(model, kind=""):
    """The library's frequencies and magnitude, of layers of this kind where they differ."""
    rotary, prefix = decoder_of(model).rotary_emb, kind + "_" if kind else ""
    return getattr(rotary, prefix + "inv_freq").numpy(), getattr(rotary, prefix + "attention_scaling")


def shape_of(model):
    """The shape, its rotary frequencies recomputed in float64 and compared with the library's."""
    c = model.config.get_text_config()
    if c.model_type in exact_layer_norm.NAMES:
        return exact_layer_norm.Shape(c.model_type, c.num_hidden_layers, c.num_attention_heads,
                                      getattr(c, "layer_norm_epsilon", 1e-5),
                                      not getattr(c, "do_layer_norm_before", True))
    c.allow_global_per_layer_attribute_access = True  # of Gemma 4, for what its layers with windows have
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    own = own_parts(model, c)
    rope, tables = c.rope_parameters, {}
    for kind in ("full_attention", "sliding_attention") if "full_attention" in rope else ("",):
        mine = rope[kind] if kind else rope
        of_kind = c.per_layer_config[kind].head_dim if c.model_type.startswith("gemma4") else head_dim
        whole = mine["rope_type"] == "proportional"  # which has pairs that stay
        rotary_dim = int(of_kind * (1.0 if whole else mine.get("partial_rotary_factor", 1.0)))
        tables[kind] = exact.inverse_frequencies(rotary_dim, mine["rope_theta"],
                                                 mine | dict(max=c.max_position_embeddings))
        for ours, theirs in zip(tables[kind], rotary_of(model, kind)):
            np.testing.assert_allclose(theirs, ours, rtol=1e-6)
    frequency, magnitude = tables.get("full_attention") or tables[""]
    if rope.get("rope_type") == "longrope":
        grown = rope | dict(max=c.max_position_embeddings, short_factor=rope["long_factor"])
        own["long"] = (rope["original_max_position_embeddings"],
                       exact.inverse_frequencies(rotary_dim, rope["rope_theta"], grown)[0])
    if "full_attention" in rope:
        own["tables"] = [tables[kind] for kind in c.layer_types]
        rope = rope["full_attention"]
    return exact.Shape(c.num_hidden_layers, c.num_attention_heads, c.num_key_value_heads, head_dim,
                       next(getattr(c, key) for key in EPSILONS if hasattr(c, key)), frequency, magnitude,
                       getattr(c, "num_experts_per_tok", 0),
                       getattr(c, "norm_topk_prob", True), [],
                       rope.get("llama_4_scaling_beta") or 0.0,
                       rope.get("original_max_position_embeddings") or 1, c.model_type in SIGMOIDS,
                       getattr(c, "routed_scaling_factor", 1.0), windows_of(c), clamp_of(c), **own)


def in_stretches(shape, prompt, ids, rows, evaluate):
    """evaluate(ids, rows), rows ascending from the prompt's last on; of each length of text with its frequencies.

    As transformers generates with longrope: what a text was before it grew too long was computed by the short ones.
    """
    original = getattr(shape, "long", ()) and shape.long[0]
    if not original or not len(prompt) <= original < len(ids):
        return evaluate(ids, rows)
    early = [row for row in rows if row < original]
    return np.concatenate([evaluate(ids[:original], early), evaluate(ids, rows[len(early):])])


NAMES = {"model.language_model.": "model.", "block_sparse_moe.": "mlp.",
         ".query_layernorm.": ".q_norm.", ".key_layernorm.": ".k_norm.",
         ".attention_layernorm.": ".input_layernorm.", ".feedforward_layernorm.": ".post_attention_layernorm.",
         ".shared_mlp.input_linear.": ".mlp.gate_up_proj.", ".shared_mlp.output_linear.": ".mlp.down_proj."}


def plain_name(name):
    """Returns Llama's name of a tensor."""
    for theirs, ours in NAMES.items():
        name = name.replace(theirs, ours)
    return name


def measure(model, prompt, rows, new_tokens, samples):
    """The golden of a model: reference logits of the prompt's `rows`, greedy text, tolerance.

    The tolerance bounds |ours - reference| <= |ours - exact| + |reference - exact|, and each of the
    two is a float32 evaluation, so twice what float32 rounding does to any checked logit.
    """
    weights = unfused({plain_name(k): v.numpy() for k, v in model.state_dict().items()})
    weights = delta_configs.apart(weights, model.config.to_dict())
    shape = shape_of(model)
    rotary = isinstance(shape, exact.Shape)
    frequency = rotary_of(model, "full_attention" if shape.tables else "")[0].copy() if rotary else []
    tokens = greedy_text(model, prompt, new_tokens)
    ids = prompt + tokens[:-1]
    steps = list(range(len(prompt) - 1, len(ids)))  # the row that chooses each greedy token
    every = rows + steps
    reference = in_stretches(shape, prompt, ids, every, lambda part, of: reference_logits(model, part, of))
    logits = exact.logits if rotary else exact_layer_norm.logits

    def evaluate(seed):
        """Routing is the one step that is not smooth: rounding must not change it."""
        before = list(shape.routes) if rotary else []
        result = in_stretches(shape, prompt, ids, every,
                              lambda part, of: logits(weights, shape, part, of, seed))
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
        "inverse_frequency": frequency,
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
