#!/usr/bin/env python3
"""Makes the tiny checkpoints of this directory and their goldens (NAME.golden.json).

  make_goldens.py [NAME...]   (needs what requirements.txt names; about a minute)

Each family of decoder gets a random checkpoint with a real config of its kind, in the spelling of
transformers 4 or 5; formats get theirs: shards, odd offsets, GGUF with every tensor type. Weights
are random (norms and biases too) and large enough that a wrong equation moves the logits far beyond
the tolerance, which tests/model/golden_test.cc checks. Deterministic for given library versions.
"""

import copy
import json
import pathlib
import struct
import sys

import gguf
import numpy as np
import safetensors.torch
import torch
import transformers

import delta_configs
import dense_configs
import golden
import random_blocks
from configs import (CONFIGS, FP8_CONFIGS, GGUF_ARCHITECTURES, GGUF_CONFIGS, GGUF_NAMES, GGUF_TYPES, INTEGER_CONFIGS,
                     MIXTURES, MXFP4_CONFIGS, NEIGHBOURS, NVFP4_CONFIGS, Q, TABLE_CONFIGS, VOCAB)
from fp8_form import as_fp8
from integer_form import as_integers
from mxfp4_form import as_mxfp4
from nvfp4_form import as_nvfp4
from table_form import as_tables

HERE = pathlib.Path(__file__).parent
PROMPT, NEW_TOKENS = 40, 24
ROWS = [0, 1, 7, 18, 31, PROMPT - 1]
# Of texts over several of the states that recurrent layers keep, and around their ends.
LONG, LONG_ROWS = 300, [0, 5, 63, 64, 127, 128, 191, 192, 255, 256, 299]


