"""The configs of the tiny checkpoints that make_goldens.py makes, and what GGUF calls their parts."""

import delta_configs
import dense_configs
from families import VOCAB, Q, family, sizes

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
    # as OPT-350M: norms behind each part, projections around the layers
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
QWEN2_MOE = dict(rms_norm_eps=1e-4, rope_theta=1000000.0, use_sliding_window=False, sliding_window=128,
                 max_window_layers=2, tie_word_embeddings=False, num_experts=6, num_experts_per_tok=2,
                 norm_topk_prob=False, decoder_sparse_step=1, torch_dtype="bfloat16")
CONFIGS |= {
    "seed_oss": family("SeedOssForCausalLM", "seed_oss", **sizes(32, 72, 2, 4, 2, head_dim=12),
                       rms_norm_eps=1e-4, attention_bias=True, attention_out_bias=False, mlp_bias=False,
                       attention_dropout=0.1, residual_dropout=0.1, tie_word_embeddings=False,
                       dtype="bfloat16", rope_parameters=dict(rope_type="default", rope_theta=1e7)),
}
MIXTURES = ("granitemoe", "ernie4_5_moe", "mixtral", "qwen3_moe", "olmoe", "qwen2_moe", "glm4_moe", "minimax_m2", "dots1", "gpt_oss",
            "qwen3_5_moe_text", "qwen3_next")

def with_eyes(text, architecture="Mistral3ForConditionalGeneration", model_type="mistral3", vision="pixtral", **keys):
    """A decoder inside of a model that also sees, as Mistral and Google publish them."""
    text = {k: v for k, v in text.items() if k != "architectures"}
    vision = dict(model_type=vision, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                  num_attention_heads=1, image_size=8, patch_size=4)
    if model_type == "mistral3":
        keys |= dict(spatial_merge_size=2, vision_feature_layer=-1)
    return dict(architectures=[architecture], model_type=model_type, text_config=text, vision_config=vision,
                image_token_index=96, **keys)


EYES_TEXT = family("Ministral3ForCausalLM", "ministral3", **sizes(32, 40, 2, 2, 1, head_dim=24),
                   rms_norm_eps=1e-4, sliding_window=None, rope_parameters=dict(MINISTRAL))
CONFIGS |= {
    # Nobody says that the head is tied, which the wrapper's default is, and a head is stored.
    "mistral3": with_eyes(EYES_TEXT, dtype="bfloat16"),
    # The two configs contradict each other.
    "mistral3_tied": with_eyes(EYES_TEXT | dict(tie_word_embeddings=False), dtype="bfloat16",
                               tie_word_embeddings=True),
}

CONFIGS |= {
    # the last layer is dense
    "qwen2_moe": family("Qwen2MoeForCausalLM", "qwen2_moe", **sizes(32, 56, 3, 4, 2), **QWEN2_MOE,
                        moe_intermediate_size=24, shared_expert_intermediate_size=40,
                        mlp_only_layers=[2]),
}

def glm4_moe(layers, **keys):
    """The first layer is dense, and one after the last guesses further tokens."""
    return family("Glm4MoeForCausalLM", "glm4_moe", **sizes(64, 96, layers, 4, 2, head_dim=32),
                  rms_norm_eps=1e-4, rope_theta=10000.0, rope_scaling=None, partial_rotary_factor=0.5,
                  attention_bias=True, tie_word_embeddings=False, n_routed_experts=7,
                  num_experts_per_tok=3, moe_intermediate_size=32, n_shared_experts=1, n_group=1,
                  topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.5,
                  first_k_dense_replace=1, num_nextn_predict_layers=1, torch_dtype="bfloat16", **keys)


