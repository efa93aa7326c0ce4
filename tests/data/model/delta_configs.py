"""Configs of the tiny checkpoints whose layers are delta nets in part, and their form in GGUF files.

Two periods of layers, heads of values that share keys, keys and values of different widths, and a quarter of each
attention's head that is rotated. Decays differ by head from fast to slow, so that states matter over long texts.
"""

import numpy as np

from families import Q, family, sizes

ROPE = dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=0.25, mrope_interleaved=True,
            mrope_section=[11, 11, 10])
DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12,
             linear_conv_kernel_dim=4)
THREE = dict(DELTA, linear_num_key_heads=3, linear_num_value_heads=6)
BLOCKS = dict(DELTA, linear_key_head_dim=32, linear_value_head_dim=32)  # of FP8; llama.cpp asks for equal widths
LAYERS = (["linear_attention"] * 3 + ["full_attention"]) * 2


def qwen3_5(shape, delta, **keys):
    return family("Qwen3_5ForCausalLM", "qwen3_5_text", **shape, **delta, rms_norm_eps=1e-4, attention_bias=False,
                  attn_output_gate=True, layer_types=LAYERS, rope_parameters=ROPE, mtp_num_hidden_layers=1,
                  tie_word_embeddings=False, pad_token_id=0, dtype="bfloat16") | dict(max_position_embeddings=512) | keys


def qwen3_next(shape, delta, **keys):
    """In the spelling of transformers 4. Rows of its delta nets' inputs are those of a key head, then of the next."""
    return family("Qwen3NextForCausalLM", "qwen3_next", **shape, **delta, rms_norm_eps=1e-4, attention_bias=False,
                  full_attention_interval=4, rope_theta=100.0, rope_scaling=None, partial_rotary_factor=0.25,
                  num_experts=6, num_experts_per_tok=2, norm_topk_prob=True, decoder_sparse_step=1,
                  tie_word_embeddings=False, torch_dtype="bfloat16") | dict(max_position_embeddings=512) | keys


def qwen3_5_moe(shape, delta, **keys):
    config = qwen3_5(shape, delta, num_experts=6, num_experts_per_tok=2, **keys)
    config |= dict(architectures=["Qwen3_5MoeForCausalLM"], model_type="qwen3_5_moe_text")
    return {key: value for key, value in config.items() if key != "intermediate_size"}


CONFIGS = {
    "qwen3_5": qwen3_5(sizes(32, 40, 8, 2, 1, head_dim=16), DELTA),
    "qwen3_5_moe": qwen3_5_moe(sizes(32, 40, 8, 2, 1, head_dim=16), DELTA, moe_intermediate_size=24,
                               shared_expert_intermediate_size=20),
    # A layer of each kind is dense.
    "qwen3_next": qwen3_next(sizes(32, 40, 8, 2, 1, head_dim=16), THREE, moe_intermediate_size=24,
                             shared_expert_intermediate_size=20, mlp_only_layers=[1, 3]),
}
WIDE = dict(DELTA, linear_value_head_dim=16, linear_num_value_heads=6)
GGUF_CONFIGS = {
    "qwen3_5": qwen3_5(sizes(64, 64, 8, 2, 1, head_dim=32), WIDE),
    "qwen3_5_moe": qwen3_5_moe(sizes(64, 64, 8, 2, 1, head_dim=32), WIDE, moe_intermediate_size=32,
                               shared_expert_intermediate_size=64),
}
NEXT = qwen3_next(sizes(64, 64, 4, 2, 1, head_dim=32), dict(THREE, linear_value_head_dim=16), moe_intermediate_size=32,
                  shared_expert_intermediate_size=64, mlp_only_layers=[])
GGUF_CONFIGS |= {"qwen3_next": NEXT, "qwen3_next_ssm_in": NEXT}  # as converters write it, and as older ones did
GGUF_ARCHITECTURES = {"qwen3_5_text": "qwen35", "qwen3_5_moe_text": "qwen35moe", "qwen3_next": "qwen3next"}
KINDS = tuple(GGUF_ARCHITECTURES)
NAMES = {"post_attention_layernorm": "post_attention_norm"} | {
    f"linear_attn.{ours}": theirs for ours, theirs in (
        ("in_proj_qkv", "attn_qkv"), ("in_proj_z", "attn_gate"), ("in_proj_b", "ssm_beta"), ("in_proj_a", "ssm_alpha"),
        ("in_proj_qkvz", "ssm_in"), ("in_proj_ba", "ssm_ba"), ("conv1d", "ssm_conv1d"), ("norm", "ssm_norm"),
        ("out_proj", "ssm_out"))}
GGUF_NAMES = dict.fromkeys(GGUF_ARCHITECTURES.values(), NAMES)
TYPES = dict(token_embd=Q.Q8_0, output=Q.F16, attn_q=Q.Q8_0, attn_k=Q.F16, attn_v=Q.Q8_0, attn_output=Q.Q8_0,
             attn_qkv=Q.Q8_0, attn_gate=Q.Q4_1, ssm_beta=Q.F32, ssm_alpha=Q.F32, ssm_ba=Q.F16, ssm_in=Q.Q8_0, ssm_out=Q.Q8_0)
