"""The form of GPT-OSS's directories: experts as blocks of 32 codes of E2M1, and a power of two for each."""

import numpy as np
import torch
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

NUMBERS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def blocks_of(rows):
    """Codes [.., columns / 32, 16], the first of two in the lower half, and scales [.., columns / 32], 2^(scale - 127)."""
    groups = rows.reshape(*rows.shape[:-1], -1, 32).astype(np.float64)
    power = np.floor(np.log2(np.abs(groups).max(-1))) - 2
    codes = np.abs(groups[..., None] / np.exp2(power)[..., None, None] - NUMBERS).argmin(-1).astype(np.uint8)
    pairs, scales = codes[..., ::2] | codes[..., 1::2] << 4, (power + 127).astype(np.uint8)
    return torch.from_numpy(np.ascontiguousarray(pairs)), torch.from_numpy(np.ascontiguousarray(scales))


def as_mxfp4(weights):
    """Tensors of a directory whose experts, [experts, in, out] here, are blocks, and all weights as float32 arrays.

    transformers' own values of the blocks are the weights; that these are the definition's is asserted."""
    tensors, plain = {}, {}
    for name, value in weights.items():
        if "mlp.experts" not in name or name.endswith("_bias"):
            tensors[name] = torch.from_numpy(value).to(torch.bfloat16)
            plain[name] = tensors[name].float().numpy()
            continue
        codes, scales = blocks_of(value.swapaxes(1, 2))
        tensors[name + "_blocks"], tensors[name + "_scales"] = codes, scales
        plain[name] = convert_moe_packed_tensors(codes, scales, dtype=torch.float32).numpy()
        each = np.stack([NUMBERS[codes & 15], NUMBERS[codes >> 4]], -1).reshape(*codes.shape[:-1], 32)
        each *= np.exp2(scales.numpy() - 127.0)[..., None]
        assert (plain[name] == each.reshape(value.swapaxes(1, 2).shape).swapaxes(1, 2)).all()
    return tensors, plain