CONFIGS |= {
    "glm4_moe": glm4_moe(3, use_qk_norm=True),
}
MINIMAX = dict(rms_norm_eps=1e-4, rope_theta=10000.0, rotary_dim=16, num_local_experts=6,
               num_experts_per_tok=2, scoring_func="sigmoid", use_routing_bias=True, use_qk_norm=True,
               qk_norm_type="per_layer", shared_intermediate_size=0, attn_type_list=[1, 1],
               tie_word_embeddings=False, torch_dtype="bfloat16")
CONFIGS |= {
    "minimax_m2": family("MiniMaxM2ForCausalLM", "minimax_m2", **sizes(32, 40, 2, 4, 2, head_dim=24), **MINIMAX),
}

DOTS1 = dict(rms_norm_eps=1e-4, rope_theta=10000.0, rope_scaling=None, attention_bias=False,
             sliding_window=None, max_window_layers=2, n_routed_experts=7, num_experts_per_tok=3,
             n_shared_experts=2, n_group=1, topk_group=1, routed_scaling_factor=1.5,
             first_k_dense_replace=1, scoring_func="noaux_tc", tie_word_embeddings=False,
             torch_dtype="bfloat16")
CONFIGS |= {
    "dots1": family("Dots1ForCausalLM", "dots1", **sizes(32, 56, 3, 4, 2, head_dim=24), **DOTS1,
                    moe_intermediate_size=24, norm_topk_prob=False),
}

# Biases decide the choice now and then; the first layer is dense.
ERNIE = dict(rms_norm_eps=1e-4, rope_theta=500000.0, use_bias=False, tie_word_embeddings=True, moe_num_experts=7,
             moe_k=3, moe_layer_start_index=1, moe_layer_end_index=2, moe_layer_interval=1, moe_use_aux_free=True,
             num_nextn_predict_layers=1, torch_dtype="bfloat16")

def fp8_of(*left_out):
    return dict(quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[128, 128],
                modules_to_not_convert=["lm_head", *left_out])


def in_layers(layers, *modules):
    return [f"model.layers.{layer}.{module}" for layer in layers for module in modules]


# Blocks of 128 x 128 weights: two of them across, or one below the other, and in the experts' and
# the KV matrices parts of one. transformers 5.24 dequantises a part only where it is alone.
FP8_CONFIGS = {
    "qwen3_moe_fp8": family("Qwen3MoeForCausalLM", "qwen3_moe", **sizes(256, 40, 2, 2, 1, head_dim=32),
                            rms_norm_eps=1e-4, attention_bias=False, use_sliding_window=False,
                            sliding_window=None, tie_word_embeddings=False, dtype="bfloat16",
                            num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                            norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
                            rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
                            quantization_config=fp8_of(*in_layers(range(2), "mlp.gate"))),
    # A delta net's inputs are blocks one below the other; decays, rates and convolutions are left out.
    "qwen3_5_fp8": delta_configs.qwen3_5(
        sizes(128, 40, 4, 2, 1, head_dim=32), delta_configs.BLOCKS, layer_types=delta_configs.LAYERS[:4],
        quantization_config=fp8_of(*in_layers(range(3), "linear_attn.conv1d", "linear_attn.in_proj_a",
                                              "linear_attn.in_proj_b"))),
    "qwen3_next_fp8": delta_configs.qwen3_next(
        sizes(128, 40, 4, 2, 1, head_dim=32), delta_configs.BLOCKS, moe_intermediate_size=32,
        shared_expert_intermediate_size=24, mlp_only_layers=[],
        quantization_config=fp8_of(*in_layers(range(3), "linear_attn.conv1d", "linear_attn.in_proj_ba"),
                                   *in_layers(range(4), "mlp.gate", "mlp.shared_expert_gate"))),
}


def integers_of(form="pack-quantized", **weights):
    """The quantization_config of compressed-tensors for these arguments of weights."""
    return dict(quant_method="compressed-tensors", format=form, ignore=["lm_head"],
                config_groups=dict(group_0=dict(targets=["Linear"], weights=dict(type="int", **weights))))


