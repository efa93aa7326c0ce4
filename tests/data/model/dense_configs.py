"""Configs of the tiny checkpoints of dense families that differ from Llama in more than sizes.

Texts are longer than the windows, and layers enough for more than one period of them.
"""

import numpy as np

from families import Q, family, sizes

PLAIN = dict(rope_type="default", rope_theta=10000.0)
TIED = dict(tie_word_embeddings=True)
UNTIED = dict(tie_word_embeddings=False)
PHI3_SHORT = [1.0, 1.05, 1.1, 1.2, 1.3, 1.5]
EVERY_FOURTH = dict(sliding_window=8, layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 2)


def phi3(hidden, inner, **keys):
    return family("Phi3ForCausalLM", "phi3", **sizes(hidden, inner, 2, 4, 2), rms_norm_eps=1e-4,
                  embd_pdrop=0.0, resid_pdrop=0.0, attention_dropout=0.0, pad_token_id=0, **UNTIED, **keys)


def gemma(architecture, model_type, shape, **keys):
    """The factor of the embedding, the root of the width, is none that BF16 has."""
    config = family(architecture, model_type, **shape, rms_norm_eps=1e-4, attention_bias=False,
                    hidden_activation="gelu_pytorch_tanh", sliding_window=8, pad_token_id=0, **TIED, **keys)
    return {k: v for k, v in config.items() if k != "hidden_act"}


def gemma2(shape, scalar):
    return gemma("Gemma2ForCausalLM", "gemma2", shape, query_pre_attn_scalar=scalar, rope_theta=10000.0,
                 attn_logit_softcapping=4.0, final_logit_softcapping=3.0)


def gemma3(shape, scalar):
    """Bases that are far apart, and a scaling that is not of the layers with windows."""
    return gemma("Gemma3ForCausalLM", "gemma3_text", shape, query_pre_attn_scalar=scalar,
                 rope_theta=1000000.0, rope_local_base_freq=100.0,
                 rope_scaling=dict(rope_type="linear", factor=8.0))


def gemma4(architecture, model_type, shape, **keys):
    """Every sixth layer and the last have other heads, and take keys for values."""
    shape = shape | dict(num_global_key_value_heads=1, attention_k_eq_v=True, num_kv_shared_layers=0)
    layers = ["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(6)] + ["full_attention"]
    rope = dict(sliding_attention=dict(PLAIN, rope_theta=100.0),
                full_attention=dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=1000000.0))
    return gemma(architecture, model_type, shape, final_logit_softcapping=3.0, layer_types=layers,
                 rope_parameters=rope, **keys)


XIELU = dict(alpha_p=0.3, alpha_n=-0.4, beta=0.5)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
EXAONE_NAMES = {"model.embed_tokens.": "transformer.wte.", "model.layers.": "transformer.h.",
                "model.norm.": "transformer.ln_f.", ".self_attn.o_proj.": ".attn.attention.out_proj.",
                ".self_attn.": ".attn.attention.", ".input_layernorm.": ".ln_1.",
                ".post_attention_layernorm.": ".ln_2.", ".mlp.gate_proj.": ".mlp.c_fc_0.",
                ".mlp.up_proj.": ".mlp.c_fc_1.", ".mlp.down_proj.": ".mlp.c_proj."}


def exaone(shape):
    """Keys as LG's own files have them."""
    config = family("ExaoneForCausalLM", "exaone", **shape, layer_norm_epsilon=1e-4, activation_function="silu",
                    num_layers=shape["num_hidden_layers"], head_dim=shape["hidden_size"] // shape["num_attention_heads"],
                    rope_theta=1000000.0, rope_scaling=LLAMA3, pad_token_id=0, **UNTIED)
    return {k: v for k, v in config.items() if k not in ("hidden_act", "num_hidden_layers")}


