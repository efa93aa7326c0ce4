#!/usr/bin/env python3
"""Scores one text with each tiny checkpoint of this directory, by canopy and by transformers in float32.

  perplexities.py PROGRAM [NAME...]   (needs what requirements.txt names)

A character is a token, of a tokenizer made for this: the models' weights are random, so what counts is that the numbers
agree, over more tokens than attention's windows have. Prints a row for each; exit code 1 if two differ by more than 1e-5
of the larger. Models with a quantization_config are left out: transformers computes them with rounded weights or
activations, or not at all without a library of their format, so their goldens are made of dequantised weights.
"""
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch

import golden

HERE = pathlib.Path(__file__).parent
WINDOW, TOLERANCE = 300, 1e-5
CHARACTERS = ["Ġ", *map(chr, range(ord("!"), ord("~")))]
SPECIAL = ["<unk>", "<s>", "</s>"]
TEXT = " ".join((HERE.parents[2] / "LICENSE").read_text().split())[:2 * WINDOW]


def write_tokenizer(directory):
    """A byte-level BPE without merges: ids 0 to 2 are special, then a character each."""
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *CHARACTERS])}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (directory / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "added_tokens": [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, token in enumerate(SPECIAL)],
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [], "unk_token": None}}))
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return [vocabulary["Ġ" if c == " " else c] for c in TEXT]


def by_transformers(directory, ids, window_size):
    model = golden.load(directory)
    losses = []
    for begin in range(0, len(ids), window_size):
        window = ids[begin:begin + window_size]
        with torch.no_grad():
            logits = model(torch.tensor([window])).logits[0].double()
        likelihoods = torch.log_softmax(logits[:-1], -1)
        losses += [-row[token].item() for row, token in zip(likelihoods, window[1:])]
    return math.exp(sum(losses) / len(losses))


def by_canopy(program, directory, window_size):
    def run(*words):
        return subprocess.run([program, *words, "--quiet"], input=TEXT, capture_output=True, text=True)

    def scored(model):
        return run("perplexity", "-m", model, "-f", "-", "-c", str(window_size), "-ctk", "f32", "--json")

    done = scored(directory)
    if "canopy pack" in done.stderr:  # experts that do not lie by rows
        run("pack", "-m", directory, "-o", directory / "rows").check_returncode()
        done = scored(directory / "rows")
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)["perplexity"]


def main():
    program, *names = sys.argv[1:]
    wrong = 0
    print("| model | canopy | transformers | ratio - 1 |\n|---|---|---|---|")
    for directory in sorted(path.parent for path in HERE.glob("*/config.json")):
        if names and directory.name not in names:
            continue
        config = json.loads((directory / "config.json").read_text())
        if "quantization_config" in config:
            continue
        window = min(WINDOW, config.get("max_position_embeddings", WINDOW))
        with tempfile.TemporaryDirectory() as scratch:
            copy = pathlib.Path(scratch) / directory.name
            shutil.copytree(directory, copy)
            theirs = by_transformers(copy, write_tokenizer(copy), window)
            ours = by_canopy(program, copy, window)
        apart = ours / theirs - 1
        wrong += abs(apart) > TOLERANCE
        print(f"| {directory.name} | {ours:.4f} | {theirs:.4f} | {apart:+.1e} |", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
