"""The forms of NVFP4 in directories: codes of E2M1, a scale of E4M3 for 16 of them, and a factor for a matrix.

compressed-tensors divides the scales by its factor, ModelOpt multiplies them by its own.
"""

import numpy as np
import torch
from mxfp4_form import NUMBERS


def quantised(matrix, divides):
    """Codes [rows, columns], scales [rows, columns / 16] of E4M3, and the factor, of which 1 / factor is no power of two."""
    groups = matrix.reshape(len(matrix), -1, 16).astype(np.float64)
    factor = np.float32(448 * 6 / np.abs(groups).max())
    factor = factor if divides else np.float32(1) / factor
    whole = float(1 / np.float64(factor) if divides else factor)
    scales = torch.from_numpy(np.abs(groups).max(-1) / 6 / whole).float().clamp(2**-9, 448).to(torch.float8_e4m3fn)
    steps = scales.double().numpy()[..., None] * whole
    codes = np.abs((groups / steps)[..., None] - NUMBERS).argmin(-1)
    return codes.reshape(matrix.shape).astype(np.uint8), scales, torch.tensor([factor])


def values(codes, scales, factor, divides):
    """Weights as the reference has them: the scale, then the product, each rounded to float32."""
    scale = scales.float() / factor if divides else scales.float() * factor
    numbers = torch.from_numpy(NUMBERS[codes]).float()
    return (numbers * scale.repeat_interleave(16, dim=1)).numpy()


def stored(codes, scales, factor, divides):
    """Tensors of a matrix, by the end of their names."""
    packed = torch.from_numpy(codes[:, ::2] | codes[:, 1::2] << 4)
    if divides:
        return {"weight_packed": packed, "weight_scale": scales, "weight_global_scale": factor,
                "input_global_scale": torch.tensor([3.0])}
    return {"weight": packed, "weight_scale": scales, "weight_scale_2": factor[0], "input_scale": torch.tensor(3.0)}


def as_nvfp4(weights, divides):
    """Tensors of a directory whose layers' matrices are NVFP4, and all weights as float32 arrays."""
    tensors, plain = {}, {}
    for name, value in weights.items():
        if ".layers." not in name or value.ndim < 2:
            tensors[name] = torch.from_numpy(value).to(torch.bfloat16)
            plain[name] = tensors[name].float().numpy()
            continue
        parts = quantised(value, divides)
        plain[name] = values(*parts, divides)
        tensors |= {name.removesuffix("weight") + end: tensor for end, tensor in stored(*parts, divides).items()}
    return tensors, plain