def hunyuan(shape):
    return family("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", **shape, rms_norm_eps=1e-4, attention_bias=False,
                  use_qk_norm=True, use_cla=False, rope_theta=10000.0, pad_token_id=0, eod_token_id=2, **TIED,
                  rope_scaling=dict(type="dynamic", alpha=50.0, factor=1.0, beta_fast=32, beta_slow=1,
                                    mscale=1.0, mscale_all_dim=1.0))


def apertus(shape):
    return family("ApertusForCausalLM", "apertus", **shape, rms_norm_eps=1e-4, attention_bias=False, mlp_bias=False,
                  rope_theta=12000000.0, rope_scaling=LLAMA3, pad_token_id=0, **UNTIED) | dict(hidden_act="xielu")


def granite4(shape):
    config = family("GraniteMoeHybridForCausalLM", "granitemoehybrid", **shape, rms_norm_eps=1e-4,
                    attention_bias=False, rope_theta=10000.0, rope_scaling=None, pad_token_id=0, **TIED,
                    embedding_multiplier=6.0, attention_multiplier=0.3, residual_multiplier=0.7,
                    logits_scaling=0.6, num_local_experts=0, num_experts_per_tok=0, position_embedding_type="rope",
                    layer_types=["attention"] * shape["num_hidden_layers"], mamba_n_heads=8, mamba_d_head=8)
    return config | dict(shared_intermediate_size=shape["intermediate_size"])


def olmo2(shape):
    return family("Olmo2ForCausalLM", "olmo2", **shape, rms_norm_eps=1e-4, attention_bias=False,
                  rope_theta=500000.0, rope_scaling=None, pad_token_id=0, **UNTIED)


def olmo3(shape):
    return family("Olmo3ForCausalLM", "olmo3", **shape, rms_norm_eps=1e-4, attention_bias=False,
                  rope_theta=500000.0, pad_token_id=0, **UNTIED, sliding_window=8,
                  rope_scaling=dict(rope_type="yarn", factor=8.0, attention_factor=1.2079441541679836,
                                    beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=32))


def exaone4(shape, **keys):
    return family("Exaone4ForCausalLM", "exaone4", **shape, rms_norm_eps=1e-4, pad_token_id=0, **TIED,
                  rope_parameters=dict(PLAIN, rope_theta=1000000.0), **keys)


def glm4(shape):
    return family("Glm4ForCausalLM", "glm4", **shape, rms_norm_eps=1.5625e-4, attention_bias=True,
                  partial_rotary_factor=0.5, rope_theta=10000.0, pad_token_id=0, **UNTIED)


def granite(shape):
    return family("GraniteForCausalLM", "granite", **shape, rms_norm_eps=1e-4, attention_bias=False,
                  mlp_bias=False, rope_theta=10000.0, rope_scaling=None, pad_token_id=0, **TIED,
                  embedding_multiplier=6.0, attention_multiplier=0.3, residual_multiplier=0.7,
                  logits_scaling=0.6)


def smollm3(shape):
    return family("SmolLM3ForCausalLM", "smollm3", **shape, rms_norm_eps=1e-4, attention_bias=False,
                  mlp_bias=False, rope_theta=5000000.0, rope_scaling=None, pad_token_id=0, **TIED,
                  no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0, 1], use_sliding_window=False,
                  sliding_window=None)


def cohere(architecture, model_type, shape, **keys):
    return family(architecture, model_type, **shape, layer_norm_eps=1e-4, attention_bias=False,
                  rope_theta=10000.0, logit_scale=0.8, pad_token_id=0, **TIED, **keys)


def arcee(shape):
    return family("ArceeForCausalLM", "arcee", **shape, rms_norm_eps=1e-4, attention_bias=False,
                  mlp_bias=False, pad_token_id=0, **UNTIED,
                  rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0,
                                    original_max_position_embeddings=32)) | dict(hidden_act="relu2")


