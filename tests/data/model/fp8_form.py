"""The form of FP8 directories: bytes of E4M3, and a scale for each block of 128 x 128 weights."""

import numpy as np
import torch


def as_fp8(tensors, left_out):
    """The layers' matrices as bytes of E4M3, each with a scale for each block of 128 x 128, but for modules left out."""
    stored = {}
    for name, tensor in tensors.items():
        if ".layers." not in name or tensor.ndim != 2 or name.removesuffix(".weight") in left_out:
            stored[name] = tensor
            continue
        matrix = tensor.float()
        scales = torch.empty([-(-extent // 128) for extent in matrix.shape])
        codes = torch.empty(matrix.shape, dtype=torch.float8_e4m3fn)
        for i, j in np.ndindex(*scales.shape):
            block = slice(128 * i, 128 * i + 128), slice(128 * j, 128 * j + 128)
            scales[i, j] = matrix[block].abs().max() / 448
            codes[block] = (matrix[block] / scales[i, j]).clamp(-448, 448).to(codes.dtype)
        stored[name], stored[name + "_scale_inv"] = codes, scales
    return stored