# Matrices of layers in 4 or 8 bits that do not lie by rows.
INTEGER_CONFIGS = {
    "qwen2_awq": family("Qwen2ForCausalLM", "qwen2", **sizes(128, 256, 2, 4, 2),
                        rms_norm_eps=1e-4, rope_theta=1000000.0, use_sliding_window=False, sliding_window=128,
                        max_window_layers=2, tie_word_embeddings=True, torch_dtype="float16",
                        quantization_config=dict(quant_method="awq", bits=4, group_size=128, zero_point=True,
                                                 version="gemm", modules_to_not_convert=None)),
    "llama_gptq": family("LlamaForCausalLM", "llama", **sizes(64, 160, 2, 4, 2),
                         rms_norm_eps=1e-4, rope_theta=10000.0, rope_scaling=None, tie_word_embeddings=False,
                         attention_bias=False, mlp_bias=False, torch_dtype="float16",
                         quantization_config=dict(quant_method="gptq", bits=4, group_size=32, desc_act=False,
                                                  sym=False, checkpoint_format="gptq")),
    "mistral_packed": family("MistralForCausalLM", "mistral", **sizes(64, 96, 2, 4, 2, head_dim=24),
                             rms_norm_eps=1e-4, rope_theta=1000000.0, sliding_window=None,
                             tie_word_embeddings=False, torch_dtype="bfloat16",
                             quantization_config=integers_of(num_bits=4, strategy="group", group_size=32,
                                                             symmetric=False)),
    "llama_packed_8": family("LlamaForCausalLM", "llama", **sizes(64, 96, 2, 4, 4),
                             rms_norm_eps=1e-4, rope_theta=10000.0, rope_scaling=None,
                             tie_word_embeddings=False, attention_bias=False, mlp_bias=False,
                             torch_dtype="bfloat16",
                             quantization_config=integers_of(num_bits=8, strategy="channel", symmetric=True)),
    "qwen3_whole": family("Qwen3ForCausalLM", "qwen3", **sizes(64, 96, 2, 4, 2, head_dim=32),
                          rms_norm_eps=1e-4, rope_theta=1000000.0, rope_scaling=None, attention_bias=False,
                          use_sliding_window=False, sliding_window=None, max_window_layers=2,
                          tie_word_embeddings=True, torch_dtype="bfloat16",
                          quantization_config=integers_of("int-quantized", num_bits=8, strategy="channel",
                                                          symmetric=True)),
    "llama_order": family("LlamaForCausalLM", "llama", **sizes(64, 160, 2, 4, 2),
                          rms_norm_eps=1e-4, rope_theta=10000.0, rope_scaling=None, tie_word_embeddings=False,
                          attention_bias=False, mlp_bias=False, torch_dtype="float16",
                          quantization_config=dict(quant_method="gptq", bits=4, group_size=32, desc_act=True,
                                                   sym=False, checkpoint_format="gptq_v2")),
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
GGUF_CONFIGS |= {
    "qwen2_moe": family("Qwen2MoeForCausalLM", "qwen2_moe", **sizes(64, 96, 2, 4, 2), **QWEN2_MOE,
                        moe_intermediate_size=32, shared_expert_intermediate_size=64,
                        mlp_only_layers=[]),
}
GGUF_CONFIGS |= {
    "glm4_moe": glm4_moe(2, use_qk_norm=False) | dict(n_shared_experts=2),
    "minimax_m2": family("MiniMaxM2ForCausalLM", "minimax_m2", **sizes(64, 64, 2, 4, 2, head_dim=32), **MINIMAX),
}
GGUF_CONFIGS |= {
    "dots1": family("Dots1ForCausalLM", "dots1", **sizes(64, 96, 2, 4, 2, head_dim=32), **DOTS1,
                    moe_intermediate_size=32, norm_topk_prob=True),
}
GRANITE_MOE = dict(rms_norm_eps=1e-4, attention_bias=False, rope_theta=10000.0, rope_scaling=None,
                   tie_word_embeddings=True, embedding_multiplier=6.0, attention_multiplier=0.3,
                   residual_multiplier=0.7, logits_scaling=0.6, torch_dtype="bfloat16")
# A text longer than the window and than `original`, and a ramp of yarn between whole pairs. GGUF has
# no key for the gating's numbers, so that they are transformers' defaults.
GPT_OSS = dict(rms_norm_eps=1e-4, sliding_window=8, attention_bias=True, tie_word_embeddings=False,
               rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=4.0,
                                    beta_slow=1.0, truncate=False, original_max_position_embeddings=64))