def nemotron(shape):
    return family("NemotronForCausalLM", "nemotron", **shape, norm_eps=1e-4, attention_bias=False,
                  mlp_bias=False, partial_rotary_factor=0.5, rope_theta=10000.0, pad_token_id=0,
                  **UNTIED) | dict(hidden_act="relu2")


def starcoder2(shape):
    return family("Starcoder2ForCausalLM", "starcoder2", **shape, norm_epsilon=1e-4, use_bias=True,
                  rope_theta=10000.0, sliding_window=8, pad_token_id=0,
                  **TIED) | dict(hidden_act="gelu_pytorch_tanh")


BF16 = dict(torch_dtype="bfloat16")
CONFIGS = {
    "mistral_window": family("MistralForCausalLM", "mistral", **sizes(32, 72, 2, 4, 2), rms_norm_eps=1e-4,
                             rope_theta=10000.0, sliding_window=8, **UNTIED),
    "qwen2_window": family("Qwen2ForCausalLM", "qwen2", **sizes(32, 72, 3, 4, 2), rms_norm_eps=1e-4,
                           rope_theta=1000000.0, use_sliding_window=True, sliding_window=8,
                           max_window_layers=1, **UNTIED),
    "phi3": phi3(64, 72, partial_rotary_factor=0.75, rope_theta=10000.0, rope_scaling=None, sliding_window=9),
    # which texts of the goldens grow out of
    "phi3_longrope": phi3(64, 40, partial_rotary_factor=0.75, rope_theta=10000.0, sliding_window=256,
                          original_max_position_embeddings=52,
                          rope_scaling=dict(type="longrope", short_factor=PHI3_SHORT, long_factor=[8.0] * 6)),
    "gemma2": gemma2(sizes(48, 40, 3, 2, 1, head_dim=20), 30),
    "gemma3": gemma3(sizes(48, 40, 7, 2, 1, head_dim=20), 30),
    "olmo2": olmo2(sizes(32, 72, 2, 4, 2)),
    "olmo3": olmo3(sizes(32, 40, 5, 4, 2)),
    "exaone4": exaone4(sizes(32, 40, 8, 2, 1, head_dim=20), **EVERY_FOURTH),
    "exaone4_full": exaone4(sizes(32, 40, 2, 4, 2, head_dim=12), sliding_window=None,
                            layer_types=["full_attention"] * 2),
    "glm4": glm4(sizes(32, 72, 2, 4, 2, head_dim=16)),
    "granite": granite(sizes(32, 72, 2, 4, 2)),
    "smollm3": smollm3(sizes(32, 40, 5, 2, 1)),
    "cohere": cohere("CohereForCausalLM", "cohere", sizes(32, 72, 2, 4, 2), use_qk_norm=False),
    "cohere2": cohere("Cohere2ForCausalLM", "cohere2", sizes(32, 40, 8, 2, 1), **EVERY_FOURTH),
    "arcee": arcee(sizes(32, 72, 2, 4, 2)),
    "nemotron": nemotron(sizes(32, 72, 2, 4, 2)),
    "starcoder2": starcoder2(sizes(32, 72, 2, 4, 2)),
}
# Families that came later, whose seeds come after all others'.
LATER = {
    "gemma4": gemma4("Gemma4ForCausalLM", "gemma4_text", sizes(48, 40, 7, 4, 2, head_dim=12),
                     global_head_dim=20, hidden_size_per_layer_input=0),
    "exaone": exaone(sizes(32, 72, 2, 4, 2)),
    "hunyuan": hunyuan(sizes(32, 72, 2, 4, 2, head_dim=12)),
    "apertus": apertus(sizes(32, 72, 2, 4, 2)),
    "cohere_qk": cohere("CohereForCausalLM", "cohere", sizes(32, 72, 2, 4, 2), use_qk_norm=True),
    "granite4": granite4(sizes(32, 72, 2, 4, 2)),
}
CONFIGS, LATER = ({name: config | BF16 for name, config in all.items()} for all in (CONFIGS, LATER))

