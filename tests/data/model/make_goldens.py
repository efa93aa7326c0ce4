#!/usr/bin/env python3
"""Makes the tiny checkpoints of this directory and their goldens (NAME.golden.json).

  make_goldens.py [NAME...]   (needs numpy torch transformers safetensors gguf; about a minute)

Each family of decoder gets a random checkpoint with a real config of its kind, in the spelling of
transformers 4 or 5; formats get theirs: shards, odd offsets, GGUF with every tensor type. Weights
are random (norms and biases too) and large enough that a wrong equation moves the logits far beyond
the tolerance, which tests/model/golden_test.cc checks. Deterministic for given library versions.
"""

import json
import pathlib
import struct
import sys

import gguf
import numpy as np
import safetensors.torch
import torch
import transformers

import golden

HERE = pathlib.Path(__file__).parent
VOCAB = 97
PROMPT, NEW_TOKENS = 40, 24
ROWS = [0, 1, 7, 18, 31, PROMPT - 1]
Q = gguf.GGMLQuantizationType

# Keys every config shares; each family below adds its own, as such files do in the wild.
COMMON = dict(hidden_act="silu", vocab_size=VOCAB, max_position_embeddings=256, bos_token_id=1,
              eos_token_id=2, initializer_range=0.02, use_cache=True)


def family(architecture, model_type, **keys):
    return dict(COMMON, architectures=[architecture], model_type=model_type, **keys)


def sizes(hidden, inner, layers, heads, kv_heads, **keys):
    return dict(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
                num_attention_heads=heads, num_key_value_heads=kv_heads, **keys)


CONFIGS = {
    # transformers 4 spelling, multi-head attention
    "llama2": family("LlamaForCausalLM", "llama", **sizes(32, 88, 2, 4, 4),
                     rms_norm_eps=1e-4, rope_theta=10000.0, rope_scaling=None,
                     tie_word_embeddings=False, attention_bias=False, mlp_bias=False,
                     torch_dtype="bfloat16"),
    # transformers 5 spelling, several end tokens
    "llama3": family("LlamaForCausalLM", "llama", **sizes(48, 80, 2, 3, 1, head_dim=16),
                     rms_norm_eps=2e-4, tie_word_embeddings=False, attention_bias=False,
                     mlp_bias=False, dtype="bfloat16",
                     rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=8.0,
                                          low_freq_factor=1.0, high_freq_factor=4.0,
                                          original_max_position_embeddings=256))
              | dict(eos_token_id=[2, 5, 7], max_position_embeddings=2048),
    "llama_linear": family("LlamaForCausalLM", "llama", **sizes(32, 40, 2, 2, 2),
                           rms_norm_eps=1e-4, rope_theta=10000.0,
                           rope_scaling=dict(type="linear", factor=4.0),
                           tie_word_embeddings=False, torch_dtype="float32"),
    "llama_yarn": family("LlamaForCausalLM", "llama", **sizes(32, 40, 2, 2, 1),
                         rms_norm_eps=1e-4, rope_theta=10000.0,
                         rope_scaling=dict(rope_type="yarn", factor=8.0, beta_fast=8.0,
                                           beta_slow=1.0, original_max_position_embeddings=32),
                         tie_word_embeddings=False, torch_dtype="float16"),
    # a head_dim that is not hidden / heads
    "mistral": family("MistralForCausalLM", "mistral", **sizes(32, 72, 2, 4, 2, head_dim=16),
                      rms_norm_eps=1e-4, rope_theta=1000000.0, sliding_window=None,
                      tie_word_embeddings=False, torch_dtype="bfloat16"),
    "smollm2": family("LlamaForCausalLM", "llama", **sizes(36, 64, 3, 3, 1),
                      rms_norm_eps=1e-4, rope_theta=100000, rope_scaling=None,
                      rope_interleaved=False, tie_word_embeddings=True, torch_dtype="bfloat16"),
    "qwen2": family("Qwen2ForCausalLM", "qwen2", **sizes(32, 72, 2, 4, 2),
                    rms_norm_eps=1e-4, rope_theta=1000000.0, use_sliding_window=False,
                    sliding_window=128, max_window_layers=2, tie_word_embeddings=True,
                    torch_dtype="bfloat16"),
    "qwen3": family("Qwen3ForCausalLM", "qwen3", **sizes(32, 64, 2, 4, 2, head_dim=24),
                    rms_norm_eps=1e-4, attention_bias=False, use_sliding_window=False,
                    sliding_window=None, tie_word_embeddings=False, dtype="bfloat16",
                    rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
}

