"""A decoder with RMS norms and rotary positions in float64, and what rounding to float32 may do to its logits.

Written from the equations of docs/math.md, not from a library, so it also checks the library that
makes the goldens. With a `Noise`, every operation is disturbed as float32 arithmetic in any order
of summation may disturb it, so the spread of the logits over several noises is a tolerance.
"""

from dataclasses import dataclass, field

import numpy as np

from exact_delta import delta_net

BIASES_OF_CHOICE = ("gate.e_score_correction_bias", "e_score_correction_bias",
                    "gate.moe_statics.e_score_correction_bias")
UNIT = 2.0**-24  # unit roundoff of float32


class Noise:
    """Disturbs each result of an operation by a normal error of the size of its rounding.

    A sum y of k products t_j deviates by u sqrt(k (y^2 + sum t_j^2)): docs/math.md (G2). Where all
    terms are positive no partial sum exceeds y, which leaves u sqrt(k) y. An elementwise function
    is off by a few units: FEW.
    """

    FEW = 4.0

    def __init__(self, seed=None):
        self.rng = None if seed is None else np.random.default_rng(seed)

    def relative(self, y, units=FEW):
        if self.rng is None:
            return y
        return y * (1.0 + units * UNIT * self.rng.standard_normal(y.shape))

    def product(self, x, w):
        """x @ w, disturbed."""
        y = x @ w
        if self.rng is None:
            return y
        deviation = UNIT * np.sqrt(w.shape[-2] * (y**2 + x**2 @ w**2))
        return y + deviation * self.rng.standard_normal(y.shape)


@dataclass
class Shape:
    layers: int
    heads: int
    kv_heads: int
    head_dim: int  # of layers that have no other
    eps: float
    inverse_frequency: np.ndarray = field(repr=False, default=None)  # [head_dim / 2]
    magnitude: float = 1.0
    active: int = 0  # experts of a row, in layers that have some
    normalised: bool = True  # their scores are divided by their sum
    routes: list = field(repr=False, default_factory=list)  # of the last evaluation, by layer
    beta: float = 0.0  # rotated queries times 1 + beta ln(1 + floor(position / period))
    period: int = 1
    sigmoid: bool = False  # scores of experts; else a softmax
    scale: float = 1.0  # of their weights
    windows: list = field(default_factory=list)  # keys that a layer sees, 0: all; empty: all layers
    clamp: tuple = ()  # limit and alpha of experts whose gate is clamped
    tables: list = field(repr=False, default_factory=list)  # frequencies and magnitude by layer, where they differ
    long: tuple = ()  # the tokens after which a text's positions have other frequencies, and these
    rotated: list = field(default_factory=list)  # by layer; empty: all are
    neighbours: bool = False  # are rotated, in place of halves
    # Norms of what the attention reads, of what it gives, and the same of the MLP; "" where there is none.
    norms: tuple = ("input_layernorm", "", "post_attention_layernorm", "")
    plus: float = 0.0  # added to the weights of norms
    value_norm: bool = False  # by heads, without weights
    norm_rotated: bool = False  # queries and keys are normalised after they are rotated
    head_dims: list = field(default_factory=list)  # by layer, where they differ
    layer_norm: bool = False
    parallel: bool = False  # the MLP reads what the attention has read
    activation: str = "silu"  # of the gate; "relu2" and "gelu_up": there is none
    embedding: float = 1.0  # these five are factors
    branch: float = 1.0
    logit: float = 1.0
    score: float = 0.0  # 0: 1 / sqrt(head_dim)
    logit_cap: float = 0.0
    score_cap: float = 0.0
    delta: tuple = ()  # key heads, value heads and their widths, of layers that are delta nets
    output_gate: bool = False  # rows of each query head are followed by those of a gate