SMALL = sizes(64, 64, 2, 2, 1, head_dim=32)
GGUF_CONFIGS = {
    "mistral_window": family("MistralForCausalLM", "mistral", **sizes(64, 96, 2, 4, 2), rms_norm_eps=1e-4,
                             rope_theta=10000.0, sliding_window=8, **UNTIED),
    "phi3": phi3(64, 96, rope_theta=10000.0, rope_scaling=None, sliding_window=9),
    "gemma2": gemma2(sizes(64, 64, 3, 2, 1, head_dim=32), 32),
    "gemma3": gemma3(sizes(64, 32, 7, 2, 1, head_dim=32), 32) | dict(rope_local_base_freq=10000.0),
    "olmo2": olmo2(sizes(64, 64, 2, 4, 2)),
    "olmo3": olmo3(sizes(64, 32, 5, 2, 1)),
    "exaone4": exaone4(sizes(64, 32, 8, 2, 1, head_dim=32), **EVERY_FOURTH),
    "glm4": glm4(SMALL),
    "granite": granite(sizes(64, 64, 2, 2, 1)),
    "smollm3": smollm3(sizes(64, 32, 5, 2, 1)),
    "cohere": cohere("CohereForCausalLM", "cohere", sizes(64, 64, 2, 2, 1), use_qk_norm=False),
    "cohere2": cohere("Cohere2ForCausalLM", "cohere2", sizes(64, 32, 8, 2, 1), **EVERY_FOURTH),
    "arcee": arcee(sizes(64, 64, 2, 2, 1)),
    "nemotron": nemotron(sizes(64, 64, 2, 2, 1)),
    "starcoder2": starcoder2(sizes(64, 64, 2, 2, 1)),
    # whose prompt is longer than the original length
    "phi3_longrope": phi3(64, 64, partial_rotary_factor=0.75, rope_theta=10000.0, sliding_window=256,
                          original_max_position_embeddings=32,
                          rope_scaling=dict(type="longrope", short_factor=PHI3_SHORT,
                                            long_factor=[1.0, 1.5, 2.0, 3.0, 5.0, 8.0])),
}
GGUF_LATER = {
    "gemma4": gemma4("Gemma4ForCausalLM", "gemma4_text", sizes(64, 32, 7, 2, 2, head_dim=32),
                     global_head_dim=64, hidden_size_per_layer_input=0),
    "exaone": exaone(sizes(64, 64, 2, 2, 1)),
    "hunyuan": hunyuan(sizes(64, 64, 2, 2, 1, head_dim=32)),
    "apertus": apertus(sizes(64, 64, 2, 2, 1)),
    "cohere_qk": cohere("CohereForCausalLM", "cohere", sizes(64, 64, 2, 2, 1), use_qk_norm=True),
}
GGUF_ARCHITECTURES = {"gemma3_text": "gemma3", "gemma4_text": "gemma4",
                      "olmo3": "olmo2", "cohere": "command-r", "hunyuan_v1_dense": "hunyuan-dense", "mistral": "llama"}
NEIGHBOURS = ("granite", "smollm3", "arcee")  # whose rows of Q and K are reordered
GGUF_TYPES = {name: dict(token_embd=Q.Q8_0, output=Q.F16, attn_q=Q.Q8_0, attn_k=Q.F16, attn_v=Q.Q8_0,
                         attn_qkv=Q.Q8_0, attn_output=Q.Q8_0, ffn_gate=Q.Q8_0, ffn_up=Q.Q4_1,
                         ffn_down=Q.Q8_0) for name in GGUF_CONFIGS | GGUF_LATER}
