#!/usr/bin/env python3
"""Canopy's greedy texts of GGUF files next to llama.cpp's, one line per type of block.

    bench/compare/formats.py -m MODEL.gguf [--llama DIR] [--types Q2_K,Q4_K_M] [-n 64]

MODEL.gguf is in 16 or 32 bits (convert_hf_to_gguf.py of llama.cpp makes it); llama-quantize makes a file of each type. DIR holds
llama-server and llama-quantize: bench/compare/run builds them. llama.cpp rounds activations to 8 bits before products with
quantised rows, and Canopy does not. So each file is compared twice: with llama.cpp on the same file, and with llama.cpp on the
same values in 32 bits, which llama-quantize writes, where nothing is rounded.

Texts end at 64 tokens or where the model ends them; `whole texts` are the same to their end. `noise` is the largest difference
between the two programs' log-probabilities of one token of the same text, `margin` by how many nats Canopy prefers its own token
where two texts part. Exit code 1 where a text in 32 bits parts at more than twice the noise."""
import argparse
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "bench"))
from same_text import PROMPTS  # noqa: E402

# The rows of a small model are seldom divisible by 256: llama-quantize then takes blocks of 32. Q2_K's own mixture has Q3_K in
# place of Q2_K there, which `Q2_K+` undoes.
TYPES = {"BF16": [], "Q8_0": [], "Q4_0": [], "Q5_0": [], "Q5_1": [], "Q2_K": [], "Q2_K+": ["--tensor-type", "ffn_down=q2_k"],
         "Q3_K_M": [], "Q4_K_M": [], "Q5_K_M": [], "Q6_K": [], "IQ4_NL": [], "IQ4_XS": []}
PORT = 18081


def quantized(args, type_, source, to):
    """Returns the number of matrices of each type of block in the new file."""
    done = subprocess.run([args.llama / "llama-quantize", "--allow-requantize", *TYPES.get(type_, []), source, to,
                           type_.rstrip("+")], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"llama-quantize {type_}:\n{done.stdout}{done.stderr}")
    listed = re.findall(r"converting to (\w+)", done.stdout + done.stderr)
    return ", ".join(f"{listed.count(name)} {name}" for name in sorted(set(listed), key=lambda n: -listed.count(n)))


def of_llama(args, path):
    """Tokens of each prompt's text, with their log-probabilities."""
    server = subprocess.Popen([args.llama / "llama-server", "-m", path, "-t", "2", "-c", "512", "-np", "1", "--port", str(PORT),
                               "--no-warmup"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ask = lambda route, body=None: json.load(urllib.request.urlopen(urllib.request.Request(
        f"http://127.0.0.1:{PORT}{route}", body and json.dumps(body).encode(), {"Content-Type": "application/json"}), timeout=300))
    try:
        for _ in range(600):
            try:
                ask("/health")
                break
            except OSError:
                if server.poll() is not None:
                    sys.exit(f"llama-server ended with {server.returncode} on {path}")
                time.sleep(0.1)
        for prompt in PROMPTS:
            told = ask("/completion", {"prompt": prompt, "n_predict": args.tokens, "temperature": 0, "n_probs": 1,
                                       "cache_prompt": False, "post_sampling_probs": False})
            yield [(token["id"], token["logprob"]) for token in told["completion_probabilities"]]
    finally:
        server.terminate()
        server.wait()


def of_canopy(args, path):
    """The same, with the twenty best tokens' log-probabilities."""
    for prompt in PROMPTS:
        done = subprocess.run([args.canopy, "generate", "-m", path, "-p", prompt, "-n", str(args.tokens),
                               "--logprobs", "20", "--json"], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"canopy generate -m {path}:\n{done.stderr}")
        yield [(token["id"], token["logprob"], {top["id"]: top["logprob"] for top in token["top_logprobs"]})
               for token in json.loads(done.stdout)["logprobs"]]


def compare(theirs, ours):
    """Returns the number of tokens that are the same, the largest difference of their log-probabilities, and the margin where the
    texts part; it is infinite where one ends and the other goes on."""
    shorter = min(len(theirs), len(ours))
    common = next((i for i in range(shorter) if theirs[i][0] != ours[i][0]), shorter)
    noise = max((abs(a[1] - b[1]) for a, b in zip(theirs[:common], ours[:common])), default=0)
    if common == shorter:
        return common, noise, None if len(theirs) == len(ours) else math.inf
    _, logprob, best = ours[common]
    return common, noise, logprob - best.get(theirs[common][0], min(best.values()))


def row(found):
    """Its cells, and whether the noise explains all margins."""
    noise = max(noise for _, noise, _ in found)
    margins = sorted(margin for _, _, margin in found if margin is not None)
    cells = [str(sum(common for common, _, _ in found)), f"{len(found) - len(margins)}", f"{noise:.3f}",
             ", ".join(f"{margin:.3f}" for margin in margins)]
    return cells, all(margin <= 2 * noise for margin in margins)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, type=pathlib.Path)
    parser.add_argument("--llama", type=pathlib.Path, default=REPO / "build" / "compare" / "llama.cpp" / "build" / "bin")
    parser.add_argument("--canopy", type=pathlib.Path, default=REPO / "build" / "release" / "canopy")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("-n", "--tokens", type=int, default=64)
    args = parser.parse_args()
    if unknown := set(args.types.split(",")) - TYPES.keys():
        parser.error(f"--types: {', '.join(sorted(unknown))}: there are {', '.join(TYPES)}")
    for needed in args.model, args.canopy, args.llama / "llama-server", args.llama / "llama-quantize":
        if not needed.exists():
            parser.error(f"{needed} is not there; --help tells what makes it")
    print(f"{len(PROMPTS)} prompts, at most {args.tokens} tokens each; `in 32 bits`: of the same values, where nothing is rounded\n")
    print("| type | matrices | in 32 bits: same tokens | whole texts | noise | margins | in the file: same tokens | whole texts | noise "
          "| margins |")
    print("|" + " --- |" * 10)
    explained = True
    with tempfile.TemporaryDirectory() as folder:
        file, in_32_bits = (pathlib.Path(folder) / f"{name}.gguf" for name in ("type", "f32"))
        for type_ in args.types.split(","):
            matrices = quantized(args, type_, args.model, file)
            quantized(args, "F32", file, in_32_bits)
            ours = list(of_canopy(args, file))
            of_values, of_file = ([compare(*texts) for texts in zip(of_llama(args, path), ours, strict=True)]
                                  for path in (in_32_bits, file))
            cells, held = row(of_values)
            explained = explained and held
            print("| " + " | ".join([type_, matrices, *cells, *row(of_file)[0]]) + " |", flush=True)
    return not explained


if __name__ == "__main__":
    sys.exit(main())
