#!/usr/bin/env python3
"""Writes best_trees.json: the best E[tokens] for some non-increasing vectors, sizes and numbers of levels.

Computed from the recursion of the Sequoia paper (arXiv:2402.12374, App. C.2), written out slowly and
independently of planner/: F(n, l) = 1 + the best way to share n - 1 nodes among the children, child k
with n_k nodes below and with it being worth p_k F(n_k, l - 1). Sizes count the root; so do levels.
null: no such tree (a node has at most as many children as the vector has entries).
Run: python3 make_best_trees.py > best_trees.json
"""
import json
import math

VECTORS = {
    "harmonic": [1 / (k * (k + 1)) for k in range(1, 17)],
    "with ties": [0.4, 0.2, 0.2, 0.1],
    "chain only": [0.8],
    "certain": [1.0],
    "zeros in the tail": [0.6, 0.2, 0.1, 0.0, 0.0],
    "self-draft at temperature 0.6": [0.756264, 0.100252, 0.043333, 0.023952, 0.015463, 0.010574, 0.007698, 0.005804],
}
SIZES = [1, 2, 3, 4, 5, 7, 8, 16, 24, 32, 48, 64, 100, 128]
LEVELS = [1, 2, 3, 4, 6, 10, 16, 128]  # 128 nodes never need more than 128 levels: the last is unbounded


def recursion(p, nodes, levels):
    """F[l][n], -inf where there is no tree."""
    f = [[-math.inf] * (nodes + 1)]
    for _ in range(levels):
        shared = [0.0] + [-math.inf] * nodes  # the most that the children so far can add, by their nodes
        for chance in p:
            # 0 * -inf is NaN: an impossible subtree stays impossible whatever its chance.
            child = [0.0] + [chance * v if v > -math.inf else v for v in f[-1][1:]]
            shared = [max(shared[m - n] + child[n] for n in range(m + 1)) for m in range(nodes + 1)]
        f.append([-math.inf] + [1 + shared[n - 1] for n in range(1, nodes + 1)])
    return f


out = {}
for name, p in VECTORS.items():
    f = recursion(p, max(SIZES), max(LEVELS))
    rows = [[f[l][n] if f[l][n] > -math.inf else None for n in SIZES] for l in LEVELS]
    out[name] = {"p": p, "levels": LEVELS, "n": SIZES, "best": rows}
print(json.dumps(out, separators=(",", ":")))
