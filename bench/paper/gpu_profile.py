#!/usr/bin/env python3
"""A hardware profile of a GPU that is not at hand, from its data sheet: for canopy plan --profile.

  bench/paper/gpu_profile.py GPU TARGET DRAFT [--host-memory GB] [--disk GB/S] > FILE      GPU: L40, 4090, H100 or H200

TARGET and DRAFT are shapes as canopy plan names them, with weights in blocks or packed too: llama-2-7b:q4_0, llama-2-70b:packed.
MODELLED, not measured, and marked so in the profile. A unit takes the longer of reading its weights and multiplying them,
at the shares of the peaks below, and the launches of its kernels; packed weights are unpacked into memory first. The target's
attention to the text goes by products of 16-bit matrices, whose scores pass through the L2 cache; the draft's, in graphs, runs
at a share of f32. The host is an assumption: how much memory, how fast its disk.
"""
import argparse
import datetime
import json
import sys

GB = 1e9
GPUS = {  # bytes; memory and copies in bytes/s; bf16 without sparsity and f32 in FLOP/s
    "L40": {"bytes": 48 << 30, "memory": 864 * GB, "bf16": 181e12, "f32": 90.5e12, "copy": 24.6 * GB},  # as in the paper's 5.6 s
    "4090": {"bytes": 24 << 30, "memory": 1008 * GB, "bf16": 165e12, "f32": 82.6e12, "copy": 24.6 * GB},
    "H100": {"bytes": 80 << 30, "memory": 3350 * GB, "bf16": 989e12, "f32": 67e12, "copy": 55 * GB},
    "H200": {"bytes": 141 * 10**9, "memory": 4800 * GB, "bf16": 989e12, "f32": 67e12, "copy": 55 * GB},
}
# Shares of the peaks: what large kernels commonly reach; for attention see docs/results/gpu.md.
OF_MEMORY, OF_BF16, OF_F32 = 0.8, 0.6, 0.4
# Attention by products (kernels/gpu_scratch.h): a score is written, read, and its weight written and read; of a slice of 32 MiB it
# has 6 bytes, and its share of what a query has beside; each slice takes four launches for each chunk of 512 keys. The slice fits
# the L2 of all of these (50 MB and more), which no data sheet gives a rate of: assumed, unless the memory is faster.
OF_SCORE, SLICE, CHUNK, LAUNCHES, L2 = 12, 32 << 20, 512, 4, 2500 * GB
LAUNCH, VERIFY = 5e-6, 1e-3  # seconds: a kernel; an accepted node's row to the host
SHAPES = {  # layers, dim, hidden, heads, kv heads, head dim, vocab; of mixtures hidden is an expert's: experts, those of a row
    "llama-2-70b": (80, 8192, 28672, 64, 8, 128, 32000),
    "llama-2-7b": (32, 4096, 11008, 32, 32, 128, 32000),
    "llama-3.1-70b": (80, 8192, 28672, 64, 8, 128, 128256),
    "llama-3.1-8b": (32, 4096, 14336, 32, 8, 128, 128256),
    "llama-3.2-1b": (16, 2048, 8192, 32, 8, 64, 128256),
    "qwen3-32b": (64, 5120, 25600, 64, 8, 128, 151936),
    "qwen3-0.6b": (28, 1024, 3072, 16, 8, 128, 151936),
    "qwen3-30b-a3b": (48, 2048, 768, 32, 4, 128, 151936, 128, 8),
    "qwen3-235b-a22b": (94, 4096, 1536, 64, 4, 128, 151936, 128, 8),
    "gpt-oss-20b": (24, 2880, 2880, 64, 8, 64, 201088, 32, 4),
    "gpt-oss-120b": (36, 2880, 2880, 64, 8, 64, 201088, 128, 4),
}
# Bytes of the GPU's memory that a weight costs in a product: read; or read, unpacked to 16 bits and read again.
BYTES = {"": 2, "packed": 0.708 * 2 + 4, "q8_0": 34 / 32 + 4, "q4_0": 18 / 32 + 4, "q4_1": 20 / 32 + 4, "q4_k": 144 / 256 + 4,
         "mxfp4": 17 / 32 + 4}