GGUF_CONFIGS |= {
    "gpt_oss": family("GptOssForCausalLM", "gpt_oss", **sizes(32, 24, 3, 4, 2, head_dim=24), **GPT_OSS,
                      num_local_experts=5, num_experts_per_tok=2),
    "gpt_oss_mxfp4": family("GptOssForCausalLM", "gpt_oss", **sizes(64, 32, 2, 4, 1, head_dim=32), **GPT_OSS,
                            num_local_experts=6, num_experts_per_tok=3),
}
# As published: experts in MXFP4, gate and up in one tensor, whose rows take turns.
MXFP4_CONFIGS = {
    "gpt_oss": family("GptOssForCausalLM", "gpt_oss", **sizes(64, 96, 3, 4, 2, head_dim=32), **GPT_OSS,
                      num_local_experts=5, num_experts_per_tok=2, hidden_act="silu", swiglu_limit=7.0,
                      layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                      torch_dtype="bfloat16",
                      quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=[
                          "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])),
}
# Both writers' NVFP4: compressed-tensors', and ModelOpt's as config.json has it.
NVFP4 = dict(rms_norm_eps=1e-4, rope_theta=10000.0, rope_scaling=None, tie_word_embeddings=False, attention_bias=False,
             mlp_bias=False, torch_dtype="bfloat16")
NVFP4_CONFIGS = {
    "llama_nvfp4": family("LlamaForCausalLM", "llama", **sizes(256, 256, 1, 4, 1), **NVFP4, quantization_config=dict(
        quant_method="compressed-tensors", format="nvfp4-pack-quantized", ignore=["lm_head"],
        config_groups=dict(group_0=dict(targets=["Linear"], weights=dict(
            num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True))))),
    "llama_modelopt": family("LlamaForCausalLM", "llama", **sizes(256, 256, 1, 4, 1), **NVFP4, quantization_config=dict(
        quant_method="modelopt", quant_algo="NVFP4", ignore=["lm_head"])),
}


def bitsandbytes(quant_type, doubled):
    return dict(quant_method="bitsandbytes", load_in_4bit=True, load_in_8bit=False, bnb_4bit_quant_type=quant_type,
                bnb_4bit_use_double_quant=doubled, bnb_4bit_compute_dtype="bfloat16", bnb_4bit_quant_storage="uint8")


TABLE_CONFIGS = {
    "llama_nf4": family("LlamaForCausalLM", "llama", **sizes(128, 192, 2, 4, 2), rms_norm_eps=1e-4, rope_theta=10000.0,
                        rope_scaling=None, tie_word_embeddings=False, attention_bias=False, mlp_bias=False,
                        torch_dtype="bfloat16", quantization_config=bitsandbytes("nf4", True)),
    "qwen2_fp4": family("Qwen2ForCausalLM", "qwen2", **sizes(64, 128, 2, 4, 2), rms_norm_eps=1e-4, rope_theta=1000000.0,
                        use_sliding_window=False, tie_word_embeddings=False, torch_dtype="bfloat16",
                        quantization_config=bitsandbytes("fp4", False)),
}
# Rows of 256, which blocks by a grid have, so that each type of these meets a use. Last, for the seeds of the others.
LLAMA_IQ = family("LlamaForCausalLM", "llama", **sizes(256, 256, 2, 4, 1), rms_norm_eps=1e-4, rope_theta=10000.0,
                  tie_word_embeddings=False)
# NVFP4 with factors of the products, for each expert its own.
MIXTRAL_FACTORS = family("MixtralForCausalLM", "mixtral", **sizes(64, 64, 2, 4, 2), rms_norm_eps=1e-4, rope_theta=1000000.0,
                         sliding_window=None, tie_word_embeddings=False, num_local_experts=5, num_experts_per_tok=2)
# What GGUF calls an architecture, where that is not its model_type.
GGUF_ARCHITECTURES = {"ministral3": "mistral3", "mixtral": "llama", "qwen3_moe": "qwen3moe",
                      "qwen2_moe": "qwen2moe", "glm4_moe": "glm4moe", "minimax_m2": "minimax-m2",
                      "gpt_oss": "gpt-oss", "ernie4_5_moe": "ernie4_5-moe"}
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
                          attn_output=Q.Q8_0, ffn_gate_inp=Q.F32, ffn_gate_inp_shexp=Q.F32,
                          ffn_gate_shexp=Q.Q8_0, ffn_up_shexp=Q.Q4_0, ffn_down_shexp=Q.Q8_0, **experts)
               for name, experts in {
                   "mixtral": dict(ffn_gate_exps=Q.Q4_0, ffn_up_exps=Q.Q4_0, ffn_down_exps=Q.Q8_0),
                   "qwen3_moe": dict(ffn_gate_exps=Q.Q8_0, ffn_up_exps=Q.F16, ffn_down_exps=Q.Q4_1),
                   "qwen2_moe": dict(ffn_gate_exps=Q.Q4_1, ffn_up_exps=Q.Q8_0, ffn_down_exps=Q.Q4_0),
                   "minimax_m2": dict(ffn_gate_exps=Q.Q4_0, ffn_up_exps=Q.Q8_0, ffn_down_exps=Q.Q4_1),
                   "dots1": dict(ffn_gate_exps=Q.Q8_0, ffn_up_exps=Q.Q8_0, ffn_down_exps=Q.Q4_0,
                                 ffn_gate=Q.Q4_1, ffn_up=Q.Q8_0, ffn_down=Q.Q8_0),
                   "glm4_moe": dict(ffn_gate_exps=Q.Q8_0, ffn_up_exps=Q.Q4_1, ffn_down_exps=Q.Q8_0,
                                    ffn_gate=Q.Q8_0, ffn_up=Q.Q4_0, ffn_down=Q.F16),
                   "granitemoe": dict(ffn_gate_exps=Q.Q8_0, ffn_up_exps=Q.Q4_0, ffn_down_exps=Q.Q8_0),
                   "ernie4_5_moe": dict(ffn_gate_exps=Q.Q8_0, ffn_up_exps=Q.Q4_1, ffn_down_exps=Q.Q8_0,
                                        ffn_gate=Q.Q8_0, ffn_up=Q.Q4_0, ffn_down=Q.F16),
                   "olmoe": dict(ffn_gate_exps=Q.BF16, ffn_up_exps=Q.Q8_0, ffn_down_exps=Q.F32)}.items()}
