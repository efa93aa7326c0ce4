"""Blocks of the GGUF types that gguf reads and cannot make: synthetic, random bits with a scale that fits."""

import zlib

import gguf
import numpy as np

Q = gguf.GGMLQuantizationType
SYNTHETIC = {Q.IQ2_XXS, Q.IQ2_XS, Q.IQ2_S, Q.IQ3_XXS, Q.IQ3_S, Q.IQ1_S, Q.IQ1_M, Q.NVFP4}


def put_scale(blocks, kind, scale):
    """blocks [count, bytes]: the f16 that all have; IQ1_M has it in the high halves of four words."""
    half = int(np.float16(scale).view(np.uint16))
    if kind != Q.IQ1_M:
        blocks[:, :2] = np.array([half], "<u2").view(np.uint8)
        return
    for i in range(4):
        blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] & 15 | (half >> 4 * i & 15) << 4


def quantize(name, w, kind):
    """As gguf.quants.quantize(). Of a synthetic kind the values are others, as large on average."""
    if kind not in SYNTHETIC:
        return gguf.quants.quantize(w, kind)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    blocks = rng.integers(0, 256, (w.size // elements, size), dtype=np.uint8)
    if kind == Q.NVFP4:  # four scales of E4M3, some of its steps around one of the right size
        numbers = np.arange(127, dtype=np.uint8)
        sizes = gguf.quants.NVFP4.ue4m3_to_fp32(numbers) * 5.85  # the root mean square of its codes
        nearest = int(np.abs(sizes - np.sqrt((w**2).mean())).argmin())
        blocks[:, :4] = np.clip(rng.integers(-6, 7, (len(blocks), 4)) + nearest, 1, 126)
        return blocks.reshape(*w.shape[:-1], -1)
    put_scale(blocks, kind, 1.0)
    ones = gguf.quants.dequantize(blocks, kind)
    put_scale(blocks, kind, np.sqrt((w**2).mean() / (ones**2).mean()))
    return blocks.reshape(*w.shape[:-1], -1)
