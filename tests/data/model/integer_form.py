"""The forms of directories in whole numbers: AWQ, GPTQ, and compressed-tensors' pack-quantized and int-quantized.

compressed-tensors packs and reads its own form (0.20.0); what AWQ's and GPTQ's programs write is
packed here, by the definitions that docs/formats.md has, as those programs are not maintained.
"""

import zlib

import numpy as np
import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # column of each field of a word, lowest bits first


def quantised(matrix, bits, group, symmetric, dtype):
    """Codes [rows, columns] from 0 on, zero points [rows, groups], scales [rows, groups] of `dtype`."""
    rows, columns = matrix.shape
    group = columns if group < 0 else group
    most = 2**bits - 1
    codes = np.empty((rows, columns), np.int64)
    zeros, scales = [], []
    for first in range(0, columns, group):
        part = matrix[:, first:first + group].astype(np.float64)
        low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
        scale = np.maximum(-low, high) / (most // 2) if symmetric else (high - low) / most
        scale = torch.from_numpy(scale).to(dtype)
        zero = np.full(rows, 2**(bits - 1)) if symmetric else np.clip(np.rint(-low / scale.double().numpy()), 0, most - 1)
        zeros.append(zero.astype(np.int64))
        scales.append(scale)
        part = np.rint(part / scale.double().numpy()[:, None]) + zero[:, None]
        codes[:, first:first + group] = np.clip(part, 0, most)
    return codes, np.stack(zeros, 1), torch.stack(scales, 1)


def groups_of(columns, group):
    return np.arange(columns) // (columns if group < 0 else group)


def is_ordered(scheme):
    """True if columns have their group each, by activation."""
    if scheme["quant_method"] != "compressed-tensors":
        return scheme.get("desc_act", False)
    return scheme["config_groups"]["group_0"]["weights"].get("actorder") == "group"


def values(codes, zeros, scales, group, of=None):
    """Weights, exact in float32: nine bits times eleven. `of`: the group of each column."""
    of = groups_of(codes.shape[1], group) if of is None else of
    exact = (codes - zeros[:, of]) * scales.double().numpy()[:, of]
    assert (exact.astype(np.float32) == exact).all()
    return exact.astype(np.float32)


def words(fields, bits):
    """Words of the last axis, lowest bits first."""
    per = 32 // bits
    grouped = fields.reshape(*fields.shape[:-1], -1, per).astype(np.uint64)
    packed = (grouped << (np.arange(per, dtype=np.uint64) * np.uint64(bits))).sum(-1)
    return torch.from_numpy(packed.astype(np.uint32).view(np.int32).copy())


def awq(codes, zeros, scales, bits):
    assert bits == 4
    order = np.arange(len(codes)).reshape(-1, 8)[:, AWQ_ORDER].reshape(-1)
    return {"qweight": words(codes.T[:, order], 4), "qzeros": words(zeros.T[:, order], 4),
            "scales": scales.T.contiguous()}


def gptq(codes, zeros, scales, bits, less=1):
    """`less`: by what zero points are stored less, 1 in the first version, 0 in the second."""
    return {"qweight": words(codes, bits).T.contiguous(), "qzeros": words(zeros.T - less, bits),
            "scales": scales.T.contiguous()}


def compressed(codes, zeros, scales, bits, symmetric):
    half = 2**(bits - 1)
    signed = torch.from_numpy(codes - half).to(torch.int8)
    stored = {"weight_packed": pack_to_int32(signed, bits), "weight_scale": scales,
              "weight_shape": torch.tensor(codes.shape)}
    if not symmetric:
        stored["weight_zero_point"] = pack_to_int32(torch.from_numpy(zeros - half).to(torch.int8), bits,
                                                    packed_dim=0).contiguous()
    return stored


def whole(codes, zeros, scales, symmetric):
    stored = {"weight": torch.from_numpy(codes - 128).to(torch.int8), "weight_scale": scales}
    return stored if symmetric else stored | {"weight_zero_point": torch.from_numpy(zeros - 128).to(torch.int8)}


def weights_of(scheme):
    """Bits, group and symmetry of a quantization_config."""
    if scheme["quant_method"] != "compressed-tensors":
        return scheme["bits"], scheme["group_size"], False
    args = scheme["config_groups"]["group_0"]["weights"]
    return args["num_bits"], args["group_size"] if args["strategy"] == "group" else -1, args["symmetric"]


def stored(scheme, codes, zeros, scales):
    """Tensors of a matrix, by the end of their names."""
    bits, _, symmetric = weights_of(scheme)
    if scheme["quant_method"] == "awq":
        return awq(codes, zeros, scales, bits)
    if scheme["quant_method"] == "gptq":
        return gptq(codes, zeros, scales, bits, int(scheme.get("checkpoint_format", "gptq") == "gptq"))
    if scheme["format"] == "int-quantized":
        return whole(codes, zeros, scales, symmetric)
    return compressed(codes, zeros, scales, bits, symmetric)


def as_integers(weights, scheme, dtype):
    """Tensors of a directory with the layers' matrices in whole numbers, and all weights as float32 arrays."""
    tensors, plain = {}, {}
    for name, value in weights.items():
        if ".layers." not in name or value.ndim < 2:
            tensors[name] = torch.from_numpy(value).to(dtype)
            plain[name] = tensors[name].float().numpy()
            continue
        bits, group, symmetric = weights_of(scheme)
        order = np.arange(value.shape[1])
        if is_ordered(scheme):
            order = np.random.default_rng(zlib.crc32(name.encode())).permutation(value.shape[1])
        back = np.argsort(order)
        codes, *parts = quantised(value[:, order], bits, group, symmetric, dtype)
        codes, of = np.ascontiguousarray(codes[:, back]), groups_of(value.shape[1], group)[back]
        plain[name] = values(codes, *parts, group, of)
        for end, tensor in stored(scheme, codes, *parts).items():
            tensors[name.removesuffix("weight") + end] = tensor
        if is_ordered(scheme):
            tensors[name.removesuffix("weight") + "g_idx"] = torch.from_numpy(of.astype(np.int32))
    return tensors, plain