def with_layer_norms(architecture, model_type, **keys):
    return dict(architectures=[architecture], model_type=model_type, vocab_size=VOCAB,
                bos_token_id=1, eos_token_id=2, use_cache=True, tie_word_embeddings=True, **keys)


CONFIGS |= {
    # There are as many positions as the test's text has.
    "opt": with_layer_norms("OPTForCausalLM", "opt", hidden_size=32, ffn_dim=88,
                            num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=32,
                            max_position_embeddings=64, activation_function="relu",
                            do_layer_norm_before=True, enable_bias=True,
                            layer_norm_elementwise_affine=True, _remove_final_layer_norm=False,
                            torch_dtype="bfloat16"),
    # heads that are no power of two, of an odd width
    "bloom": with_layer_norms("BloomForCausalLM", "bloom", hidden_size=42, n_layer=2, n_head=6,
                              layer_norm_epsilon=1e-4, slow_but_exact=False, pretraining_tp=1,
                              apply_residual_connection_post_layernorm=False, seq_length=256,
                              torch_dtype="bfloat16"),
    # as OPT-350M: norms after each part, projections around the layers
    "opt_after": with_layer_norms("OPTForCausalLM", "opt", hidden_size=32, ffn_dim=88,
                                  num_hidden_layers=2, num_attention_heads=4,
                                  word_embed_proj_dim=24, max_position_embeddings=64,
                                  activation_function="relu", do_layer_norm_before=False,
                                  enable_bias=True, layer_norm_elementwise_affine=True,
                                  _remove_final_layer_norm=False, torch_dtype="bfloat16"),
}

# Positions beyond `original`, and a magnitude that mscale_all_dim does not cancel.
MINISTRAL = dict(rope_type="yarn", type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=4.0,
                 beta_slow=1.0, mscale=1.0, mscale_all_dim=0.5, llama_4_scaling_beta=0.4,
                 original_max_position_embeddings=16)
CONFIGS |= {
    "ministral3": family("Ministral3ForCausalLM", "ministral3", **sizes(64, 72, 2, 4, 2, head_dim=24),
                         rms_norm_eps=1e-4, sliding_window=None, tie_word_embeddings=False,
                         dtype="bfloat16", rope_parameters=dict(MINISTRAL)),
}

