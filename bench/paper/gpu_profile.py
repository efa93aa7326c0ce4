#!/usr/bin/env python3
"""A hardware profile of a GPU that is not at hand, from its data sheet: for canopy bench offload --dry-run.

  bench/paper/gpu_profile.py L40|4090|H100|H200 70b|8b... 7b|1b... > FILE     shapes as in SHAPES below

ESTIMATED, not measured, and marked so in the profile. A unit takes the longer of reading its weights and multiplying them,
at the shares of the peaks below, and the launches of its kernels; attention to the text runs at the share of f32.
"""
import json
import sys

GB = 1e9
GPUS = {  # memory and copies in bytes/s, bf16 without sparsity and f32 in FLOP/s
    "L40": {"memory": 864 * GB, "bf16": 181e12, "f32": 90.5e12, "copy": 24.6 * GB},  # copy: the paper's 5.6 s for 70B
    "4090": {"memory": 1008 * GB, "bf16": 165e12, "f32": 82.6e12, "copy": 24.6 * GB},
    "H100": {"memory": 3350 * GB, "bf16": 989e12, "f32": 67e12, "copy": 55 * GB},
    "H200": {"memory": 4800 * GB, "bf16": 989e12, "f32": 67e12, "copy": 55 * GB},
}
OF_MEMORY, OF_BF16, OF_F32 = 0.8, 0.6, 0.2  # shares that large kernels commonly reach
LAUNCH, VERIFY, SYNC = 5e-6, 1e-3, 5e-5     # seconds: a kernel; an accepted node's row to the host; a level's proposals
SHAPES = {  # layers, dim, hidden, heads, kv heads, head dim, vocab
    "llama-2-70b": (80, 8192, 28672, 64, 8, 128, 32000),
    "llama-2-7b": (32, 4096, 11008, 32, 32, 128, 32000),
    "llama-3.1-70b": (80, 8192, 28672, 64, 8, 128, 128256),
    "llama-3.1-8b": (32, 4096, 14336, 32, 8, 128, 128256),
    "llama-3.2-1b": (16, 2048, 8192, 32, 8, 64, 128256),
}
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in GPUS or not {sys.argv[2], sys.argv[3]} <= set(SHAPES):
        sys.exit(__doc__)
    gpu = GPUS[sys.argv[1]]

    def product(parameters, kernels):
        return [[n, max(2 * parameters / (OF_MEMORY * gpu["memory"]), 2 * n * parameters / (OF_BF16 * gpu["bf16"]))
                 + kernels * LAUNCH] for n in ROWS]

    def parts(shape):
        layers, dim, hidden, heads, kv, head_dim, vocab = SHAPES[shape]
        attention = dim * head_dim * (2 * heads + 2 * kv)
        return layers, product(attention, 12), product(3 * dim * hidden, 8), product(vocab * dim, 4), \
            4 * heads * head_dim / (OF_F32 * gpu["f32"])

    _, attention, mlp, head, context = parts(sys.argv[2])
    draft_layers, draft_attention, draft_mlp, draft_head, draft_context = parts(sys.argv[3])
    level = [[a[0], draft_layers * (a[1] + m[1]) + h[1] + SYNC] for a, m, h in zip(draft_attention, draft_mlp, draft_head)]
    json.dump({"canopy_hardware": 1, "machine": f"{sys.argv[1]}, ESTIMATED from its data sheet", "target": sys.argv[2],
               "draft": sys.argv[3], "version": "estimate", "date": "2026-11-21", "link_bytes_per_second": 0,
               "upload_bytes_per_second": gpu["copy"], "embed": [[n, 1e-4] for n in ROWS], "attention": attention, "mlp": mlp,
               "head": head, "context": context, "verify": VERIFY,
               "drafting": {"level_greedy": level, "level_sampled": level, "context": draft_layers * draft_context}},
              sys.stdout, indent=1)


if __name__ == "__main__":
    main()
