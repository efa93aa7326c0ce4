#!/usr/bin/env python3
"""Makes NAME.blocks: blocks of each quantised GGUF type, and the floats that they stand for.

  make_block_goldens.py        (needs numpy and gguf)

A file holds its blocks, then the float32 values of all of them as gguf's dequantize() gives them.
The bytes of the blocks are every byte value in random order, as often as they fit; the first blocks
have chosen scales: zero, the smallest and the largest numbers that f16 has, odd and negative ones; or powers of two.
Blocks whose codes are numbers of a grid's entries have each number at least once. Deterministic.
"""

import pathlib

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
ELEMENTS = 2048
Q = gguf.GGMLQuantizationType
# Where a block has its f16 numbers: the scale, and the minimum if there is one.
HALVES = {
    Q.Q4_0: [0], Q.Q4_1: [0, 2], Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q8_0: [0], Q.Q2_K: [80, 82],
    Q.Q3_K: [108], Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [208], Q.IQ4_NL: [0], Q.IQ4_XS: [0], Q.MXFP4: [],
    Q.IQ2_XXS: [0], Q.IQ2_XS: [0], Q.IQ2_S: [0], Q.IQ3_XXS: [0], Q.IQ3_S: [0], Q.IQ1_S: [0], Q.IQ1_M: [], Q.NVFP4: [],
}
POWERS = {Q.MXFP4: 0}  # where a block has a scale of one byte
CHOSEN_POWERS = [0, 1, 2, 127, 128, 251, 3]  # the largest with which all elements are finite
# Smallest subnormal, largest subnormal, smallest normal, largest, an odd one, zero.
SCALES = [0x0001, 0x83FF, 0x0400, 0x7BFF, 0xB555, 0x0000, 0x3C01]
# Entries of the grid, and where the bits of the number of entry e lie, counted from the block's first.
GRIDS = {
    Q.IQ2_XXS: (256, lambda e: [*range(16 + e // 4 * 64 + e % 4 * 8, 24 + e // 4 * 64 + e % 4 * 8)]),
    Q.IQ2_XS: (512, lambda e: [*range(16 + 16 * e, 25 + 16 * e)]),
    Q.IQ2_S: (1024, lambda e: [*range(16 + 8 * e, 24 + 8 * e), 528 + 2 * e, 529 + 2 * e]),
    Q.IQ3_XXS: (256, lambda e: [*range(16 + 8 * e, 24 + 8 * e)]),
    Q.IQ3_S: (512, lambda e: [*range(16 + 8 * e, 24 + 8 * e), 528 + e]),
    Q.IQ1_S: (2048, lambda e: [*range(16 + 8 * e, 24 + 8 * e),
                               *range(272 + e // 4 * 16 + e % 4 * 3, 275 + e // 4 * 16 + e % 4 * 3)]),
    Q.IQ1_M: (2048, lambda e: [*range(8 * e, 8 + 8 * e), *range(256 + 4 * e, 259 + 4 * e)]),
}
MINIMA = [0x8001, 0x03FF, 0x7BFF, 0xFBFF, 0x3555, 0xC0AB, 0x0000]


def blocks_of(kind, rng):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    count = ELEMENTS // elements
    if kind in GRIDS:
        entries = 64 if kind in (Q.IQ3_XXS, Q.IQ3_S) else 32  # of a block
        count = max(count, GRIDS[kind][0] // entries)
    values = np.tile(np.arange(256, dtype=np.uint8), -(-count * size // 256))
    blocks = rng.permutation(values)[:count * size].reshape(count, size)
    for b in range(count):
        for at, chosen in zip(HALVES[kind], (SCALES, MINIMA)):
            half = np.float16(rng.normal()).view(np.uint16) if b >= len(chosen) else chosen[b]
            blocks[b, at:at + 2] = np.array([half], "<u2").view(np.uint8)
        if kind in POWERS:
            blocks[b, POWERS[kind]] = rng.integers(100, 140) if b >= len(CHOSEN_POWERS) else CHOSEN_POWERS[b]
    if kind == Q.NVFP4:
        blocks[:2, :4] = [[0, 1, 7, 8], [126, 127, 128, 255]]  # ends of its numbers, and what stands for 0
    if kind in GRIDS:
        put_entries(kind, entries, blocks, rng)
    if kind == Q.IQ1_M:
        put_parted_scales(blocks, rng)
    return blocks


def put_entries(kind, entries, blocks, rng):
    count, places = GRIDS[kind]
    numbers = rng.permutation(np.arange(len(blocks) * entries) % count).reshape(len(blocks), entries)
    bits = np.unpackbits(blocks, axis=1, bitorder="little")
    for e in range(entries):
        for b, place in enumerate(places(e)):
            bits[:, place] = numbers[:, e] >> b & 1
    blocks[:] = np.packbits(bits, axis=1, bitorder="little")


def put_parted_scales(blocks, rng):
    """IQ1_M has four bits of its f16 in the high half of every other of the last eight bytes."""
    for b in range(len(blocks)):
        half = int(np.float16(rng.normal()).view(np.uint16)) if b >= len(SCALES) else SCALES[b]
        for i in range(4):
            blocks[b, 49 + 2 * i] = blocks[b, 49 + 2 * i] & 15 | (half >> 4 * i & 15) << 4


def main():
    for kind in HALVES:
        blocks = blocks_of(kind, np.random.default_rng(int(kind)))
        values = gguf.quants.dequantize(blocks, kind).astype("<f4")
        assert np.isfinite(values).all()
        (HERE / f"{kind.name}.blocks").write_bytes(blocks.tobytes() + values.tobytes())


if __name__ == "__main__":
    main()