def inverse_frequencies(head_dim, theta, scaling=None):
    """(inverse frequencies, magnitude) of rotary embedding, in float64."""
    exponent = np.arange(0, head_dim, 2) / head_dim
    plain = theta**-exponent
    kind = scaling and scaling["rope_type"]
    if not scaling or kind == "default":
        return plain, 1.0
    factor = scaling.get("factor")
    if kind == "linear":
        return plain / factor, 1.0
    if kind == "dynamic":  # Hunyuan's, which does not depend on the text
        return (theta * scaling["alpha"] ** (head_dim / (head_dim - 2)))**-exponent, 1.0
    if kind == "proportional":
        turning = int(scaling.get("partial_rotary_factor", 1.0) * head_dim // 2)
        return np.where(np.arange(head_dim // 2) < turning, plain / (factor or 1.0), 0.0), 1.0
    original = scaling["original_max_position_embeddings"]
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        turns = original * plain / (2 * np.pi)
        keep = np.clip((turns - low) / (high - low), 0.0, 1.0)
        return plain * (keep + (1 - keep) / factor), 1.0
    if kind == "longrope":  # of texts of the original length at most
        stretch = scaling.get("factor") or scaling["max"] / original
        magnitude = 1.0 if stretch <= 1 else np.sqrt(1 + np.log(stretch) / np.log(original))
        return plain / np.asarray(scaling["short_factor"]), scaling.get("attention_factor") or magnitude
    assert kind == "yarn", kind
    fast, slow = scaling.get("beta_fast", 32), scaling.get("beta_slow", 1)
    dimension = lambda turns: (
        head_dim * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(theta)))
    whole = (np.floor, np.ceil) if scaling.get("truncate", True) else (float, float)
    first = max(whole[0](dimension(fast)), 0)
    last = min(whole[1](dimension(slow)), head_dim - 1)
    keep = 1 - np.clip((np.arange(head_dim // 2) - first) / max(last - first, 1e-3), 0.0, 1.0)
    scale = lambda m: 0.1 * m * np.log(factor) + 1.0
    magnitude = scaling.get("attention_factor") or scale(1.0)
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        magnitude = scale(scaling["mscale"]) / scale(scaling["mscale_all_dim"])
    return plain * (keep + (1 - keep) / factor), magnitude


def rms_norm(x, g, eps, noise):
    mean = noise.relative(np.mean(x * x, axis=-1, keepdims=True), np.sqrt(x.shape[-1]))
    return noise.relative(x / np.sqrt(mean + eps) * g)


def layer_norm(x, g, b, eps, noise):
    width = np.sqrt(x.shape[-1])
    # A mean of values of both signs errs by the size of the values, not by its own.
    size = np.sqrt(np.mean(x * x, axis=-1, keepdims=True))
    mean = x.mean(axis=-1, keepdims=True) + (noise.relative(size, 1.0) - size)
    apart = noise.relative(x - mean, 1.0)
    variance = noise.relative(np.mean(apart * apart, axis=-1, keepdims=True), width)
    return noise.relative(noise.relative(apart / np.sqrt(variance + eps) * g) + b, 1.0)


def gelu(x):
    return x * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def capped(x, cap, noise):
    return noise.relative(cap * np.tanh(x / cap)) if cap else x


def rope(x, cos, sin, neighbours=False):
    """Rotates halves of the front of each head. Shapes: x [n, heads, d]; cos, sin [n, 1, r / 2]."""
    half = cos.shape[-1]
    if neighbours:
        front = x[..., : 2 * half]
        halves = np.concatenate([front[..., ::2], front[..., 1::2], x[..., 2 * half:]], axis=-1)
        turned = rope(halves, cos, sin)
        pairs = np.stack([turned[..., :half], turned[..., half : 2 * half]], axis=-1)
        return np.concatenate([pairs.reshape(front.shape), x[..., 2 * half:]], axis=-1)
    a, b, rest = np.split(x, [half, 2 * half], axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def logits(weights, shape, ids, rows, seed=None):
    """Logits [len(rows), vocab] of the token ids, in float64.

    weights: Hugging Face names to float arrays; the head is the embedding where it is missing.
    """
    noise = Noise(seed)
    w = lambda name: np.asarray(weights[name], dtype=np.float64)
    n = len(ids)

    def turns(frequency, magnitude):
        """A float32 table of frequencies, then a float32 angle: both rounded before the cosine."""
        angle = np.arange(n)[:, None] * noise.relative(frequency, 2.0)
        angle = noise.relative(angle, 1.0)[:, None, :]
        return noise.relative(np.cos(angle) * magnitude, 2.0), noise.relative(np.sin(angle) * magnitude, 2.0)

    def norm(x, name):
        g = w(name + ".weight") + shape.plus
        if not shape.layer_norm:
            return rms_norm(x, g, shape.eps, noise)
        b = w(name + ".bias") if name + ".bias" in weights else np.zeros_like(g)
        return layer_norm(x, g, b, shape.eps, noise)

    def dense(h, p):
        if shape.activation == "silu":
            return mlp(h, *(w(p + f"{part}_proj.weight") for part in ("gate", "up", "down")))
        if shape.activation == "relu2":
            inner = np.maximum(linear(h, p + "up_proj"), 0.0)
            return linear(noise.relative(inner * inner, 1.0), p + "down_proj")
        if shape.activation == "xielu":
            return linear(xielu(linear(h, p + "up_proj"), p + "act_fn."), p + "down_proj")
        if shape.activation == "gelu_up":
            return linear(noise.relative(gelu(linear(h, p + "c_fc"))), p + "c_proj")
        inner = gelu(linear(h, p + "gate_proj")) * linear(h, p + "up_proj")
        return linear(noise.relative(inner, 6.0), p + "down_proj")

    def xielu(x, p):
        softplus = lambda name: np.log1p(np.exp(w(p + name)))
        beta, eps = w(p + "beta"), w(p + "eps")
        positive, negative = noise.relative(softplus("alpha_p")), noise.relative(beta + softplus("alpha_n"))
        low = noise.relative(noise.relative(np.expm1(np.minimum(x, eps))) - x, 1.0) * negative
        curved = noise.relative(np.where(x > 0, positive * x * x, low), 2.0)
        return noise.relative(curved + noise.relative(beta * x, 1.0), 1.0)

    grown = shape.long and n > shape.long[0]
    cos, sin = turns(shape.long[1] if grown else shape.inverse_frequency, shape.magnitude)
    future = np.triu(np.full((n, n), -np.inf), 1)

    def linear(x, name):
        y = noise.product(x, w(name + ".weight").T)
        return y + w(name + ".bias") if name + ".bias" in weights else y

    def mlp(h, gate, up, down, biases=(0.0, 0.0, 0.0)):
        gate, up = noise.product(h, gate.T) + biases[0], noise.product(h, up.T) + biases[1]
        if not shape.clamp:
            return noise.product(noise.relative(gate / (1 + np.exp(-gate)) * up), down.T)
        limit, alpha = shape.clamp
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        inner = (up + 1) * gate / (1 + np.exp(-alpha * gate))  # whose exponent is rounded
        return noise.product(noise.relative(inner, Noise.FEW + alpha * np.abs(gate)), down.T) + biases[2]

    def expert_of(p, expert):
        """gate, up and down [out, in] of one expert, and their biases."""
        gate_up, down = w(p + "gate_up_proj")[expert], w(p + "down_proj")[expert]
        if p + "gate_up_proj_bias" not in weights:
            return *np.split(gate_up, 2), down
        biases, of_down = w(p + "gate_up_proj_bias")[expert], w(p + "down_proj_bias")[expert]
        rows = gate_up.T  # gate and up take turns
        return rows[::2], rows[1::2], down.T, (biases[::2], biases[1::2], of_down)

    def mixture(h, p):
        """The experts of highest score and bias, weighted by scores, or by those over their sum."""
        logit = linear(h, p + ("router" if p + "router.weight" in weights else "gate"))
        if shape.sigmoid:
            e = noise.relative(1 / (1 + np.exp(-logit)))
        else:  # but for their sum
            e = noise.relative(np.exp(logit - logit.max(axis=-1, keepdims=True)))
        biases = [w(p + name) for name in BIASES_OF_CHOICE if p + name in weights]
        score = e if shape.sigmoid else e / e.sum(axis=-1, keepdims=True)
        rank = score + biases[0].reshape(-1) if biases else logit
        chosen = np.argsort(-rank, axis=-1, kind="stable")[:, :shape.active]
        shape.routes.append(np.sort(chosen, axis=-1))
        weight = np.take_along_axis(e, chosen, axis=-1)
        if shape.normalised or not shape.sigmoid:
            all_of = weight if shape.normalised else e
            weight = noise.relative(weight / all_of.sum(axis=-1, keepdims=True), np.sqrt(logit.shape[-1]))
        weight *= shape.scale  # rounding as little as what comes next
        y = np.zeros_like(h)
        for row in range(n):
            for expert, share in sorted(zip(chosen[row], weight[row])):
                own = mlp(h[row : row + 1], *expert_of(p + "experts.", expert))[0]
                y[row] = noise.relative(y[row] + share * own, 2.0)
        for shared in (p + "shared_expert.", p + "shared_experts."):
            if shared + "gate_proj.weight" in weights:
                own = mlp(h, *(w(shared + f"{part}_proj.weight") for part in ("gate", "up", "down")))
                if p + "shared_expert_gate.weight" in weights:
                    score = noise.product(h, w(p + "shared_expert_gate.weight").T)
                    own = noise.relative(own / (1 + np.exp(-score)))
                y = noise.relative(y + own, 1.0)
        return y

    def norm_heads(t, g):
        if g.ndim == 2:  # each head has its own
            return layer_norm(t, g, 0.0, shape.eps, noise)
        return rms_norm(t.reshape(n, -1, len(g)), g + shape.plus, shape.eps, noise).reshape(t.shape)

    shape.routes.clear()
    x = w("model.embed_tokens.weight")[ids]
    if shape.embedding != 1:
        x = noise.relative(x * shape.embedding, 1.0)
    for layer in range(shape.layers):
        p = f"model.layers.{layer}."
        before, attended, between, given = (p + name if name else "" for name in shape.norms)
        if shape.tables:
            cos, sin = turns(*shape.tables[layer])
        h = norm(x, before) if before else x
        if p + "linear_attn.in_proj_qkv.weight" in weights:
            result = delta_net(h, p + "linear_attn.", w, shape, linear, noise)
            x = noise.relative(x + result, 1.0)
            h = norm(x, between)
            mixed_experts = p + "mlp.gate.weight" in weights
            x = noise.relative(x + (mixture(h, p + "mlp.") if mixed_experts else dense(h, p + "mlp.")), 1.0)
            continue
        head_dim = shape.head_dims[layer] if shape.head_dims else shape.head_dim
        own_value = p + "self_attn.v_proj.weight" in weights
        q, k, v = (linear(h, p + f"self_attn.{c}_proj").reshape(n, -1, head_dim)
                   for c in ("q", "k", "v" if own_value else "k"))
        if shape.output_gate:  # rows of q, then of its gate
            q, gate = np.split(linear(h, p + "self_attn.q_proj").reshape(n, -1, 2 * head_dim), 2, axis=-1)
        if shape.value_norm:
            v = rms_norm(v, np.ones(head_dim), shape.eps, noise)
        def normed(q, k):
            if p + "self_attn.q_norm.weight" not in weights:
                return q, k
            return (norm_heads(t, w(p + f"self_attn.{c}_norm.weight")) for t, c in ((q, "q"), (k, "k")))

        q, k = (q, k) if shape.norm_rotated else normed(q, k)
        if not shape.rotated or shape.rotated[layer]:
            q, k = (noise.relative(rope(t, cos, sin, shape.neighbours), 2.0) for t in (q, k))
        q, k = normed(q, k) if shape.norm_rotated else (q, k)
        if shape.beta:
            periods = (np.arange(n) // shape.period)[:, None, None]
            q = noise.relative(q * (1.0 + shape.beta * np.log(1.0 + periods)), 3.0)
        group = shape.heads // k.shape[1]
        mixed = np.empty_like(q)
        for head in range(shape.heads):
            scale = shape.score or 1 / np.sqrt(head_dim)
            score = noise.product(q[:, head], k[:, head // group].T) * scale
            score = capped(score, shape.score_cap, noise) + future
            if shape.windows and shape.windows[layer]:
                score += np.tril(np.full((n, n), -np.inf), -shape.windows[layer])
            if p + "self_attn.sinks" in weights:  # one more score, whose value is zero
                score = np.column_stack([score, np.full(n, w(p + "self_attn.sinks")[head])])
            e = noise.relative(np.exp(score - score.max(axis=-1, keepdims=True)))
            e /= noise.relative(e.sum(axis=-1, keepdims=True), np.sqrt(n))
            e = e[:, :n]
            mixed[:, head] = noise.product(e, v[:, head // group])
        if shape.output_gate:
            mixed = noise.relative(mixed / (1 + np.exp(-gate)))
        result = linear(mixed.reshape(n, -1), p + "self_attn.o_proj")
        result = norm(result, attended) if attended else result
        x = noise.relative(x + result * shape.branch, 1.0)
        if not shape.parallel:
            h = norm(x, between) if between else x
        if p + "mlp.gate.weight" in weights or p + "mlp.router.weight" in weights:
            h = mixture(h, p + "mlp.")
        else:
            h = dense(h, p + "mlp.")
        h = norm(h, given) if given else h
        x = noise.relative(x + h * shape.branch, 1.0)
        if p + "layer_scalar" in weights:
            x = noise.relative(x * w(p + "layer_scalar"), 1.0)
    x = norm(x[rows], "model.norm")
    head = "lm_head.weight" if "lm_head.weight" in weights else "model.embed_tokens.weight"
    result = noise.product(x, w(head).T)
    if shape.logit != 1:
        result = noise.relative(result * shape.logit, 1.0)
    return capped(result, shape.logit_cap, noise)


def rounding_spread(evaluate, exact, samples):
    """The largest deviation of any logit over `samples` disturbed evaluations, by their seeds."""
    return max(float(np.abs(evaluate(seed) - exact).max()) for seed in range(samples))
