#!/usr/bin/env python3
"""Checks that two builds of canopy write the same texts, bit for bit: eight prompts, five methods, three budgets, streamed
and resident, greedy and sampled. For refactorings, which must not change a bit.

    bench/same_text.py OLD NEW -m MODEL -md DRAFT [--budgets 512M,1G,4G] [-n 24] [--profile FILE]

Both builds plan with one profile (--profile, or measured by NEW at the start) and with given trees, so that their plans
cannot differ by what they measured. Exit code 1 where any text differs, with the case."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

PROMPTS = [
    "The river rose in the night, and by morning",
    "def merge(left, right):\n    result = []\n",
    "Dear Mr Andersen, thank you for",
    "Ingredients: two eggs, a cup of flour,",
    "The capital of Australia is",
    "Il y avait une fois, dans un village",
    "Q: Why is the sky blue?\nA:",
    "1, 1, 2, 3, 5, 8,",
]
METHODS = {  # and the tree that each is given
    "none": [],
    "sequoia": ["--tree", "4,2,2,1"],
    "specinfer": ["--tree", "5x4"],
    "topk": ["--tree", "4,2,2,1"],
    "chain": ["--tree-size", "5"],
}


def run(binary, words):
    done = subprocess.run([binary, *words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{binary} {' '.join(words)}\n{done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-md", "--draft", required=True)
    parser.add_argument("--budgets", default="512M,1G,4G")
    parser.add_argument("-n", "--tokens", default="24")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), help="how many of the eight")
    parser.add_argument("--temperatures", default="0,0.8", help="0 alone where --seed means another thing to OLD")
    parser.add_argument("--profile")
    parser.add_argument("--seed", default="7")
    args = parser.parse_args()
    models = ["-m", args.model]
    with tempfile.TemporaryDirectory() as folder:
        profile = args.profile
        if not profile:
            profile = str(pathlib.Path(folder) / "profile.json")
            subprocess.run([args.new, "calibrate", "hardware", *models, "-md", args.draft, "-o", profile], check=True)
        different = cases = 0
        for budget in args.budgets.split(","):
            for method, tree in METHODS.items():
                for temperature in args.temperatures.split(","):
                    for prompt in PROMPTS[:args.prompts]:
                        words = ["generate", *models, "--memory", budget, "-n", args.tokens, "-p", prompt, "--json",
                                 "--temp", temperature, "--seed", args.seed, "--profile", profile, "--spec", method,
                                 *tree]
                        if method != "none":
                            words += ["-md", args.draft]
                        old, new = run(args.old, words), run(args.new, words)
                        cases += 1
                        if old["tokens"] != new["tokens"]:
                            different += 1
                            print(f"differs: --memory {budget} --spec {method} --temp {temperature} -p {prompt!r}")
                print(f"--memory {budget} --spec {method}: {'streamed' if new['plan']['sweep_bytes'] else 'resident'}",
                      flush=True)
        print(f"{cases} cases, {different} differ")
        sys.exit(different > 0)


if __name__ == "__main__":
    main()