GGUF_TYPES |= {name: dict(token_embd=Q.BF16, output=Q.BF16, attn_q=Q.F32, attn_k=Q.BF16, attn_v=Q.F32,
                          attn_output=Q.BF16, ffn_gate_inp=Q.F32, ffn_gate_exps=experts,
                          ffn_up_exps=Q.BF16 if experts == Q.F32 else experts, ffn_down_exps=experts)
               for name, experts in (("gpt_oss", Q.F32), ("gpt_oss_mxfp4", Q.MXFP4))}
GGUF_TYPES["llama_iq"] = dict(token_embd=Q.IQ3_S, output=Q.IQ2_S, attn_q=Q.IQ2_XXS, attn_k=Q.IQ3_XXS, attn_v=Q.IQ2_XS,
                              attn_output=Q.NVFP4, ffn_gate=Q.IQ1_S, ffn_up=Q.IQ1_M, ffn_down=Q.IQ2_S)
GGUF_TYPES["mixtral_factors"] = dict(token_embd=Q.Q8_0, output=Q.F16, attn_q=Q.NVFP4, attn_k=Q.NVFP4, attn_v=Q.NVFP4,
                                     attn_output=Q.NVFP4, ffn_gate_inp=Q.F32, ffn_gate_exps=Q.NVFP4,
                                     ffn_up_exps=Q.NVFP4, ffn_down_exps=Q.NVFP4)