def prompt_of(seed, count=PROMPT):
    """Every other token is one of ten, so attention has repetitions to find."""
    rng = np.random.default_rng([seed, 1])
    ids = rng.integers(0, VOCAB, count)
    ids[::2] = rng.integers(10, 20, count // 2)
    return ids.tolist()


def layers_of(config):
    return config.get("num_hidden_layers") or config.get("num_layers")


def random_weights(config, seed):
    """Float32 arrays by Hugging Face name."""
    rng = np.random.default_rng([seed, 0])
    hf = transformers.AutoConfig.for_model(**copy.deepcopy(config))  # which writes into what it is given
    with torch.device("meta"):
        empty = golden.auto_class(hf).from_config(hf)
    weights = {}
    for name, tensor in sorted(empty.state_dict().items()):
        shape = tuple(tensor.shape)
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        normal = rng.standard_normal(shape)
        if delta_configs.value_of(name, normal) is not None:
            value = delta_configs.value_of(name, normal)
        elif "mlp.experts" in name and config["model_type"] == "gpt_oss":
            value = of_gpt_oss(name, normal)
        elif "moe_statics" in name:
            value = 0.1 * normal  # as large as scores, which are parts of one
        elif name.endswith("self_attn.sinks"):
            value = 1.0 + normal
        elif name.endswith("layer_scalar"):
            value = 1.0 + 0.3 * normal
        elif ".act_fn." in name:
            value = dense_configs.XIELU.get(name.rpartition(".")[2], 0.0) + 0.3 * normal
            value = np.minimum(value, -0.01) if name.endswith(".eps") else value
        elif name.endswith(".weight") and (len(shape) == 1 or name.endswith("_norm.weight")):
            text = config.get("text_config", config)
            value = (text["model_type"] not in dense_configs.LESS_ONE) + 0.3 * normal
            if text["model_type"].startswith("gemma4") and ("q_norm" in name or "k_norm" in name):
                value *= shape[-1] ** -0.25  # scores, which have no factor, are as large as other families'
        elif name.endswith(".bias"):
            value = 0.5 * normal
        elif "embed" in name:
            value = 0.25 * normal
        else:
            value = 1.4 * normal / np.sqrt(shape[-1])
        weights[name] = np.asarray(value, np.float32)
    return weights


def of_gpt_oss(name, normal):
    """Matrices [experts, in, out] and biases: large enough that some values are cut at either limit."""
    if name.endswith("_bias"):
        return 0.5 * normal
    return (3.0 if "gate_up" in name else 0.7) * normal / np.sqrt(normal.shape[1])


def split_experts(weights):
    """transformers has gate and up of all experts in one tensor; files have them apart."""
    split = {}
    for name, value in weights.items():
        stem, _, part = name.partition("mlp.experts.")
        stem += "mlp.experts."
        if part == "gate_up_proj_bias":  # of GPT-OSS, where gate and up take turns
            split |= {stem + "gate_proj.bias": value[:, ::2], stem + "up_proj.bias": value[:, 1::2]}
        elif part == "gate_up_proj" and name + "_bias" in weights:
            rows = value.swapaxes(1, 2)
            split |= {stem + "gate_proj.weight": rows[:, ::2], stem + "up_proj.weight": rows[:, 1::2]}
        elif part == "down_proj_bias":
            split[stem + "down_proj.bias"] = value
        elif part == "down_proj" and name + "_bias" in weights:
            split[stem + "down_proj.weight"] = value.swapaxes(1, 2)
        elif name.endswith("mlp.experts.gate_up_proj"):
            gate, up = np.split(value, 2, axis=1)
            split[name.replace("gate_up_proj", "gate_proj.weight")] = gate
            split[name.replace("gate_up_proj", "up_proj.weight")] = up
        else:
            split[name + ".weight" if "mlp.experts." in name else name] = value
    return split


def join_experts(weights):
    if any(name.endswith("mlp.experts.gate_proj.bias") for name in weights):
        return join_gpt_oss(weights)
    joined = {k: v for k, v in weights.items() if "mlp.experts." not in k}
    for name, gate in weights.items():
        if name.endswith("mlp.experts.gate_proj.weight"):
            stem = name.removesuffix("gate_proj.weight")
            joined[stem + "gate_up_proj"] = np.concatenate([gate, weights[stem + "up_proj.weight"]], axis=1)
            joined[stem + "down_proj"] = weights[stem + "down_proj.weight"]
    return joined


def join_gpt_oss(weights):
    joined = {k: v for k, v in weights.items() if "mlp.experts." not in k}
    turns = lambda gate, up: np.stack([gate, up], axis=2).reshape(gate.shape[0], -1, *gate.shape[2:])
    for name, gate in weights.items():
        stem, _, kind = name.partition("gate_proj.")
        if stem.endswith("mlp.experts."):
            end, swap = ("", lambda w: w.swapaxes(1, 2)) if kind == "weight" else ("_bias", lambda w: w)
            joined[stem + "gate_up_proj" + end] = swap(turns(gate, weights[stem + "up_proj." + kind]))
            joined[stem + "down_proj" + end] = swap(weights[stem + "down_proj." + kind])
    return joined


# What published files of Granite's and Ernie's mixtures call what transformers 5 has under other names.
PUBLISHED = {"block_sparse_moe.experts.gate_up_proj": "block_sparse_moe.input_linear.weight",
             "block_sparse_moe.experts.down_proj": "block_sparse_moe.output_linear.weight",
             "block_sparse_moe.router.weight": "block_sparse_moe.router.layer.weight",
             "mlp.gate.moe_statics.": "mlp.moe_statics."}


def as_published(config, weights):
    """Each expert's matrices under names of their own, but for Granite's."""
    for ours, theirs in PUBLISHED.items():
        weights = {name.replace(ours, theirs): value for name, value in weights.items()}
    names = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    mixtral, published = config["model_type"] in ("mixtral", "minimax_m2"), {}
    for name, value in split_experts(weights).items():
        stem, _, matrix = name.removesuffix(".weight").rpartition(".")
        if not stem.endswith("mlp.experts"):
            published[name.replace("mlp.", "block_sparse_moe.") if mixtral else name] = value
            continue
        for expert, of_expert in enumerate(value):
            stored = stem.replace("mlp.", "block_sparse_moe.") if mixtral else stem
            matrix_name = names[matrix] if mixtral else matrix
            published[f"{stored}.{expert}.{matrix_name}.weight"] = of_expert
    return {stored_name(name, config): value for name, value in published.items()}


def stored_name(name, config):
    """Returns the name that published files have for a tensor of transformers 5."""
    if config["model_type"] == "exaone":
        for ours, theirs in dense_configs.EXAONE_NAMES.items():
            name = name.replace(ours, theirs)
    if "text_config" not in config or config["model_type"].startswith("gemma4"):  # whose names are the newer ones
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


def gguf_name(name, own=None):
    """'model.layers.3.mlp.up_proj.weight' -> 'blk.3.ffn_up.weight'."""
    if delta_configs.gguf_name(name):
        return delta_configs.gguf_name(name)
    stem, _, kind = name.rpartition(".")
    if kind == "e_score_correction_bias":
        return f"blk.{name.split('.')[2]}.exp_probs_b.bias"
    if kind == "sinks":
        return f"blk.{name.split('.')[2]}.attn_sinks.weight"
    if kind == "layer_scalar":
        return f"blk.{name.split('.')[2]}.layer_output_scale.weight"
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        return f"blk.{layer}.{(own or {}).get(part) or GGUF_NAMES[part]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


def to_pairs(w, heads):
    """Rows of each head from halves (Hugging Face) to neighbours (llama files of GGUF)."""
    return w.reshape(heads, 2, -1, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


def to_halves(w, heads):
    return w.reshape(heads, -1, 2, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


def add_router_keys(out, config):
    if config["model_type"] == "ernie4_5_moe":
        out.add_expert_shared_count(config["moe_num_shared_experts"])
        out.add_interleave_moe_layer_step(config["moe_layer_interval"])
        out.add_leading_dense_block_count(config["moe_layer_start_index"])
    if config["model_type"] not in golden.SIGMOIDS:
        return
    out.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if "routed_scaling_factor" in config:
        out.add_expert_weights_norm(config["norm_topk_prob"])
        out.add_expert_weights_scale(config["routed_scaling_factor"])
    if "n_shared_experts" in config:
        out.add_expert_shared_count(config["n_shared_experts"])
        out.add_leading_dense_block_count(config["first_k_dense_replace"])


def with_draft_layers(config, tensors):
    """A part of what files have of layers that guess further tokens, which nobody reads."""
    last, drafts = layers_of(config), config.get("num_nextn_predict_layers", 0)
    if config["model_type"] in delta_configs.KINDS:
        return tensors | {"mtp.fc.weight": torch.ones(config["hidden_size"])}
    if config["model_type"] == "ernie4_5_moe":
        return tensors | {"model.mtp_emb_norm.0.weight": torch.ones(config["hidden_size"])}
    return tensors | {f"model.layers.{last + i}.{name}": torch.ones(config["hidden_size"])
                      for i in range(drafts)
                      for name in ("enorm.weight", "input_layernorm.weight", "mlp.gate.weight")}


def write_gguf(path, config, weights, types):
    """Writes the file; returns the weights it stores, dequantised, under Hugging Face names."""
    architecture = GGUF_ARCHITECTURES.get(config["model_type"], config["model_type"])
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    theta = (rope or {}).get("rope_theta") or config.get("rope_theta", 10000.0)
    theta = rope["full_attention"]["rope_theta"] if "full_attention" in (rope or {}) else theta
    if (rope or {}).get("alpha"):  # of Hunyuan
        theta *= rope["alpha"] ** (head_dim / (head_dim - 2))
    out = gguf.GGUFWriter(path, architecture)
    out.add_name(f"tiny random {architecture}")
    drafts = 0 if architecture == "ernie4_5-moe" else config.get("num_nextn_predict_layers", 0)
    out.add_block_count(layers_of(config) + drafts)
    if drafts:
        out.add_nextn_predict_layers(drafts)
        for name in ("attn_norm.weight", "nextn.enorm.weight"):
            out.add_tensor(f"blk.{layers_of(config)}.{name}",
                           np.ones(config["hidden_size"], np.float32))
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    if "intermediate_size" in config:
        out.add_feed_forward_length(config["intermediate_size"])
    if config["model_type"] in delta_configs.KINDS:
        delta_configs.add_keys(out, config)
    out.add_head_count(heads)
    if architecture != "gemma4":  # whose layers differ in them
        out.add_head_count_kv(kv_heads)
        out.add_key_length(head_dim)
        out.add_value_length(head_dim)
    if "rms_norm_eps" in config or "layer_norm_epsilon" in config:
        out.add_layer_norm_rms_eps(config.get("rms_norm_eps") or config["layer_norm_epsilon"])
    else:
        out.add_layer_norm_eps(next(config[key] for key in golden.EPSILONS if key in config))
    dense_configs.add_own_keys(out, config, weights)
    if config["model_type"] in MIXTURES:
        counts = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
        out.add_expert_count(next(config[key] for key in counts if key in config))
        out.add_expert_used_count(config.get("num_experts_per_tok") or config["moe_k"])
        if "moe_intermediate_size" in config or architecture == "gpt-oss":
            out.add_expert_feed_forward_length(config.get("moe_intermediate_size") or config["intermediate_size"])
        if architecture == "gpt-oss":
            out.add_sliding_window(config["sliding_window"])
        if "shared_expert_intermediate_size" in config:
            out.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    add_router_keys(out, config)
    out.add_rope_freq_base(theta)
    share = config.get("partial_rotary_factor") or (rope or {}).get("partial_rotary_factor")
    if architecture in NEIGHBOURS or share or config["model_type"] in golden.SIGMOIDS:
        out.add_rope_dimension_count(config.get("rotary_dim") or int(head_dim * (share or 1)))
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("default")
    out.add_token_list([chr(33 + i) if i < 94 else f"<{i}>" for i in range(VOCAB)])
    out.add_token_types([1 if i < 94 else 3 for i in range(VOCAB)])
    out.add_token_merges([])
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    kind = rope and rope.get("rope_type")
    if kind == "yarn":
        out.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        out.add_rope_scaling_factor(rope["factor"])
        out.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        out.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        out.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
        if "mscale_all_dim" in rope:
            out.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
            out.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    elif kind == "linear":
        out.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        out.add_rope_scaling_factor(rope["factor"])
    elif kind == "llama3":
        frequency, _ = golden.exact.inverse_frequencies(head_dim, theta, rope)
        plain, _ = golden.exact.inverse_frequencies(head_dim, theta)
        out.add_tensor("rope_freqs.weight", (plain / frequency).astype(np.float32))
    stored, shapes = {}, {}
    own_name = "block_sparse_moe." if any("block_sparse_moe." in name for name in weights) else "mlp."
    weights = delta_configs.as_converted(weights, config, path.stem.endswith("_ssm_in"))
    for name, w in split_experts({k.replace(own_name, "mlp."): v for k, v in weights.items()}).items():
        shapes[name] = w.shape
        w = w.reshape(-1) if "moe_statics" in name else w
        if ".act_fn." in name:  # which are no tensors there
            stored[name] = w
            continue
        target = gguf_name(name, (dense_configs.GGUF_NAMES | delta_configs.GGUF_NAMES).get(architecture))
        w = delta_configs.in_turns(name, w, config)
        if name.endswith("conv1d.weight"):
            w = w[:, 0]
        if name.endswith("A_log"):
            w = -np.exp(w)
        if architecture in ("seed_oss", "glm4moe", "gpt-oss"):
            target = target.replace("ffn_norm", "post_attention_norm")
        permuted = heads if "q_proj" in name else kv_heads if "k_proj" in name else 0
        permuted = permuted if architecture in NEIGHBOURS else 0
        is_matrix = w.ndim > 1 and not name.endswith((".bias", "_norm.weight", "conv1d.weight"))
        kind = types[target.split(".")[-2]] if is_matrix else Q.F32
        # Converters add 1 to norms that directories have less 1.
        plus = float(config["model_type"] in dense_configs.LESS_ONE and name.endswith("norm.weight")
                     and not delta_configs.is_plain(name))
        raw = random_blocks.quantize(target, to_pairs(w, permuted) if permuted else w + np.float32(plus), kind)
        raw = raw.reshape(-1) if "ffn_gate_inp_shexp" in target else raw
        out.add_tensor(target, raw, raw_dtype=kind)
        back = gguf.quants.dequantize(raw, kind).astype(np.float32).reshape(shapes[name]) - np.float32(plus)
        if path.stem.endswith("_factors") and kind == Q.NVFP4:  # which products are multiplied by
            factors = np.array([0.6, 1.7, 0.9, 1.3, 0.8], np.float32)[:len(w) if w.ndim == 3 else 1]
            out.add_tensor(target.replace(".weight", ".scale"), factors)
            out.add_tensor(target.replace(".weight", ".input_scale"), np.ones(1, np.float32))
            back = back * factors.reshape(-1, *[1] * (w.ndim - 1))
        back = np.log(-back) if name.endswith("A_log") else back
        back = delta_configs.in_turns(name, back, config, back=True)
        stored[name] = to_halves(back, permuted) if permuted else back
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    stored = delta_configs.as_stored(join_experts(stored), config)
    return {k.replace("mlp.", own_name): v for k, v in stored.items()}


def reference_of(config, weights):
    """The library's model of these float32 weights."""
    hf = transformers.AutoConfig.for_model(**copy.deepcopy(config))
    hf._attn_implementation = hf._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(hf, dtype=torch.float32).eval()
    state = {k: torch.from_numpy(v) for k, v in weights.items()}
    missing, extra = model.load_state_dict(state, strict=False)
    assert not extra and set(missing) <= {"lm_head.weight"}, (missing, extra)
    model.tie_weights()
    return model


def make(name, model, checkpoints, seed, count=PROMPT, rows=tuple(ROWS)):
    print(name)
    result = golden.measure(model, prompt_of(seed, count), list(rows), NEW_TOKENS, samples=32)
    golden.save(HERE / f"{name}.golden.json", {"checkpoints": checkpoints} | result)


def main():
    torch.set_num_threads(1)
    wanted = sys.argv[1:]
    for seed, (name, config) in enumerate(CONFIGS.items()):
        if wanted and name not in wanted:
            continue
        dtype = getattr(torch, config.get("dtype") or config["torch_dtype"])
        tensors = {k: torch.from_numpy(np.array(v, order="C")).to(dtype)
                   for k, v in as_published(config, random_weights(config, seed)).items()}
        write_directory(HERE / name, config, with_draft_layers(config, tensors))
        checkpoints = [name]
        if name == "llama2":
            write_shards(HERE / "llama2_shards", config, tensors)
            write_odd(HERE / "llama2_odd", config, tensors)
            checkpoints += ["llama2_shards", "llama2_odd"]
        make(name, golden.load(HERE / name), checkpoints, seed)
        if name in ("qwen3_5", "qwen3_next"):
            make(f"{name}_long", golden.load(HERE / name), checkpoints, seed, LONG, LONG_ROWS)
    for seed, (name, config) in enumerate(FP8_CONFIGS.items(), start=200):
        if wanted and name not in wanted:
            continue
        tensors = {k: torch.from_numpy(np.ascontiguousarray(v)).to(torch.bfloat16)
                   for k, v in as_published(config, random_weights(config, seed)).items()}
        write_directory(HERE / name, config, as_fp8(tensors, config["quantization_config"]["modules_to_not_convert"]))
        make(name, golden.load(HERE / name), [name], seed)
    for seed, (name, config) in enumerate(INTEGER_CONFIGS.items(), start=300):
        if wanted and name not in wanted:
            continue
        scheme = config["quantization_config"]
        plain = {key: value for key, value in config.items() if key != "quantization_config"}
        tensors, weights = as_integers(random_weights(plain, seed), scheme, getattr(torch, config["torch_dtype"]))
        write_directory(HERE / name, config, tensors)
        make(name, reference_of(plain, weights), [name], seed)
    for seed, (name, config) in enumerate(MXFP4_CONFIGS.items(), start=400):
        if wanted and name not in wanted:
            continue
        plain = {key: value for key, value in config.items() if key != "quantization_config"}
        tensors, weights = as_mxfp4(random_weights(plain, seed))
        write_directory(HERE / name, config, tensors)
        make(name, reference_of(plain, weights), [name], seed)
    for seed, (name, config) in enumerate(NVFP4_CONFIGS.items(), start=500):
        if wanted and name not in wanted:
            continue
        plain = {key: value for key, value in config.items() if key != "quantization_config"}
        tensors, weights = as_nvfp4(random_weights(plain, seed), name == "llama_nvfp4")
        write_directory(HERE / name, config, tensors)
        make(name, reference_of(plain, weights), [name], seed)
    for seed, (name, config) in enumerate(TABLE_CONFIGS.items(), start=600):
        if wanted and name not in wanted:
            continue
        plain = {key: value for key, value in config.items() if key != "quantization_config"}
        tensors, weights = as_tables(random_weights(plain, seed), config["quantization_config"])
        write_directory(HERE / name, config, tensors)
        make(name, reference_of(plain, weights), [name], seed)
    for seed, (name, config) in enumerate(GGUF_CONFIGS.items(), start=100):
        if wanted and f"{name}_gguf" not in wanted:
            continue
        seed = dense_configs.GGUF_SEEDS.get(name, seed)
        file = f"{name}.gguf"
        stored = write_gguf(HERE / file, config, random_weights(config, seed), GGUF_TYPES[name])
        make(f"{name}_gguf", reference_of(config, stored), [file], seed)


if __name__ == "__main__":
    main()