GGUF_TYPES = {"qwen3_5": dict(TYPES, ffn_gate=Q.Q8_0, ffn_up=Q.Q4_1, ffn_down=Q.Q8_0),
              "qwen3_5_moe": dict(TYPES, ffn_gate_inp=Q.F32, ffn_gate_inp_shexp=Q.F32, ffn_gate_shexp=Q.Q8_0,
                                  ffn_up_shexp=Q.Q8_0, ffn_down_shexp=Q.Q8_0, ffn_gate_exps=Q.Q8_0,
                                  ffn_up_exps=Q.Q4_1, ffn_down_exps=Q.Q8_0)}
GGUF_TYPES |= dict.fromkeys(("qwen3_next", "qwen3_next_ssm_in"), GGUF_TYPES["qwen3_5_moe"])


def value_of(name, normal):
    """A random tensor of a delta net that is no matrix; None of others."""
    if name.endswith(".A_log"):
        return -3.0 + 2.0 * normal
    if name.endswith(".dt_bias"):
        return 0.5 * normal
    if name.endswith("linear_attn.norm.weight"):
        return 1.0 + 0.3 * normal
    return None


def is_plain(name):
    """Says if a norm's weights are not less 1."""
    return name.endswith("linear_attn.norm.weight")


def gguf_name(name):
    """Names that end in other words than theirs do here."""
    for ours, theirs in ((".A_log", "ssm_a"), (".dt_bias", "ssm_dt.bias")):
        if name.endswith(ours):
            return f"blk.{name.split('.')[2]}.{theirs}"
    return None


def add_keys(out, config):
    architecture = GGUF_ARCHITECTURES[config["model_type"]]
    out.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    out.add_ssm_state_size(config["linear_key_head_dim"])
    out.add_ssm_group_count(config["linear_num_key_heads"])
    out.add_ssm_time_step_rank(config["linear_num_value_heads"])
    out.add_ssm_inner_size(config["linear_num_value_heads"] * config["linear_value_head_dim"])
    out.add_uint32(f"{architecture}.full_attention_interval", 4)


def in_turns(name, w, config, back=False):
    """Value heads of a delta net's tensor in the order of GGUF files, where key heads take turns; or back."""
    keys, values = config.get("linear_num_key_heads"), config.get("linear_num_value_heads")
    grouped = "linear_attn." not in name or config["model_type"] == "qwen3_next"
    part = "" if grouped else name.rpartition("linear_attn.")[2]
    order = np.arange(values or 0).reshape(keys or 1, -1)
    order = (order.T if not back else np.arange(values or 0).reshape(-1, keys or 1).T).reshape(-1)
    heads = lambda rows: rows.reshape(values, -1, *rows.shape[1:])[order].reshape(rows.shape)
    if part in ("in_proj_z.weight", "in_proj_b.weight", "in_proj_a.weight", "A_log", "dt_bias"):
        return heads(w)
    if part in ("in_proj_qkv.weight", "conv1d.weight"):
        first = 2 * keys * config["linear_key_head_dim"]
        return np.concatenate([w[:first], heads(w[first:])])
    if part == "out_proj.weight":
        return np.ascontiguousarray(heads(np.ascontiguousarray(w.T)).T)
    return w


def of_key_heads(config):
    """Rows that each key head has of its queries, keys, values and gates, one after the other; and of beta and step."""
    keys, group = config["linear_key_head_dim"], config["linear_num_value_heads"] // config["linear_num_key_heads"]
    values = group * config["linear_value_head_dim"]
    return [keys, keys, values, values], [group, group]


def apart(weights, config):
    """in_proj_qkvz and in_proj_ba of Qwen3-Next as what Qwen 3.5 has in their place."""
    if config["model_type"] != "qwen3_next":
        return weights
    heads, (mixed, steps), result = config["linear_num_key_heads"], of_key_heads(config), {}

    def take(w, rows):
        parts = np.split(w.reshape(heads, sum(rows), -1), np.cumsum(rows)[:-1], axis=1)
        return [part.reshape(-1, w.shape[-1]) for part in parts]

    for name, w in weights.items():
        if name.endswith("in_proj_qkvz.weight"):
            *qkv, z = take(w, mixed)
            result |= {name.replace("qkvz", "qkv"): np.concatenate(qkv), name.replace("qkvz", "z"): z}
        elif name.endswith("in_proj_ba.weight"):
            result |= dict(zip((name.replace("ba", "b"), name.replace("ba", "a")), take(w, steps)))
        else:
            result[name] = w
    return result


def as_converted(weights, config, legacy):
    """Qwen3-Next's tensors as converters have them: queries, keys and values apart from gates; older ones did not."""
    if config["model_type"] != "qwen3_next" or legacy:
        return weights
    parts = {name: w for name, w in apart(weights, config).items() if "in_proj_qkv." in name or "in_proj_z." in name}
    return {name: w for name, w in weights.items() if "in_proj_qkvz" not in name} | parts


def as_stored(weights, config):
    """The other way round."""
    if config["model_type"] != "qwen3_next":
        return weights
    heads, (rows, _), result = config["linear_num_key_heads"], of_key_heads(config), dict(weights)
    for name in weights:
        if "in_proj_qkv." not in name:
            continue
        qkv, z = result.pop(name), result.pop(name.replace("qkv", "z"))
        parts = [*np.split(qkv, np.cumsum(rows)[:2] * heads), z]
        whole = np.concatenate([part.reshape(heads, -1, z.shape[-1]) for part in parts], axis=1)
        result[name.replace("qkv", "qkvz")] = whole.reshape(-1, z.shape[-1])
    return result
