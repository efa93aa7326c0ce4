#!/usr/bin/env python3
"""A copy of a BF16 directory whose layers' matrices have fewer bits, in a form that models are published in: `fp8` (E4M3 with
a scale for each block of 128x128) or `int4` (compressed-tensors' pack-quantized, symmetric groups of 128 columns).

Embedding, head and norms stay. For timings: not the same function, and labelled as no release.

  bench/round_weights.py fp8|int4 FROM TO        needs torch and safetensors
"""
import argparse
import json
import pathlib
import shutil

import torch
from safetensors import safe_open
from safetensors.torch import save_file

BLOCK = 128
MOST = {"fp8": 448, "int4": 7}  # the largest code
SCHEME = {
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK],
            "modules_to_not_convert": ["lm_head"]},
    "int4": {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
             "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
                 "type": "int", "num_bits": 4, "strategy": "group", "group_size": BLOCK, "symmetric": True}}}}}


def fp8(name, weight):
    rows, columns = weight.shape
    high, wide = -(-rows // BLOCK), -(-columns // BLOCK)
    padded = torch.zeros(high * BLOCK, wide * BLOCK)
    padded[:rows, :columns] = weight.float()
    blocks = padded.view(high, BLOCK, wide, BLOCK)
    scale = blocks.abs().amax(dim=(1, 3)).clamp(min=1e-12) / MOST["fp8"]
    codes = (blocks / scale[:, None, :, None]).view(high * BLOCK, wide * BLOCK)[:rows, :columns]
    return {name: codes.to(torch.float8_e4m3fn).contiguous(), name + "_scale_inv": scale}


def int4(name, weight):
    rows, columns = weight.shape
    if columns % BLOCK:
        raise SystemExit(f"{name}: {columns} columns are no multiple of {BLOCK}")
    groups = weight.float().view(rows, columns // BLOCK, BLOCK)
    scale = (groups.abs().amax(dim=2).clamp(min=1e-12) / MOST["int4"]).to(torch.bfloat16)
    codes = (groups / scale.float()[:, :, None]).round().clamp(-8, MOST["int4"]).to(torch.int32) + 8
    words = torch.zeros(rows, columns // 8, dtype=torch.int32)
    for field in range(8):
        words |= codes.view(rows, -1, 8)[:, :, field] << 4 * field
    return {name + "_packed": words, name + "_scale": scale, name + "_shape": torch.tensor([rows, columns])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=sorted(SCHEME))
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("to", type=pathlib.Path)
    args = parser.parse_args()
    args.to.mkdir()
    files = {}
    for shard in sorted(args.source.glob("*.safetensors")):
        out = {}
        with safe_open(shard, "pt") as tensors:
            for name in tensors.keys():
                tensor = tensors.get_tensor(name)
                inside = tensor.dim() == 2 and ".layers." in name
                out |= {"fp8": fp8, "int4": int4}[args.form](name, tensor) if inside else {name: tensor}
        save_file(out, args.to / shard.name, {"format": "pt"})
        files.update(dict.fromkeys(out, shard.name))
        print(shard.name, flush=True)
    for file in args.source.glob("*.json"):
        shutil.copy(file, args.to)
    (args.to / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    config = json.loads((args.source / "config.json").read_text())
    config["quantization_config"] = SCHEME[args.form]
    config["rounded_by"] = f"bench/round_weights.py {args.form}: for timings, no release of this model"
    (args.to / "config.json").write_text(json.dumps(config, indent=2))


if __name__ == "__main__":
    main()
