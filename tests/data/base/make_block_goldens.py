#!/usr/bin/env python3
"""Makes NAME.blocks: blocks of each quantised GGUF type, and the floats that they stand for.

  make_block_goldens.py        (needs numpy and gguf)

A file holds its blocks, then the float32 values of all of them as gguf's dequantize() gives them.
The bytes of the blocks are every byte value in random order, as often as they fit; the first blocks
have chosen scales: zero, the smallest and the largest numbers that f16 has, odd and negative ones; or powers of two.
Deterministic.
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
}
POWERS = {Q.MXFP4: 0}  # where a block has a scale of one byte
CHOSEN_POWERS = [0, 1, 2, 127, 128, 251, 3]  # the largest with which all elements are finite
# Smallest subnormal, largest subnormal, smallest normal, largest, an odd one, zero.
SCALES = [0x0001, 0x83FF, 0x0400, 0x7BFF, 0xB555, 0x0000, 0x3C01]
MINIMA = [0x8001, 0x03FF, 0x7BFF, 0xFBFF, 0x3555, 0xC0AB, 0x0000]


def blocks_of(kind, rng):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    count = ELEMENTS // elements
    values = np.tile(np.arange(256, dtype=np.uint8), -(-count * size // 256))
    blocks = rng.permutation(values)[:count * size].reshape(count, size)
    for b in range(count):
        for at, chosen in zip(HALVES[kind], (SCALES, MINIMA)):
            half = np.float16(rng.normal()).view(np.uint16) if b >= len(chosen) else chosen[b]
            blocks[b, at:at + 2] = np.array([half], "<u2").view(np.uint8)
        if kind in POWERS:
            blocks[b, POWERS[kind]] = rng.integers(100, 140) if b >= len(CHOSEN_POWERS) else CHOSEN_POWERS[b]
    return blocks


def main():
    for kind in HALVES:
        blocks = blocks_of(kind, np.random.default_rng(int(kind)))
        values = gguf.quants.dequantize(blocks, kind).astype("<f4")
        assert np.isfinite(values).all()
        (HERE / f"{kind.name}.blocks").write_bytes(blocks.tobytes() + values.tobytes())


if __name__ == "__main__":
    main()
