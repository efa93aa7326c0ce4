#!/usr/bin/env python3
"""Canopy, Accelerate and DeepSpeed ZeRO-Inference on a GPU that the model does not fit: random weights of a real shape.

  bench/compare/run --device cuda [FLAG ...]      or this script, where torch, transformers, accelerate and deepspeed are

SYNTHETIC: the weights are noise, what is moved and computed is what real ones would need. Same shape, same budget of the
GPU, one system at a time, in turns. Canopy's tokens per step with a tree are those expected of an acceptance vector
(--acceptance), as there is no draft of random weights to ask; the others, and canopy-none, get one token for a sweep.
A line as each run ends, and a line of JSON to --out; a run that fails is a line, too.
"""
import argparse
import datetime
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
TORCH = REPO / "bench/compare/systems/random_torch.py"
# Fields of transformers' LlamaConfig, as canopy's config.json has it, too.
COMMON = {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "vocab_size": 32000}
SHAPES = {
    "llama-2-70b": COMMON | {"num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64,
                             "num_key_value_heads": 8},
    "llama-2-7b": COMMON | {"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
                            "num_key_value_heads": 32},
    "tiny": COMMON | {"num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
                      "num_key_value_heads": 2, "vocab_size": 512}}
SYSTEMS = ("canopy", "canopy-none", "deepspeed-cpu", "accelerate-cpu", "accelerate-disk")


def size(text):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size; write e.g. 24G")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2] or " "))


def run_canopy(args, system, folder):
    shapes = []
    for name, shape in (("target", args.shape), ("draft", args.draft_shape)):
        shapes.append(folder / f"{name}.json")
        shapes[-1].write_text(json.dumps(shape | {"model_type": "llama"}))
    words = [args.canopy, "bench", "offload", "--jsonl", "-m", shapes[0], "-md", shapes[1], "--device", args.device, "--dir", folder,
             "--tree-sizes", "1" if system == "canopy-none" else args.tree_size, "--steps", args.tokens,
             "--prompt-tokens", args.prompt_tokens, *(["--acceptance", args.acceptance] if args.acceptance else []),
             *(["--gpu-memory", args.gpu_memory] if args.device == "cuda" else [])]
    return words, "", lambda row: {
        "seconds_per_token": row["seconds_per_token"], "seconds_per_step": row["seconds_per_step"],
        "tokens_per_step": row["tokens_per_step"], "prefill_seconds": row["prefill_seconds"], "gpu_bytes": row.get("planned_gpu_bytes"),
        "link_bytes_per_second": row["link_bytes_per_second"], "joules_per_token": row["joules_per_token"],
        "energy_missing": row["energy_missing"], "settings": {"resident_layers": row["resident_layers"]},
        "versions": {"canopy": row["version"]}}


def run_torch(args, system, folder):
    job = {"how": system, "shape": args.shape, "device": args.device, "gpu_memory": args.gpu_memory if args.device == "cuda" else None,
           "prompt_tokens": args.prompt_tokens, "tokens": args.tokens, "folder": str(folder / "offloaded"),
           "packages": args.packages and str(args.packages.resolve())}
    return [args.python, TORCH], json.dumps(job), lambda row: {
        "seconds_per_token": statistics.median(row["token_seconds"]), "tokens_per_step": 1, **row}


def measure(args, system, turn, limit):
    record = {"system": system, "round": turn, "model": args.model, "layers": args.shape["num_hidden_layers"], "device": args.device,
              "gpu_memory_bytes": args.gpu_memory, "prompt_tokens": args.prompt_tokens, "synthetic": True,
              "date": datetime.date.today().isoformat()}
    with tempfile.TemporaryDirectory(prefix="canopy_compare_", dir=args.dir) as folder:
        prepare = run_canopy if system.startswith("canopy") else run_torch
        words, stdin, read = prepare(args, system, pathlib.Path(folder))
        begin = time.monotonic()
        done = subprocess.run(["timeout", "-k", "5", str(limit), *map(str, words)], input=stdin, capture_output=True, text=True)
    rows = [line for line in done.stdout.splitlines() if line.startswith("{")]
    row = json.loads(rows[-1]) if rows else {}
    if done.returncode == 0 and rows:
        return record | read(row)
    why = f"stopped after {limit:.0f} s" if done.returncode in (124, 137) else row.get("error") or (
        (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:300])
    return record | {"failed": why, "exit_code": done.returncode, "seconds": time.monotonic() - begin}


def describe(record):
    if "failed" in record:
        return f"{record['system']}: failed: {record['failed']}"
    memory = f", {record['gpu_bytes'] / 2**30:.1f} GiB of the GPU" if record.get("gpu_bytes") else ""
    return (f"{record['system']}: {record['seconds_per_token']:.3f} s per token ({record['tokens_per_step']:.2f} per step), prompt "
            f"{record['prefill_seconds']:.2f} s{memory}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: for tests of this script")
    parser.add_argument("--model", choices=SHAPES, default="llama-2-70b")
    parser.add_argument("--draft", choices=SHAPES, default="llama-2-7b")
    parser.add_argument("--layers", type=int, help="of the model, fewer than it has, where host memory is short: DeepSpeed holds each")
    parser.add_argument("--gpu-memory", type=size, default="24G", help="that each may use (24G)")
    parser.add_argument("--tree-size", type=int, default=768, help="nodes of Canopy's trees (768)")
    parser.add_argument("--acceptance", type=pathlib.Path, help="as canopy bench offload takes it (a self-draft's)")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=4, help="sweeps that are timed, of each (4)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=150, help="seconds of a run (150)")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds of all: no run begins that would not fit")
    parser.add_argument("--systems", type=lambda text: text.split(","), default=list(SYSTEMS), help=",".join(SYSTEMS))
    parser.add_argument("--canopy", type=pathlib.Path, default=REPO / "build/release/canopy")
    parser.add_argument("--python", default=sys.executable, help="that has torch and the others")
    parser.add_argument("--packages", type=pathlib.Path, help="a folder with those that this Python lacks")
    parser.add_argument("--dir", type=pathlib.Path, help="for the weights while a run lasts (the temporary folder)")
    parser.add_argument("--out", type=pathlib.Path, default=REPO / "build/compare/gpu.jsonl")
    args = parser.parse_args()
    if unknown := [s for s in args.systems if s not in SYSTEMS]:
        parser.error(f"--systems: {unknown[0]} is none of {', '.join(SYSTEMS)}")
    args.shape, args.draft_shape = dict(SHAPES[args.model]), SHAPES[args.draft]
    if args.layers is not None and not 1 <= args.layers <= args.shape["num_hidden_layers"]:
        parser.error(f"--layers: {args.model} has {args.shape['num_hidden_layers']}")
    args.shape["num_hidden_layers"] = args.layers or args.shape["num_hidden_layers"]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    end, failed = time.monotonic() + args.budget, 0
    for turn in range(args.rounds):
        shift = turn % len(args.systems)
        for system in args.systems[shift:] + args.systems[:shift]:
            left = end - time.monotonic()
            if left < 20:
                record = {"system": system, "round": turn, "failed": "no time is left"}
            else:
                record = measure(args, system, turn, min(args.limit, left))
            failed += "failed" in record
            print(describe(record), flush=True)
            with open(args.out, "a") as out:
                out.write(json.dumps(record) + "\n")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