GGUF_TYPES["seed_oss"] = dict(GGUF_TYPES["ministral3"], output=Q.F16)
GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps", "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.router": "ffn_gate_inp",
}


GGUF_NAMES |= {f"mlp.{shared}.{part}_proj": f"ffn_{part}_shexp"
               for shared in ("shared_expert", "shared_experts") for part in ("gate", "up", "down")}
CONFIGS |= dense_configs.CONFIGS
GGUF_CONFIGS |= dense_configs.GGUF_CONFIGS | {"llama_iq": LLAMA_IQ, "mixtral_factors": MIXTRAL_FACTORS}
GGUF_ARCHITECTURES |= dense_configs.GGUF_ARCHITECTURES
GGUF_TYPES |= dense_configs.GGUF_TYPES
NEIGHBOURS += dense_configs.NEIGHBOURS
CONFIGS["gemma3_eyes"] = with_eyes(dense_configs.gemma3(sizes(32, 40, 7, 2, 1, head_dim=20), 30),
                                   "Gemma3ForConditionalGeneration", "gemma3", "siglip_vision_model",
                                   tie_word_embeddings=True, mm_tokens_per_image=4, boi_token_index=94,
                                   eoi_token_index=95, dtype="bfloat16")
CONFIGS |= {
    "granitemoe": family("GraniteMoeForCausalLM", "granitemoe", **sizes(32, 40, 2, 4, 2), **GRANITE_MOE,
                         num_local_experts=5, num_experts_per_tok=2),
    "ernie4_5_moe": family("Ernie4_5_MoeForCausalLM", "ernie4_5_moe", **sizes(32, 56, 4, 4, 2), **ERNIE,
                           moe_intermediate_size=24, moe_num_shared_experts=1),
}
NEIGHBOURS += ("granitemoe",)
GGUF_CONFIGS |= {
    "granitemoe": family("GraniteMoeForCausalLM", "granitemoe", **sizes(64, 32, 2, 2, 1), **GRANITE_MOE,
                         num_local_experts=6, num_experts_per_tok=2),
    "ernie4_5_moe": family("Ernie4_5_MoeForCausalLM", "ernie4_5_moe", **sizes(64, 96, 2, 4, 2), **ERNIE,
                           moe_intermediate_size=32, moe_num_shared_experts=2) | dict(moe_layer_end_index=-1),
}

CONFIGS |= dense_configs.LATER
CONFIGS["gemma4_eyes"] = with_eyes(
    dense_configs.gemma4("", "gemma4_unified_text", sizes(32, 40, 7, 2, 2, head_dim=12), global_head_dim=20),
    "Gemma4UnifiedForConditionalGeneration", "gemma4_unified", tie_word_embeddings=True, dtype="bfloat16") | dict(
        vision_config=dict(model_type="gemma4_unified_vision", patch_size=2, pooling_kernel_size=2, mm_embed_dim=8,
                           mm_posemb_size=4, output_proj_dims=32))
GGUF_CONFIGS |= dense_configs.GGUF_LATER

CONFIGS |= delta_configs.CONFIGS
GGUF_CONFIGS |= delta_configs.GGUF_CONFIGS
GGUF_ARCHITECTURES |= delta_configs.GGUF_ARCHITECTURES
GGUF_TYPES |= delta_configs.GGUF_TYPES
