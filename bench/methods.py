#!/usr/bin/env python3
"""The tables of docs/results/methods.md: every method, on the same prompts, from one call of this script each.

    bench/methods.py TABLE ... -m MODEL -md DRAFT [--medusa HEADS] [--acceptance FILE] [--prompts FILE] [--out DIR] [-- FLAG ...]

TABLE is one or more of those below. Each makes DIR/TABLE.json, which bench/report draws, and prints what the page shows. A row of
another draft or other flags than the table's names them after its method. Seconds are measured, so nothing else should run.

  all         every method with the draft model; then drafts without a model
  bild        BiLD over its two thresholds
  mtad        MTAD over its beams and its threshold
  medusa      heads next to no draft, a chain and a tree of the draft model, each with a plan of its own
  calibrated  chains, trees by rank and trees by a learned chance, of 16, 32 and 64 nodes; above temperature 0 with the flag
              --reproducible, so that the model's own sample decides, as for requests with a seed. Weights begin at the prior.
              Then, of each, tokens of a sweep over those of the tree by rank of its size, by pairs of the same texts

FLAGs go to every call of canopy bench decode: --temp 0.7, --top-p 0.7, --memory 600M."""
import argparse
import json
import math
import pathlib
import subprocess
import sys

import methods_page
from page import markdown

REPO = pathlib.Path(__file__).resolve().parents[1]
CANOPY = REPO / "build/release/canopy"
PROMPTS = REPO / "docs/results/methods/prompts.jsonl"
WITHOUT_A_MODEL = ("copy", "ngram:2", "ngram:1", "random")


def all_methods(draft, _, plain):
    yield "", ("-md", draft, "-mdd", "copy", "--methods", "all")
    for source in WITHOUT_A_MODEL:
        yield f" -md {source}", ("-md", source, "--methods", plain + "topk")


def bild(draft, _, plain):
    yield "", ("-md", draft, "--methods", "none,chain")
    for fallback in (".1", ".3", ".5", ".7", ".9"):
        for rollback in (1, 2, 3, 5):
            yield f" f {fallback} b {rollback}", ("-md", draft, "--methods", plain + "bild", "--fallback", fallback, "--rollback", rollback)


def mtad(draft, _, plain):
    yield "", ("-md", draft, "--methods", "none,chain")
    for beams, threshold in ((2, ".1"), (4, ".1"), (6, ".1"), (8, ".1"), (8, ".01"), (8, ".3"), (8, ".5"), (8, ".9")):
        yield f" W {beams} tau {threshold}", ("-md", draft, "--methods", plain + "mtad", "--beams", beams, "--threshold", threshold)


def medusa(draft, heads, plain):
    if not heads:
        sys.exit("methods.py medusa: give the heads with --medusa (bench/medusa/run trains them)")
    yield "", ("-md", draft, "--methods", "none,chain,sequoia")
    yield " --medusa", ("--medusa", heads, "--methods", plain + "chain,topk")


def calibrated(draft, _, plain):
    yield "", ("-md", draft, "--methods", plain + "chain,sequoia,calibrated", "--tree-sizes", "16,32,64", "--no-learn")


TABLES = {"all": all_methods, "bild": bild, "mtad": mtad, "medusa": medusa, "calibrated": calibrated}


def decode(options, words):
    words = [CANOPY, "bench", "decode", "-m", options.model, "--prompts", options.prompts, "--perplexity", "--json", *words, *options.flags]
    done = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"methods.py: failed: {' '.join(map(str, words))}")
    return json.loads(done.stdout)


def table(options, calls):
    """Returns the report of the first call, with the rows of all."""
    result, rows = None, []
    for label, words in calls:
        if options.acceptance and options.draft in words:
            words += ("--acceptance", options.acceptance)
        said = decode(options, words)
        result = result or said
        # Plain decoding has one row.
        rows += [row | {"method": row["method"] + label} for row in said["rows"] if not (rows and row["method"] == "none")]
    return result | {"rows": rows}


def shown(rows):
    """A table without the columns in which no row has a value."""
    head, *body = methods_page.table_of(rows)
    kept = [i for i in range(len(head)) if any(len(line) > i and line[i] != "-" for line in body)]
    return [[line[i] for i in kept if i < len(line)] for line in (head, *body)]


def tokens_over(row, other):
    """The ratio of their tokens of a sweep, and the half width of its 95 % interval by how the texts, which are the same, differ."""
    texts, others = row["texts"], other["texts"]
    sums = [sum(text[key] for text in side) for side in (texts, others) for key in ("tokens", "steps")]
    off = [a["tokens"] / sums[0] - a["steps"] / sums[1] - b["tokens"] / sums[2] + b["steps"] / sums[3] for a, b in zip(texts, others)]
    error = math.sqrt(len(off) / (len(off) - 1) * sum(x * x for x in off)) if len(off) > 1 else 0
    ratio = sums[0] / sums[1] / (sums[2] / sums[3])
    return ratio, 2 * error * ratio


def pairs(rows):
    by_rank = {row["tree_size"]: row for row in rows if row["method"] == "sequoia"}
    body = []
    for row in rows:
        if row["method"] in ("chain", "calibrated") and row["tree_size"] in by_rank:
            other = by_rank[row["tree_size"]]
            ratio, half_width = tokens_over(row, other)
            body.append([row["method"], str(row["tree_size"]), f"{ratio:.2f} ± {half_width:.2f}",
                         f"{row['seconds_per_token'] / other['seconds_per_token']:.2f}"])
    return [["over the tree by rank", "nodes", "tokens per step", "s per token"], *body]


def main():
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", choices=TABLES, metavar="TABLE")
    parser.add_argument("-m", dest="model", required=True)
    parser.add_argument("-md", dest="draft", required=True)
    parser.add_argument("--medusa")
    parser.add_argument("--acceptance", help="measured by canopy calibrate acceptance; for the calls with the draft model")
    parser.add_argument("--prompts", default=PROMPTS)
    parser.add_argument("--out", type=pathlib.Path, default=REPO / "build/methods")
    options = parser.parse_args(words[:cut])
    options.flags = words[cut + 1:]
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.tables:
        plain = "" if "--temp" in options.flags else "none,"  # to compare the texts of a call with
        result = table(options, TABLES[name](options.draft, options.medusa, plain))
        (options.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(f"\n{name}: {methods_page.conditions(result)}\n\n{markdown(shown(result['rows']))}", flush=True)
        if name == "calibrated":
            print(f"\n{markdown(pairs(result['rows']))}", flush=True)


if __name__ == "__main__":
    main()
