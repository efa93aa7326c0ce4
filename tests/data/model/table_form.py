"""The form of bitsandbytes' directories: codes of 4 bits that are numbers of a table, and a factor for each 64 of them.

bitsandbytes (0.50.2) writes its own form.
"""

import numpy as np
import torch
from bitsandbytes import functional


def values(codes, state):
    """Weights as float32, [rows, columns] of the state's shape, by the definition.

    bitsandbytes' own code for the CPU agrees where no block goes on in the next row, in the state's own type too, but that
    it has 0 for what is subnormal there."""
    factors = state.absmax
    if state.nested:
        factors = functional.dequantize_blockwise(state.absmax, state.state2) + state.offset
    pairs = codes.flatten().long()
    numbers = state.code[torch.stack([pairs >> 4, pairs & 15], 1).flatten()]
    exact = (numbers * factors.repeat_interleave(state.blocksize)[:len(numbers)]).reshape(state.shape)
    if state.shape[-1] % state.blocksize == 0:
        own_type, rounded = state.dtype, exact.to(state.dtype)
        as_stored = functional.dequantize_4bit(codes, state)
        assert ((rounded == as_stored) | (rounded.abs() < torch.finfo(own_type).tiny)).all()
        state.dtype = torch.float32
        assert (functional.dequantize_4bit(codes, state) == exact).all()
        state.dtype = own_type
    return exact


def stored(name, codes, state):
    """Tensors of the matrix NAME."""
    parts = {f"{name}.{end}": tensor.contiguous() for end, tensor in state.as_dict(packed=True).items()}
    return {name: codes} | parts


def as_tables(weights, scheme):
    """Tensors of a directory whose layers' matrices are as the config says, and all weights as float32 arrays."""
    tensors, plain = {}, {}
    for name, value in weights.items():
        tensors[name] = torch.from_numpy(np.ascontiguousarray(value)).to(torch.bfloat16)
        plain[name] = tensors[name].float().numpy()
        if ".layers." not in name or value.ndim < 2:
            continue
        codes, state = functional.quantize_4bit(tensors[name], quant_type=scheme["bnb_4bit_quant_type"],
                                                compress_statistics=scheme["bnb_4bit_use_double_quant"])
        plain[name] = values(codes, state).numpy()
        tensors |= stored(name, codes, state)
    return tensors, plain
