#!/usr/bin/env python3
"""A copy of a BF16 directory whose layers' matrices are E4M3 with a scale for each block of 128x128, as FP8 checkpoints are
published; embedding, head and norms stay. For timings: not the same function, and labelled as no release.

  bench/round_to_fp8.py FROM TO        needs torch and safetensors
"""
import argparse
import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file

BLOCK = 128
MOST = 448  # the largest number of E4M3


def rounded(weight):
    """Codes and scales."""
    rows, columns = weight.shape
    high, wide = -(-rows // BLOCK), -(-columns // BLOCK)
    padded = torch.zeros(high * BLOCK, wide * BLOCK)
    padded[:rows, :columns] = weight.float()
    blocks = padded.view(high, BLOCK, wide, BLOCK)
    scale = blocks.abs().amax(dim=(1, 3)).clamp(min=1e-12) / MOST
    codes = (blocks / scale[:, None, :, None]).view(high * BLOCK, wide * BLOCK)[:rows, :columns]
    return codes.to(torch.float8_e4m3fn).contiguous(), scale


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("to", type=pathlib.Path)
    args = parser.parse_args()
    args.to.mkdir()
    files = {}
    for shard in sorted(args.source.glob("*.safetensors")):
        out = {}
        for name, tensor in load_file(shard).items():
            if tensor.dim() == 2 and ".layers." in name:
                out[name], out[name + "_scale_inv"] = rounded(tensor)
            else:
                out[name] = tensor
        save_file(out, args.to / shard.name, {"format": "pt"})
        files.update(dict.fromkeys(out, shard.name))
    for file in args.source.glob("*.json"):
        shutil.copy(file, args.to)
    (args.to / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    config = json.loads((args.source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK],
                                     "modules_to_not_convert": ["lm_head"]}
    config["rounded_by"] = "bench/round_to_fp8.py: for timings, no release of this model"
    (args.to / "config.json").write_text(json.dumps(config, indent=2))


if __name__ == "__main__":
    main()
