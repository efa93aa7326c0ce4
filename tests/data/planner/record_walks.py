#!/usr/bin/env python3
"""Writes walks.json: for texts of several kinds, which child of the draft's each position of the target's own text went on with.

Usage: record_walks.py CANOPY TARGET DRAFT KIND[:chat]=PROMPTS ... > walks.json, from the sets of the project's issues:
c4=c4.jsonl wikitext=wikitext.jsonl oasst:chat=oasst.jsonl mtbench:chat=mtbench.jsonl, fifty prompts each. The kind "default" is
the set that comes with the program. Prompts of a :chat kind are put as a user's turn, in SmolLM2's template. A position is a
digit of base 32, the rank of the child, or a dot where that was none of 32. No word of a prompt is kept.
"""
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

TOKENS = 128  # of each prompt at most, and of each continuation, unless the model ends it
DIGITS = "0123456789abcdefghijklmnopqrstuv"
CHAT = ("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n"
        "<|im_start|>assistant\n")


def record(canopy, target, draft, temperature, prompts, count, folder):
    walks = folder / "walks.jsonl"
    words = [canopy, "calibrate", "acceptance", "-m", target, "-md", draft, "--temp", temperature, "--seed", "1",
             "--examples", str(count), "--prompt-tokens", str(TOKENS), "-n", str(TOKENS), "--walks", walks,
             "-o", folder / "vector.json", *(("--prompts", prompts) if prompts else ())]
    subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line)["taken"] for line in walks.read_text().splitlines()]
    return ["".join("." if child < 0 else DIGITS[child] for child in taken) for taken in lines]


def main():
    canopy, target, draft, *sets = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        kinds = {"default": (None, 45)}
        for one in sets:
            kind, file = one.split("=", 1)
            texts = [json.loads(line)["text"] for line in pathlib.Path(file).read_text().splitlines()]
            if kind.endswith(":chat"):
                kind, texts = kind.removesuffix(":chat"), [CHAT.format(text) for text in texts]
            prompts = folder / f"{kind}.jsonl"
            prompts.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
            kinds[kind] = prompts, len(texts)
        out = {"about": "record_walks.py wrote this; docs/results/acceptance.md, \"How far texts differ\", reads it",
               "target": pathlib.Path(target).name, "draft": pathlib.Path(draft).name, "date": str(datetime.date.today()),
               "walks": {kind: {t: record(canopy, target, draft, t, *kinds[kind], folder) for t in ("0", "0.6")}
                         for kind in kinds}}
    print(json.dumps(out, indent=1))


main()
