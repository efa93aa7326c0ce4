#!/usr/bin/env python3
"""Makes smollm2_135m.golden.json and prompts_128.json from SmolLM2-135M-Instruct.Q4_1.gguf.

  make_smollm2.py MODEL.gguf        (needs what make_goldens.py needs, and tokenizers; minutes)

The file's weights are dequantised exactly (Q4_1 and Q8_0 to float32), so the reference is the
library's float32 arithmetic on the stored weights. The texts are prompts.txt: one prompt a line,
openings of well-known works in the public domain.
"""

import json
import pathlib
import re
import sys

import gguf
import numpy as np
import tokenizers
import torch

import golden
import make_goldens

HERE = pathlib.Path(__file__).parent
PROMPT, NEW_TOKENS = 60, 32
ROWS = [0, 1, 3, 9, 20, 33, 47, PROMPT - 1]
BEST, SAMPLED = 20, 200


def hugging_face_name(name):
    back = {v: k for k, v in make_goldens.GGUF_NAMES.items()}
    if name.startswith("blk."):
        _, layer, part, kind = name.split(".")
        return f"model.layers.{layer}.{back[part]}.{kind}"
    stem, kind = name.split(".")
    return f"{back[stem]}.{kind}"


def read(path):
    """(config, float32 weights, tokenizer) of the file."""
    reader = gguf.GGUFReader(path)
    value = lambda key: reader.fields[key].contents()
    heads = value("llama.attention.head_count")
    kv_heads = value("llama.attention.head_count_kv")
    config = make_goldens.family(
        "LlamaForCausalLM", "llama", **make_goldens.sizes(
            value("llama.embedding_length"), value("llama.feed_forward_length"),
            value("llama.block_count"), heads, kv_heads),
        rms_norm_eps=value("llama.attention.layer_norm_rms_epsilon"),
        rope_theta=value("llama.rope.freq_base"), tie_word_embeddings=True)
    config["vocab_size"] = value("llama.vocab_size")
    config["max_position_embeddings"] = value("llama.context_length")
    weights = {}
    for tensor in reader.tensors:
        w = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if "attn_q." in tensor.name or "attn_k." in tensor.name:
            w = make_goldens.to_halves(w, heads if "attn_q." in tensor.name else kv_heads)
        weights[hugging_face_name(tensor.name)] = w
    vocabulary = {t: i for i, t in enumerate(value("tokenizer.ggml.tokens"))}
    merges = [tuple(m.split(" ")) for m in value("tokenizer.ggml.merges")]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return config, weights, tokenizer


def main(path):
    config, weights, tokenizer = read(path)
    texts = (HERE / "prompts.txt").read_text().splitlines()
    ids = [tokenizer.encode(text).ids[:128] for text in texts]
    assert all(len(i) == 128 for i in ids), [len(i) for i in ids]
    text = json.dumps({"tokenizer": "SmolLM2-135M-Instruct", "prompts": ids}, indent=1)
    text = re.sub(r"\[[^\[\]]*\]", lambda m: " ".join(m.group().split()), text)
    (HERE / "prompts_128.json").write_text(text + "\n")

    result = golden.measure(make_goldens.reference_of(config, weights), ids[0][:PROMPT], ROWS,
                            NEW_TOKENS, samples=8)
    # All 49,152 logits of a row are too many to keep: the best, and the same random ones each time.
    full = result.pop("logits")
    some = np.sort(np.random.default_rng(0).choice(full.shape[1], SAMPLED, replace=False))
    best = np.argsort(-full, axis=-1, kind="stable")[:, :BEST]
    columns = np.concatenate([best, np.tile(some, (len(full), 1))], axis=1)
    result["columns"] = [row.tolist() for row in columns]
    result["logits"] = np.take_along_axis(full, columns, axis=1)
    golden.save(HERE / "smollm2_135m.golden.json", {"checkpoints": []} | result)


if __name__ == "__main__":
    main(*sys.argv[1:])