CONFIGS |= {
    "mixtral": family("MixtralForCausalLM", "mixtral", **sizes(32, 40, 2, 4, 2), rms_norm_eps=1e-4,
                      rope_theta=1000000.0, sliding_window=None, tie_word_embeddings=False,
                      num_local_experts=5, num_experts_per_tok=2, torch_dtype="bfloat16"),
    # a dense layer between two with experts
    "qwen3_moe": family("Qwen3MoeForCausalLM", "qwen3_moe", **sizes(32, 56, 3, 4, 2, head_dim=24),
                        rms_norm_eps=1e-4, attention_bias=False, use_sliding_window=False,
                        sliding_window=None, tie_word_embeddings=False, dtype="bfloat16",
                        num_experts=7, num_experts_per_tok=3, moe_intermediate_size=24,
                        norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[1],
                        rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
    "olmoe": family("OlmoeForCausalLM", "olmoe", **sizes(32, 24, 2, 4, 2), rms_norm_eps=1e-4,
                    rope_theta=10000.0, attention_bias=False, clip_qkv=None, tie_word_embeddings=False,
                    num_experts=8, num_experts_per_tok=3, norm_topk_prob=False, torch_dtype="bfloat16"),
}
CONFIGS |= {
    "seed_oss": family("SeedOssForCausalLM", "seed_oss", **sizes(32, 72, 2, 4, 2, head_dim=12),
                       rms_norm_eps=1e-4, attention_bias=True, attention_out_bias=False, mlp_bias=False,
                       attention_dropout=0.1, residual_dropout=0.1, tie_word_embeddings=False,
                       dtype="bfloat16", rope_parameters=dict(rope_type="default", rope_theta=1e7)),
}
MIXTURES = ("mixtral", "qwen3_moe", "olmoe")

def with_eyes(text, **keys):
    """A decoder inside of a model that also sees, as Mistral publishes them."""
    text = {k: v for k, v in text.items() if k != "architectures"}
    vision = dict(model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                  num_attention_heads=1, image_size=8, patch_size=4)
    return dict(architectures=["Mistral3ForConditionalGeneration"], model_type="mistral3",
                text_config=text, vision_config=vision, image_token_index=96,
                spatial_merge_size=2, vision_feature_layer=-1, **keys)


EYES_TEXT = family("Ministral3ForCausalLM", "ministral3", **sizes(32, 40, 2, 2, 1, head_dim=24),
                   rms_norm_eps=1e-4, sliding_window=None, rope_parameters=dict(MINISTRAL))
CONFIGS |= {
    # Nobody says that the head is tied, which the wrapper's default is, and a head is stored.
    "mistral3": with_eyes(EYES_TEXT, dtype="bfloat16"),
    # The two configs contradict each other.
    "mistral3_tied": with_eyes(EYES_TEXT | dict(tie_word_embeddings=False), dtype="bfloat16",
                               tie_word_embeddings=True),
}

GGUF_CONFIGS = {
    "llama": family("LlamaForCausalLM", "llama", **sizes(64, 96, 2, 4, 2), rms_norm_eps=1e-4,
                    rope_theta=10000.0, tie_word_embeddings=False),
    # rope_freqs.weight carries the llama3 scaling
    "llama3": family("LlamaForCausalLM", "llama", **sizes(32, 64, 2, 2, 1), rms_norm_eps=2e-4,
                     tie_word_embeddings=True,
                     rope_parameters=dict(CONFIGS["llama3"]["rope_parameters"]))
              | dict(max_position_embeddings=2048),
    "qwen2": family("Qwen2ForCausalLM", "qwen2", **sizes(64, 96, 2, 4, 2), rms_norm_eps=1e-4,
                    rope_theta=1000000.0, tie_word_embeddings=True),
    "qwen3": family("Qwen3ForCausalLM", "qwen3", **sizes(64, 64, 2, 4, 2, head_dim=32),
                    rms_norm_eps=1e-4, rope_theta=1000000.0, tie_word_embeddings=False),
    "ministral3": family("Ministral3ForCausalLM", "ministral3", **sizes(64, 96, 2, 4, 2, head_dim=32),
                         rms_norm_eps=1e-4, sliding_window=None, tie_word_embeddings=True,
                         rope_parameters=dict(MINISTRAL)),
    "seed_oss": family("SeedOssForCausalLM", "seed_oss", **sizes(64, 96, 2, 4, 2, head_dim=32),
                       rms_norm_eps=1e-4, attention_bias=True, attention_out_bias=False, mlp_bias=False,
                       tie_word_embeddings=False,
                       rope_parameters=dict(rope_type="default", rope_theta=1e7)),
    "mixtral": family("MixtralForCausalLM", "mixtral", **sizes(64, 96, 2, 4, 2), rms_norm_eps=1e-4,
                      rope_theta=1000000.0, sliding_window=None, tie_word_embeddings=False,
                      num_local_experts=5, num_experts_per_tok=2),
    "qwen3_moe": family("Qwen3MoeForCausalLM", "qwen3_moe", **sizes(64, 96, 2, 4, 2, head_dim=32),
                        rms_norm_eps=1e-4, rope_theta=1000000.0, tie_word_embeddings=False,
                        num_experts=7, num_experts_per_tok=3, moe_intermediate_size=32,
                        norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[]),
    "olmoe": family("OlmoeForCausalLM", "olmoe", **sizes(64, 32, 2, 4, 2), rms_norm_eps=1e-4,
                    rope_theta=10000.0, clip_qkv=None, tie_word_embeddings=False, num_experts=8,
                    num_experts_per_tok=3, norm_topk_prob=False),
}
# What GGUF calls an architecture, where that is not its model_type.
GGUF_ARCHITECTURES = {"ministral3": "mistral3", "mixtral": "llama", "qwen3_moe": "qwen3moe"}
NEIGHBOURS = ("llama", "mistral3")  # rotate these, so the rows of Q and K are reordered
# The type of each matrix, so that every type meets every kind of use.
GGUF_TYPES = {
    "llama": dict(token_embd=Q.Q8_0, output=Q.Q8_0, attn_q=Q.Q4_0, attn_k=Q.Q8_0, attn_v=Q.Q4_1,
                  attn_output=Q.F16, ffn_gate=Q.Q4_0, ffn_up=Q.Q4_1, ffn_down=Q.BF16),
    "llama3": dict(token_embd=Q.F16, attn_q=Q.F16, attn_k=Q.BF16, attn_v=Q.F32,
                   attn_output=Q.Q4_1, ffn_gate=Q.Q8_0, ffn_up=Q.F16, ffn_down=Q.Q4_0),
    "qwen2": dict(token_embd=Q.F16, attn_q=Q.Q4_1, attn_k=Q.Q4_0, attn_v=Q.Q8_0,
                  attn_output=Q.Q4_0, ffn_gate=Q.Q4_1, ffn_up=Q.Q4_1, ffn_down=Q.Q8_0),
    "qwen3": dict(token_embd=Q.BF16, output=Q.F16, attn_q=Q.Q8_0, attn_k=Q.Q4_1, attn_v=Q.F16,
                  attn_output=Q.Q8_0, ffn_gate=Q.BF16, ffn_up=Q.Q4_0, ffn_down=Q.Q4_1),
    "ministral3": dict(token_embd=Q.Q8_0, attn_q=Q.Q8_0, attn_k=Q.Q4_0, attn_v=Q.F16,
                       attn_output=Q.BF16, ffn_gate=Q.Q8_0, ffn_up=Q.Q4_1, ffn_down=Q.Q8_0),
}
GGUF_TYPES |= {name: dict(token_embd=Q.Q8_0, output=Q.F16, attn_q=Q.Q8_0, attn_k=Q.F16, attn_v=Q.Q8_0,
                          attn_output=Q.Q8_0, ffn_gate_inp=Q.F32, **experts)
               for name, experts in {
                   "mixtral": dict(ffn_gate_exps=Q.Q4_0, ffn_up_exps=Q.Q4_0, ffn_down_exps=Q.Q8_0),
                   "qwen3_moe": dict(ffn_gate_exps=Q.Q8_0, ffn_up_exps=Q.F16, ffn_down_exps=Q.Q4_1),
                   "olmoe": dict(ffn_gate_exps=Q.BF16, ffn_up_exps=Q.Q8_0, ffn_down_exps=Q.F32)}.items()}
GGUF_TYPES["seed_oss"] = dict(GGUF_TYPES["ministral3"], output=Q.F16)
GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps", "mlp.experts.down_proj": "ffn_down_exps",
}