RESULTS = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
# Most choices of a greedy text must have a margin above a GPU's rounding: those of the seed in turn had not; nor had the
# scores of a router, of which two were closer than a part in a thousand.
GGUF_SEEDS = {"exaone4": 304, "gemma4": 300, "mixtral_factors": 409, "qwen3_next": 702, "qwen3_next_ssm_in": 702}
GGUF_NAMES = {
    "gemma2": RESULTS | {"pre_feedforward_layernorm": "ffn_norm"},
    "olmo2": RESULTS, "exaone4": RESULTS,
    "glm4": {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm",
             "mlp.gate_up_proj": "ffn_up"},
    "phi3": {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
    "starcoder2": {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
    "hunyuan-dense": {"self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"},
    "apertus": {"attention_layernorm": "attn_norm", "feedforward_layernorm": "ffn_norm"},
}
GGUF_NAMES["gemma3"] = GGUF_NAMES["gemma4"] = GGUF_NAMES["gemma2"]
LESS_ONE = ("gemma2", "gemma3_text", "nemotron", "qwen3_5_text", "qwen3_5_moe_text",
            "qwen3_next")  # directories have norms less 1


def add_longrope(out, config):
    rope, original = config["rope_scaling"], config["original_max_position_embeddings"]
    stretch = config["max_position_embeddings"] / original
    out.add_rope_scaling_orig_ctx_len(original)
    out.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(stretch) / np.log(original))))
    for length in ("long", "short"):
        out.add_tensor(f"rope_factors_{length}.weight", np.array(rope[f"{length}_factor"], np.float32))


def add_own_heads(out, config):
    """Writes sizes by kind of layer; of the larger heads, pairs that stay."""
    windowed = [kind == "sliding_attention" for kind in config["layer_types"]]
    rope, full = config["rope_parameters"], config["global_head_dim"]
    out.add_sliding_window_pattern(windowed)
    out.add_head_count_kv([config["num_key_value_heads" if own else "num_global_key_value_heads"] for own in windowed])
    out.add_key_length(full)
    out.add_value_length(full)
    out.add_key_length_swa(config["head_dim"])
    out.add_value_length_swa(config["head_dim"])
    out.add_shared_kv_layers(0)
    out.add_embedding_length_per_layer_input(0)
    out.add_rope_dimension_count(full)
    out.add_rope_dimension_count_swa(config["head_dim"])
    out.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    out.add_final_logit_softcapping(config["final_logit_softcapping"])
    turning = int(full * rope["full_attention"]["partial_rotary_factor"] / 2)
    out.add_tensor("rope_freqs.weight", np.array([1.0] * turning + [1e30] * (full // 2 - turning), np.float32))


def add_own_keys(out, config, weights):
    """The keys of GGUF that these families have."""
    kind, window = config["model_type"], config.get("sliding_window")
    if window and kind not in ("qwen2", "qwen2_moe"):  # whose windows are off
        out.add_sliding_window(window)
    if kind in ("olmo3", "exaone4"):
        types = config.get("layer_types") or [
            "full_attention" if i % 4 == 3 else "sliding_attention" for i in range(config["num_hidden_layers"])]
        out.add_sliding_window_pattern([t == "sliding_attention" for t in types])
    if (config.get("rope_scaling") or {}).get("type") == "longrope":
        add_longrope(out, config)
    if kind == "gemma4_text":
        add_own_heads(out, config)
    if kind == "apertus":
        for key in ("alpha_p", "alpha_n", "beta", "eps"):
            of_layers = [float(weights[f"model.layers.{i}.mlp.act_fn.{key}"].reshape(-1)[0])
                         for i in range(config["num_hidden_layers"])]
            getattr(out, f"add_xielu_{key}")(of_layers)
    if kind == "gemma2":
        out.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        out.add_final_logit_softcapping(config["final_logit_softcapping"])
    if kind in ("granite", "granitemoe"):
        out.add_embedding_scale(config["embedding_multiplier"])
        out.add_residual_scale(config["residual_multiplier"])
        out.add_attention_scale(config["attention_multiplier"])
        out.add_logit_scale(config["logits_scaling"])
    if kind in ("cohere", "cohere2"):
        out.add_logit_scale(config["logit_scale"])
