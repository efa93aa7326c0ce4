"""A gated delta net in float64, token after token, from the equations of docs/math.md ("Recurrent layers")."""

import numpy as np

UNIT = 2.0**-24


def delta_net(h, p, w, shape, linear, noise):
    """Returns the layer's result for rows h [n, dim]. w(name): a tensor; linear, noise: as in exact.py."""
    key_heads, value_heads, key_dim, value_dim = shape.delta
    n = len(h)

    def sums(y, squares, terms):
        """y, sums of as many terms, disturbed by their rounding."""
        if noise.rng is None:
            return y
        return y + UNIT * np.sqrt(terms * (y**2 + squares)) * noise.rng.standard_normal(y.shape)

    def silu(x):
        return noise.relative(x / (1 + np.exp(-x)))

    mixed, z, b, a = (linear(h, p + f"in_proj_{part}") for part in ("qkv", "z", "b", "a"))
    taps = w(p + "conv1d.weight")[:, 0]
    before = np.concatenate([np.zeros((3, mixed.shape[1])), mixed])
    terms = [before[t : t + n] * taps[:, t] for t in range(4)]
    mixed = silu(sums(sum(terms), sum(term**2 for term in terms), 4))
    keys = key_heads * key_dim
    q, k = (part.reshape(n, key_heads, key_dim) for part in (mixed[:, :keys], mixed[:, keys : 2 * keys]))
    v = mixed[:, 2 * keys :].reshape(n, value_heads, value_dim)
    unit = lambda x: noise.relative(
        x / np.sqrt(noise.relative((x * x).sum(axis=-1, keepdims=True), np.sqrt(key_dim)) + 1e-6), 3.0)
    group = value_heads // key_heads
    q, k = (np.repeat(part, group, axis=1) for part in (noise.relative(unit(q) * key_dim**-0.5, 1.0), unit(k)))
    beta = noise.relative(1 / (1 + np.exp(-b)))
    rate = noise.relative(np.exp(w(p + "A_log")))
    g = noise.relative(rate * noise.relative(np.logaddexp(0.0, a + w(p + "dt_bias"))), 1.0)
    decay = noise.relative(np.exp(-g), noise.FEW + g)
    state, out = np.zeros((value_heads, key_dim, value_dim)), np.empty((n, value_heads, value_dim))
    read = lambda x: sums(np.einsum("hkv,hk->hv", state, x), np.einsum("hkv,hk->hv", state**2, x**2), key_dim)
    for t in range(n):
        state = noise.relative(state * decay[t][:, None, None], 1.0)
        update = noise.relative(beta[t][:, None] * noise.relative(v[t] - read(k[t]), 1.0), 1.0)
        state = noise.relative(state + k[t][:, :, None] * update[:, None, :], 1.5)
        out[t] = read(q[t])
    mean = noise.relative(np.mean(out * out, axis=-1, keepdims=True), np.sqrt(value_dim))
    out = noise.relative(out / np.sqrt(mean + shape.eps) * w(p + "norm.weight"))
    out = noise.relative(out * silu(z.reshape(out.shape)), 1.0)
    return linear(out.reshape(n, -1), p + "out_proj")