def prompt_of(seed):
    """Every other token is one of ten, so attention has repetitions to find."""
    rng = np.random.default_rng([seed, 1])
    ids = rng.integers(0, VOCAB, PROMPT)
    ids[::2] = rng.integers(10, 20, PROMPT // 2)
    return ids.tolist()


def random_weights(config, seed):
    """Float32 arrays by Hugging Face name."""
    rng = np.random.default_rng([seed, 0])
    hf = transformers.AutoConfig.for_model(**config)
    with torch.device("meta"):
        empty = golden.auto_class(hf).from_config(hf)
    weights = {}
    for name, tensor in sorted(empty.state_dict().items()):
        shape = tuple(tensor.shape)
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        normal = rng.standard_normal(shape)
        if name.endswith(".weight") and len(shape) == 1:
            value = 1.0 + 0.3 * normal
        elif name.endswith(".bias"):
            value = 0.5 * normal
        elif "embed" in name:
            value = 0.25 * normal
        else:
            value = 1.4 * normal / np.sqrt(shape[-1])
        weights[name] = value.astype(np.float32)
    return weights


def split_experts(weights):
    """transformers has gate and up of all experts in one tensor; files have them apart."""
    split = {}
    for name, value in weights.items():
        if name.endswith("mlp.experts.gate_up_proj"):
            gate, up = np.split(value, 2, axis=1)
            split[name.replace("gate_up_proj", "gate_proj.weight")] = gate
            split[name.replace("gate_up_proj", "up_proj.weight")] = up
        else:
            split[name + ".weight" if "mlp.experts." in name else name] = value
    return split


def join_experts(weights):
    joined = {k: v for k, v in weights.items() if "mlp.experts." not in k}
    for name, gate in weights.items():
        if name.endswith("mlp.experts.gate_proj.weight"):
            stem = name.removesuffix("gate_proj.weight")
            joined[stem + "gate_up_proj"] = np.concatenate([gate, weights[stem + "up_proj.weight"]], axis=1)
            joined[stem + "down_proj"] = weights[stem + "down_proj.weight"]
    return joined


def as_published(config, weights):
    """Each expert's matrices under names of their own."""
    names = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    mixtral, published = config["model_type"] == "mixtral", {}
    for name, value in split_experts(weights).items():
        stem, _, matrix = name.removesuffix(".weight").rpartition(".")
        if not stem.endswith("mlp.experts"):
            published[name.replace("mlp.gate.", "block_sparse_moe.gate.") if mixtral else name] = value
            continue
        for expert, of_expert in enumerate(value):
            stored = stem.replace("mlp.", "block_sparse_moe.") if mixtral else stem
            matrix_name = names[matrix] if mixtral else matrix
            published[f"{stored}.{expert}.{matrix_name}.weight"] = of_expert
    return {stored_name(name, config): value for name, value in published.items()}


def stored_name(name, config):
    """What published files call a tensor of transformers 5."""
    if "text_config" not in config:
        return name
    for ours, theirs in (("model.language_model.", "language_model.model."),
                         ("lm_head.", "language_model.lm_head."), ("model.", "")):
        if name.startswith(ours):
            return theirs + name[len(ours):]


def write_directory(directory, config, tensors):
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    safetensors.torch.save_file(tensors, directory / "model.safetensors", {"format": "pt"})


def write_shards(directory, config, tensors):
    """Two shards and their index; neighbouring tensors lie in different files."""
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    files = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    home = {name: files[i % 2] for i, name in enumerate(sorted(tensors))}
    for file in files:
        safetensors.torch.save_file({n: t for n, t in tensors.items() if home[n] == file},
                                    directory / file, {"format": "pt"})
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": home}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def write_odd(directory, config, tensors):
    """One file whose header has an odd length, so that each bf16 tensor starts at an odd byte."""
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    header, data = {}, b""
    for name, tensor in sorted(tensors.items(), reverse=True):
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (1 - len(text) % 2)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def gguf_name(name):
    """'model.layers.3.mlp.up_proj.weight' -> 'blk.3.ffn_up.weight'."""
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        return f"blk.{layer}.{GGUF_NAMES[part]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


def to_pairs(w, heads):
    """Rows of each head from halves (Hugging Face) to neighbours (llama files of GGUF)."""
    return w.reshape(heads, 2, -1, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


def to_halves(w, heads):
    return w.reshape(heads, -1, 2, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


def write_gguf(path, config, weights, types):
    """Writes the file; returns the weights it stores, dequantised, under Hugging Face names."""
    architecture = GGUF_ARCHITECTURES.get(config["model_type"], config["model_type"])
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    rope = config.get("rope_parameters")
    out = gguf.GGUFWriter(path, architecture)
    out.add_name(f"tiny random {architecture}")
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_key_length(head_dim)
    out.add_value_length(head_dim)
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if config["model_type"] in MIXTURES:
        out.add_expert_count(config.get("num_experts") or config["num_local_experts"])
        out.add_expert_used_count(config["num_experts_per_tok"])
        if "moe_intermediate_size" in config:
            out.add_expert_feed_forward_length(config["moe_intermediate_size"])
    out.add_rope_freq_base(rope["rope_theta"] if rope else config["rope_theta"])
    if architecture in NEIGHBOURS:
        out.add_rope_dimension_count(head_dim)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("default")
    out.add_token_list([chr(33 + i) if i < 94 else f"<{i}>" for i in range(VOCAB)])
    out.add_token_types([1 if i < 94 else 3 for i in range(VOCAB)])
    out.add_token_merges([])
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    if rope and rope["rope_type"] == "yarn":
        out.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        out.add_rope_scaling_factor(rope["factor"])
        out.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        out.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        out.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
        out.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        out.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    elif rope and rope["rope_type"] == "llama3":
        frequency, _ = golden.exact.inverse_frequencies(head_dim, rope["rope_theta"], rope)
        plain, _ = golden.exact.inverse_frequencies(head_dim, rope["rope_theta"])
        out.add_tensor("rope_freqs.weight", (plain / frequency).astype(np.float32))
    stored = {}
    for name, w in split_experts(weights).items():
        target = gguf_name(name)
        if architecture == "seed_oss":
            target = target.replace("ffn_norm", "post_attention_norm")
        permuted = heads if "q_proj" in name else kv_heads if "k_proj" in name else 0
        permuted = permuted if architecture in NEIGHBOURS else 0
        kind = types[target.split(".")[-2]] if w.ndim > 1 else Q.F32
        raw = gguf.quants.quantize(to_pairs(w, permuted) if permuted else w, kind)
        out.add_tensor(target, raw, raw_dtype=kind)
        back = gguf.quants.dequantize(raw, kind).astype(np.float32)
        stored[name] = to_halves(back, permuted) if permuted else back
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return join_experts(stored)


def reference_of(config, weights):
    """The library's model of these float32 weights."""
    hf = transformers.AutoConfig.for_model(**config)
    hf._attn_implementation = hf._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(hf, dtype=torch.float32).eval()
    state = {k: torch.from_numpy(v) for k, v in weights.items()}
    missing, extra = model.load_state_dict(state, strict=False)
    assert not extra and set(missing) <= {"lm_head.weight"}, (missing, extra)
    model.tie_weights()
    return model


def make(name, model, checkpoints, seed):
    print(name)
    result = golden.measure(model, prompt_of(seed), ROWS, NEW_TOKENS, samples=32)
    golden.save(HERE / f"{name}.golden.json", {"checkpoints": checkpoints} | result)


def main():
    torch.set_num_threads(1)
    wanted = sys.argv[1:]
    for seed, (name, config) in enumerate(CONFIGS.items()):
        if wanted and name not in wanted:
            continue
        dtype = getattr(torch, config.get("dtype") or config["torch_dtype"])
        tensors = {k: torch.from_numpy(np.ascontiguousarray(v)).to(dtype)
                   for k, v in as_published(config, random_weights(config, seed)).items()}
        write_directory(HERE / name, config, tensors)
        checkpoints = [name]
        if name == "llama2":
            write_shards(HERE / "llama2_shards", config, tensors)
            write_odd(HERE / "llama2_odd", config, tensors)
            checkpoints += ["llama2_shards", "llama2_odd"]
        make(name, golden.load(HERE / name), checkpoints, seed)
    for seed, (name, config) in enumerate(GGUF_CONFIGS.items(), start=100):
        if wanted and f"{name}_gguf" not in wanted:
            continue
        file = f"{name}.gguf"
        stored = write_gguf(HERE / file, config, random_weights(config, seed), GGUF_TYPES[name])
        make(f"{name}_gguf", reference_of(config, stored), [file], seed)


if __name__ == "__main__":
    main()
