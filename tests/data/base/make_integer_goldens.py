#!/usr/bin/env python3
"""Makes integers/NAME.safetensors: matrices of whole numbers as directories have them, and the floats that they are;
and NAME.blocks of Canopy's own formats of their rows, as make_block_goldens.py makes those of GGUF.

  make_integer_goldens.py        (needs numpy torch safetensors compressed-tensors 0.20.0 transformers bitsandbytes 0.50.2)

Each file has the parts of a matrix `m` in the form that NAME.json, a quantization_config, describes, and
`m.expected`, its weights as float32, which hold them exactly. Codes and zero points are random and have
every value; scales are random but for chosen ones: zero, negative, the smallest and the largest of their
type. compressed-tensors' own dequantizer, which rounds to the scales' type, agrees with each of its
matrices but those ordered by activation, which this version knows no longer; the definition of AWQ's and GPTQ's
forms stands in ../model/integer_form.py. MXFP4 is GPT-OSS's form, with the values that transformers gives it, and NF4
and FP4 are bitsandbytes', whose values agree. Deterministic.
"""

import json
import pathlib
import sys

import numpy as np
import safetensors.torch
import torch

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "model"))
import configs  # noqa: E402
import integer_form  # noqa: E402
import nvfp4_form  # noqa: E402
import table_form  # noqa: E402

from bitsandbytes.functional import QuantState, create_dynamic_map, get_4bit_type  # noqa: E402
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor  # noqa: E402
from compressed_tensors.compressors.naive_quantized.base import NaiveQuantizationCompressor  # noqa: E402
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor  # noqa: E402
from compressed_tensors.quantization import QuantizationScheme  # noqa: E402
from transformers.integrations.mxfp4 import convert_moe_packed_tensors  # noqa: E402


def awq(group):
    return dict(quant_method="awq", bits=4, group_size=group, zero_point=True, version="gemm")


def gptq(bits, group, desc_act=False, **keys):
    return dict(quant_method="gptq", bits=bits, group_size=group, desc_act=desc_act, sym=False, **keys)


def packed(bits, strategy, group=None, symmetric=True, form="pack-quantized", **keys):
    args = dict(num_bits=bits, type="int", symmetric=symmetric, strategy=strategy, group_size=group, **keys)
    return dict(quant_method="compressed-tensors", format=form, ignore=["lm_head"],
                config_groups=dict(group_0=dict(targets=["Linear"], weights=args)))


COMPRESSORS = {"pack-quantized": PackedQuantizationCompressor, "int-quantized": NaiveQuantizationCompressor}
F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
# The scheme, rows, columns and the scales' type. Groups that columns do not fill end in a smaller one.
MATRICES = {
    "awq": (awq(128), 24, 416, F16),
    "awq_64": (awq(64), 16, 192, F16),
    "awq_row": (awq(-1), 8, 96, BF16),
    "gptq": (gptq(4, 128), 24, 416, F16),
    "gptq_8": (gptq(8, 32), 12, 160, F16),
    "gptq_v2": (gptq(4, 32, checkpoint_format="gptq_v2"), 16, 96, BF16),
    "gptq_v2_8": (gptq(8, -1, checkpoint_format="gptq_v2"), 8, 256, F16),
    "packed": (packed(4, "group", 128), 11, 384, BF16),
    "packed_zeros": (packed(4, "group", 32, False), 11, 96, F16),
    "packed_channel": (packed(4, "channel"), 7, 160, F32),
    "packed_8": (packed(8, "channel"), 7, 96, BF16),
    "packed_8_zeros": (packed(8, "group", 128, False), 5, 256, F16),
    "packed_tensor": (packed(4, "tensor"), 5, 64, F16),
    "whole_channel": (packed(8, "channel", form="int-quantized"), 7, 160, BF16),
    "whole_zeros": (packed(8, "group", 32, False, "int-quantized"), 5, 96, F16),
    "whole_tensor": (packed(8, "tensor", form="int-quantized"), 5, 128, F16),
    "gptq_order": (gptq(4, 128, True), 24, 416, F16),
    "gptq_order_8": (gptq(8, 32, True, checkpoint_format="gptq_v2"), 12, 160, BF16),
    "packed_order": (packed(4, "group", 32, False, actorder="group"), 11, 96, F16),
}
# bitsandbytes' type, weights that share a factor, and if factors are bytes.
TABLES = {"nf4": ("nf4", 64, False), "nf4_doubled": ("nf4", 64, True), "nf4_128": ("nf4", 128, False),
          "fp4": ("fp4", 64, False), "fp4_doubled": ("fp4", 64, True)}
