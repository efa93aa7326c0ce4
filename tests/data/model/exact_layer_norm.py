"""OPT and BLOOM in float64, and what rounding to float32 may do to their logits.

With the noise of exact.py; written from the papers' equations (arXiv:2205.01068,
arXiv:2211.05100; positions of the latter: arXiv:2108.12409), not from a library.
"""

from dataclasses import dataclass

import numpy as np

from exact import Noise, gelu, layer_norm


@dataclass
class Shape:
    family: str  # "opt" or "bloom"
    layers: int
    heads: int
    eps: float
    after: bool = False  # norms lie after each part, and none before the head


# What each family calls its tensors.
NAMES = {
    "opt": dict(embedding="model.decoder.embed_tokens", final="model.decoder.final_layer_norm",
                layer="model.decoder.layers.{}.", norm1="self_attn_layer_norm",
                out="self_attn.out_proj", norm2="final_layer_norm", up="fc1", down="fc2"),
    "bloom": dict(embedding="transformer.word_embeddings", final="transformer.ln_f",
                  layer="transformer.h.{}.", norm1="input_layernorm", out="self_attention.dense",
                  norm2="post_attention_layernorm", up="mlp.dense_h_to_4h",
                  down="mlp.dense_4h_to_h"),
}


def slopes(heads):
    """Slope of each head: 2^(-8 i / m) for the largest power of two m <= heads, then of 2 m every second."""
    m = 2 ** int(np.log2(heads))
    first = [2.0 ** (-8 * i / m) for i in range(1, m + 1)]
    return np.array(first + [2.0 ** (-4 * i / m) for i in range(1, 2 * (heads - m), 2)])


def logits(weights, shape, ids, rows, seed=None):
    """Logits [len(rows), vocab] of the token ids, in float64. weights: Hugging Face names."""
    noise = Noise(seed)
    w = lambda name: np.asarray(weights[name], dtype=np.float64)
    names = NAMES[shape.family]
    n, heads = len(ids), shape.heads
    future = np.triu(np.full((n, n), -np.inf), 1)

    def linear(x, name):
        return noise.relative(noise.product(x, w(name + ".weight").T) + w(name + ".bias"), 1.0)

    def norm(x, name):
        return layer_norm(x, w(name + ".weight"), w(name + ".bias"), shape.eps, noise)

    def part(x, name, body):
        """Returns the residual stream after a part, whose norm lies before or after it."""
        if shape.after:
            return norm(noise.relative(x + body(x), 1.0), name)
        return noise.relative(x + body(norm(x, name)), 1.0)

    def attend(h, p):
        if shape.family == "opt":
            q, k, v = (linear(h, p + f"self_attn.{c}_proj").reshape(n, heads, -1) for c in "qkv")
        else:
            fused = linear(h, p + "self_attention.query_key_value").reshape(n, heads, 3, -1)
            q, k, v = fused[:, :, 0], fused[:, :, 1], fused[:, :, 2]
        mixed = np.empty_like(q)
        for head in range(heads):
            score = noise.product(q[:, head], k[:, head].T) / np.sqrt(q.shape[-1])
            position = slopes(heads)[head] * n if shape.family == "bloom" else 0.0
            size = np.abs(score) + position
            score = score + apart[head] + (noise.relative(size, 1.0) - size) + future
            e = noise.relative(np.exp(score - score.max(axis=-1, keepdims=True)))
            e /= noise.relative(e.sum(axis=-1, keepdims=True), np.sqrt(n))
            mixed[:, head] = noise.product(e, v[:, head])
        return linear(mixed.reshape(n, -1), p + names["out"])

    def mlp(h, p):
        h = linear(h, p + names["up"])
        h = np.maximum(h, 0) if shape.family == "opt" else noise.relative(gelu(h))
        return linear(h, p + names["down"])

    x = w(names["embedding"] + ".weight")[ids]
    projected = "model.decoder.project_in.weight" in weights
    if projected:
        x = noise.product(x, w("model.decoder.project_in.weight").T)
    apart = np.zeros((heads, n, n))
    if shape.family == "opt":
        table = w("model.decoder.embed_positions.weight")
        x = noise.relative(x + table[np.arange(n) + 2], 1.0)
    else:
        x = norm(x, "transformer.word_embeddings_layernorm")
        # The library adds slope x position of the key, in float32: off by the rounding of the
        # largest. The row's own part drops out of the softmax.
        lean = noise.relative(slopes(heads)[:, None, None] * np.arange(n), 2.0)
        apart = lean - slopes(heads)[:, None, None] * np.arange(n)[:, None]
    for layer in range(shape.layers):
        p = names["layer"].format(layer)
        x = part(x, p + names["norm1"], lambda h, p=p: attend(h, p))
        x = part(x, p + names["norm2"], lambda h, p=p: mlp(h, p))
    x = x[rows] if shape.after else norm(x[rows], names["final"])
    if projected:
        x = noise.product(x, w("model.decoder.project_out.weight").T)
    return noise.product(x, w(names["embedding"] + ".weight").T)