FEW, TOGETHER = 8, 9  # rows of an expert that are not unpacked first, and experts in three launches (kernels/cuda/few_rows.h)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpu", choices=GPUS)
    parser.add_argument("target")
    parser.add_argument("draft")
    parser.add_argument("--host-memory", type=float, default=256, metavar="GB", help="of the machine, in GiB (256)")
    parser.add_argument("--disk", type=float, default=5, metavar="GB/S", help="rate of its disk (5)")
    args = parser.parse_args()
    gpu = GPUS[args.gpu]

    def shape_of(text):
        name, _, packed = text.partition(":")
        if name not in SHAPES or packed not in BYTES:
            parser.error(f"{text} is none of {', '.join(SHAPES)}, with :{', :'.join(filter(None, BYTES))} behind it or nothing")
        return SHAPES[name], packed

    def product(parameters, packed, kernels):
        return [[n, max(BYTES[packed] * parameters / (OF_MEMORY * gpu["memory"]), 2 * n * parameters / (OF_BF16 * gpu["bf16"]))
                 + kernels * LAUNCH] for n in ROWS]

    def experts(dim, hidden, count, active, packed):
        """Rows choose as if by chance; used: experts that some row chose."""
        curve, parameters = [], 3 * dim * hidden
        for n in ROWS:
            used = count * (1 - (1 - active / count) ** n)
            few = n * active / used <= FEW
            read = (BYTES[packed] - 4 if few and packed else BYTES[packed]) * used * parameters / (OF_MEMORY * gpu["memory"])
            kernels = 8 + (3 * used / TOGETHER if few else 7 * used)
            curve.append([n, max(read, 2 * n * active * parameters / (OF_BF16 * gpu["bf16"])) + kernels * LAUNCH])
        return curve

    def attention_by_kernels(heads, head_dim):
        return 4 * heads * head_dim / (OF_F32 * gpu["f32"])

    def attention_by_products(heads, head_dim):
        work = 4 * head_dim / (OF_BF16 * gpu["bf16"]) + OF_SCORE / (OF_MEMORY * max(L2, gpu["memory"]))
        return heads * max(work, LAUNCHES * LAUNCH / SLICE * (6 + (6 * head_dim + 8) / CHUNK))

    def parts(text, to_text):
        (layers, dim, hidden, heads, kv, head_dim, vocab, *mixture), packed = shape_of(text)
        attention = dim * head_dim * (2 * heads + 2 * kv)
        head_type = packed if packed in ("", "packed") else "q8_0"
        mlp = experts(dim, hidden, *mixture, packed) if mixture else product(3 * dim * hidden, packed, 8)
        return layers, product(attention, packed, 12), mlp, product(vocab * dim, head_type, 4), to_text(heads, head_dim)

    _, attention, mlp, head, context = parts(args.target, attention_by_products)
    draft_layers, draft_attention, draft_mlp, draft_head, draft_context = parts(args.draft, attention_by_kernels)
    level = [[a[0], draft_layers * (a[1] + m[1]) + h[1]] for a, m, h in zip(draft_attention, draft_mlp, draft_head)]
    json.dump({"canopy_hardware": 1, "modelled": True, "machine": f"{args.gpu}, by its data sheet", "target": args.target,
               "draft": args.draft, "version": "model", "date": datetime.date.today().isoformat(),
               "memory_bytes": int(args.host_memory * 2**30), "gpu_memory_bytes": gpu["bytes"],
               "link_bytes_per_second": args.disk * GB, "upload_bytes_per_second": gpu["copy"],
               "embed": [[n, 1e-4] for n in ROWS], "attention": attention, "mlp": mlp, "head": head, "context": context,
               "verify": VERIFY, "drafting": {"level_greedy": level, "level_sampled": level, "context": draft_layers * draft_context}},
              sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