CHOSEN = {F16: [0x0001, 0x83FF, 0x0400, 0x7BFF, 0xB555, 0x0000], BF16: [0x0001, 0x8080, 0x7380, 0xB555, 0x0000]}


def random_scales(shape, dtype, rng):
    """Few are chosen; those of F32 have the bits of F16, or those of BF16, at random."""
    scales = torch.from_numpy(rng.normal(0, 0.05, shape))
    if dtype == F32:
        return torch.where(torch.from_numpy(rng.random(shape) < 0.5), scales.to(F16).float(), scales.to(BF16).float())
    scales = scales.to(dtype)
    flat = scales.view(torch.int16).view(-1)
    for at, bits in zip(rng.permutation(flat.numel()), CHOSEN[dtype]):
        flat[at] = int(np.uint16(bits).view(np.int16))
    return scales


def matrix(scheme, rows, columns, dtype, rng):
    bits, group, symmetric = integer_form.weights_of(scheme)
    groups = 1 if group < 0 else -(-columns // group)
    strategy = scheme.get("config_groups", {}).get("group_0", {}).get("weights", {}).get("strategy")
    codes = rng.permutation(np.arange(rows * columns) % 2**bits).reshape(rows, columns)
    first = int(scheme["quant_method"] == "gptq" and "checkpoint_format" not in scheme)
    zeros = first + rng.permutation(np.arange(rows * groups) % (2**bits - first)).reshape(rows, groups)
    scales = random_scales((rows, groups), dtype, rng)
    if symmetric:
        zeros[:] = 2**(bits - 1)
    if strategy == "tensor":
        scales[:] = scales[0, 0]
    of = integer_form.groups_of(columns, group)
    if integer_form.is_ordered(scheme):
        of = rng.permutation(of)
    expected = integer_form.values(codes, zeros, scales, group, of)
    stored = integer_form.stored(scheme, codes, zeros, scales)
    if strategy == "tensor":
        stored["weight_scale"] = scales[0, :1].contiguous()
    if integer_form.is_ordered(scheme) and scheme["quant_method"] == "compressed-tensors":
        stored["weight_g_idx"] = torch.from_numpy(of.astype(np.int32))
    elif scheme["quant_method"] == "compressed-tensors" and columns % max(group, 1) == 0:
        args = QuantizationScheme(targets=["Linear"], weights=scheme["config_groups"]["group_0"]["weights"])
        theirs = COMPRESSORS[scheme["format"]].decompress(stored, args)["weight"]
        assert (torch.from_numpy(expected).to(dtype) == theirs).all()
    if scheme["quant_method"] == "gptq":
        stored["g_idx"] = torch.from_numpy(of.astype(np.int32))
    return {f"m.{end}": tensor for end, tensor in stored.items()} | {"m.expected": torch.from_numpy(expected)}


def mxfp4_matrix(rng):
    """Every code, and scales down to the smallest; none with which a weight is infinite. transformers' own values."""
    rows, columns = 10, 128
    codes = rng.permutation(np.arange(rows * columns // 2) % 256).astype(np.uint8).reshape(rows, -1, 16)
    scales = rng.integers(0, 252, (rows, columns // 32), dtype=np.uint8)
    scales.flat[:4] = [0, 1, 2, 251]
    codes, scales = torch.from_numpy(codes), torch.from_numpy(scales)
    expected = convert_moe_packed_tensors(codes[None], scales[None], dtype=torch.float32)[0].T.contiguous()
    return {"m.weight_blocks": codes, "m.weight_scales": scales, "m.expected": expected}


def nvfp4_matrix(divides, rng):
    """Every code and, of E4M3, every scale above zero or zero. compressed-tensors agrees where it divides."""
    rows, columns = 6, 512
    codes = rng.permutation(np.arange(rows * columns) % 16).astype(np.uint8).reshape(rows, columns)
    scales = rng.permutation(np.arange(rows * columns // 16) % 127).astype(np.uint8)
    scales[3] = 128  # a zero with a sign
    parts = codes, torch.from_numpy(scales.reshape(rows, -1)).view(torch.float8_e4m3fn), torch.tensor([1234.567 if divides else 7e-5])
    expected = torch.from_numpy(nvfp4_form.values(*parts, divides))
    stored = nvfp4_form.stored(*parts, divides)
    if divides:
        args = QuantizationScheme(targets=["Linear"], weights=dict(
            num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True))
        theirs = NVFP4PackedCompressor.decompress(stored, args)["weight"]
        assert (expected.to(theirs.dtype) == theirs).all()
    return {f"m.{end}": tensor for end, tensor in stored.items()} | {"m.expected": expected}


def f4_blocks(rng):
    """Blocks of F4_256, each second one with a factor that divides, and their values."""
    blocks = rng.integers(0, 256, (16, 148), dtype=np.uint8)
    blocks[:, 4:20] = rng.permutation(np.arange(256) % 127).reshape(16, 16)
    factors = rng.normal(0, 1, 16).astype("<f4")
    factors[::2], factors[1::2] = np.abs(factors[::2]), -np.abs(factors[1::2])
    blocks[:, :4] = factors.view(np.uint8).reshape(16, 4)
    values = np.empty((16, 256), "<f4")
    for block, factor, row in zip(blocks, factors, values):
        halves = block[20:].reshape(-1, 16)
        codes = np.stack([halves & 15, halves >> 4], 1).reshape(1, 256)
        scales = torch.from_numpy(block[4:20].copy()).view(torch.float8_e4m3fn)[None]
        row[:] = nvfp4_form.values(codes, scales, torch.tensor([abs(factor)]), factor < 0)
    return blocks.tobytes() + values.tobytes()


# Factors of a block, among them subnormal ones and, in double form, ones that a sum and product in another order miss.
FACTORS = np.array([0, 1e-45, 1e-38, 3e-38, 3e38, 1, 0.1, -0.3], np.float32)


def table_state(quant_type, groups, group, doubled, shape, rng):
    factors = rng.normal(0, 0.05, groups).astype(np.float32)
    factors[:len(FACTORS)] = FACTORS
    nested, dtype = {}, torch.bfloat16
    if doubled:
        outer = torch.from_numpy(rng.normal(0, 3, -(-groups // 256)).astype(np.float32))
        state = QuantState(absmax=outer, blocksize=256, code=create_dynamic_map(), dtype=torch.float32)
        nested = dict(offset=torch.tensor(0.3456789), state2=state)
        factors = rng.permutation(np.arange(groups) % 256).astype(np.uint8)
    return QuantState(absmax=torch.from_numpy(factors), shape=torch.Size(shape), blocksize=group, dtype=dtype,
                      code=get_4bit_type(quant_type, device="cpu"), quant_type=quant_type, **nested)


def table_matrix(quant_type, group, doubled, rng):
    """Every code with every byte of factors; groups that rows share."""
    shape = (112, 320) if doubled and quant_type == "nf4" else (9, 192)
    weights = shape[0] * shape[1]
    codes = torch.from_numpy(rng.permutation(np.arange(weights // 2) % 256).astype(np.uint8))[:, None]
    state = table_state(quant_type, -(-weights // group), group, doubled, shape, rng)
    return table_form.stored("m.weight", codes, state) | {"m.expected": table_form.values(codes, state)}


def table_blocks(quant_type, rng):
    """Blocks of NF4 or FP4, and their values."""
    blocks = rng.integers(0, 256, (32, 36), dtype=np.uint8)
    state = table_state(quant_type, 32, 64, False, (32, 64), rng)
    blocks[:, :4] = state.absmax.numpy().view(np.uint8).reshape(32, 4)
    halves = blocks[:, 4:].reshape(-1, 16)
    codes = np.stack([halves & 15, halves >> 4], 1).reshape(-1)
    pairs = torch.from_numpy(codes[::2] << 4 | codes[1::2])[:, None]
    return blocks.tobytes() + table_form.values(pairs, state).numpy().tobytes()


def blocks_of(bits, elements, rng):
    """Blocks of whole numbers, as 'Blocks by rows' (docs/formats.md), then their values. Unused bits are random."""
    count = 2048 // elements
    size = 4 + elements * bits // 8
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    values = np.empty((count, elements), "<f4")
    for b, block in enumerate(blocks):
        dtype = (F16, BF16)[b % 2]
        scale = torch.tensor(rng.normal(), dtype=dtype)
        if b // 2 < len(CHOSEN[dtype]):
            scale = torch.tensor(np.uint16(CHOSEN[dtype][b // 2]).view(np.int16)).view(dtype)
        block[:2] = np.frombuffer(scale.view(torch.int16).numpy().tobytes(), np.uint8)
        block[3] = block[3] & 0xFE | b % 2
        codes = block[4:].astype(np.int64)
        if bits == 4:  # of 16 bytes the lower halves, then the upper ones
            halves = codes.reshape(-1, 16)
            codes = np.stack([halves & 15, halves >> 4], 1).reshape(-1)
        values[b] = (codes - int(block[2])) * scale.double().item()
    return blocks.tobytes() + values.tobytes()


def main():
    for bits, elements in ((4, 32), (4, 64), (4, 128), (8, 32), (8, 128)):
        name = f"I{bits}_{elements}.blocks"
        (HERE / name).write_bytes(blocks_of(bits, elements, np.random.default_rng(elements + bits)))
    (HERE / "integers").mkdir(exist_ok=True)
    for seed, (name, (scheme, *shape)) in enumerate(MATRICES.items()):
        tensors = matrix(scheme, *shape, np.random.default_rng(seed))
        safetensors.torch.save_file(tensors, HERE / "integers" / f"{name}.safetensors", {"format": "pt"})
        (HERE / "integers" / f"{name}.json").write_text(json.dumps(scheme, indent=1) + "\n")
    mxfp4 = mxfp4_matrix(np.random.default_rng(99))
    safetensors.torch.save_file(mxfp4, HERE / "integers" / "mxfp4.safetensors", {"format": "pt"})
    for name, divides, scheme in (("nvfp4", True, configs.NVFP4_CONFIGS["llama_nvfp4"]),
                                  ("modelopt", False, configs.NVFP4_CONFIGS["llama_modelopt"])):
        tensors = nvfp4_matrix(divides, np.random.default_rng(98))
        safetensors.torch.save_file(tensors, HERE / "integers" / f"{name}.safetensors", {"format": "pt"})
        (HERE / "integers" / f"{name}.json").write_text(json.dumps(scheme["quantization_config"], indent=1) + "\n")
    for name, form in TABLES.items():
        tensors = table_matrix(*form, np.random.default_rng(96))
        safetensors.torch.save_file(tensors, HERE / "integers" / f"{name}.safetensors", {"format": "pt"})
        scheme = configs.bitsandbytes(form[0], form[2])
        (HERE / "integers" / f"{name}.json").write_text(json.dumps(scheme, indent=1) + "\n")
    for quant_type in ("nf4", "fp4"):
        (HERE / f"{quant_type.upper()}.blocks").write_bytes(table_blocks(quant_type, np.random.default_rng(95)))
    (HERE / "F4_256.blocks").write_bytes(f4_blocks(np.random.default_rng(97)))
    (HERE / "integers" / "mxfp4.json").write_text(json.dumps(dict(quant_method="mxfp4"), indent=1) + "\n")


if __name__ == "__main__":
    main()
