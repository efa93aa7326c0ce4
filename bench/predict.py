#!/usr/bin/env python3
"""Seconds per token, predicted and measured, for settings drawn from the ranges below by a fixed seed.

    bench/predict.py -m MODEL -md DRAFT [-m MODEL -md DRAFT ...] [--prompts FILE ...] [--settings N] [--seed S] [--disk-limit RATE]

A setting is a model and its draft, a budget between the least that works and a tenth more than the model, a method, a size of its
trees and a temperature. A setting that the plan refuses is said and drawn anew. What each pair accepts at a temperature is measured once,
on other prompts of the same length (canopy calibrate acceptance). For each setting the machine is measured anew
(canopy calibrate hardware, in all the memory that is free), as a shared one changes within minutes; then it is planned from that and
its prediction printed; then it runs; then the machine is measured once more, which says how far the same plan would have been
predicted otherwise: no prediction can be better than that. Seconds of a sweep are compared, too, as few texts leave the tokens of a sweep
uncertain (their interval is printed). A plan is of a text that goes on, so all tokens of a text's last sweep count, also those that its length
cuts. --disk-limit holds the link at a rate below the disk's, whose own changes
then matter no more. Seconds are measured, so nothing else should run. The last lines say in how many settings a token and a
sweep took what was predicted within 5 %, 10 % and 20 %, in how many the tokens of a sweep were within their interval, and for each that
was not within 5 % which term is off: tokens of a sweep, the target, the draft or the link."""
import argparse
import json
import math
import pathlib
import random
import re
import subprocess
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parents[1]
CANOPY = REPO / "build/release/canopy"
PROMPTS = [REPO / "docs/results/methods" / name for name in ("prompts.jsonl", "calibrated_prompts.jsonl")]
METHODS = ("none", "chain", "sequoia", "topk", "calibrated")
TEMPERATURES = (0, .6, 1)
NODES = (4, 64)  # drawn so that each doubling is as likely as the next
EXAMPLES, TOKENS, PROMPT_TOKENS = 16, 64, 64
PLAIN_EXAMPLES = 2  # of plain decoding, whose sweeps all bring one token
ACCEPTANCE_EXAMPLES = 100


def bytes_of(model):
    path = pathlib.Path(model)
    return sum(file.stat().st_size for file in path.glob("*.safetensors")) if path.is_dir() else path.stat().st_size


def canopy(*words):
    return subprocess.run([str(CANOPY), *map(str, words)], capture_output=True, text=True)


def least_budget(model, draft, profile):
    """Bytes, from the error of a budget that cannot do."""
    error = canopy("plan", "-m", model, "-md", draft, "--memory", "1M", "--profile", profile).stderr
    found = re.search(r"at least ([\d.]+) (MiB|GiB) are needed", error)
    if not found:
        sys.exit(f"predict.py: canopy plan of {model} within 1M does not say what is needed:\n{error}")
    return float(found[1]) * (2**30 if found[2] == "GiB" else 2**20)


def least_budgets(pairs, folder):
    """By pair: the least budget in bytes, and the file of its profile."""
    least = {}
    for number, (model, draft) in enumerate(pairs):
        profile = f"{folder}/{number}.json"
        measure_machine(model, draft, profile)
        least[model, draft] = least_budget(model, draft, profile), profile
    return least


def draw(generator, least_of):
    (model, draft), (least, profile) = generator.choice(list(least_of.items()))
    memory = math.exp(generator.uniform(math.log(1.02 * least), math.log(max(1.1 * (bytes_of(model) + bytes_of(draft)), 1.1 * least))))
    method = generator.choice(METHODS)
    nodes = round(math.exp(generator.uniform(*map(math.log, NODES))))
    return {"model": model, "draft": draft, "profile": profile, "memory": f"{int(memory) >> 20}M", "method": method,
            "nodes": 1 if method == "none" else nodes, "temperature": generator.choice(TEMPERATURES)}


def in_words(setting):
    return f"{setting['memory']:>7} {setting['method']:10} {setting['nodes']:>5} {setting['temperature']:>4}"


def flags(setting, args):
    words = ["-m", setting["model"], "-md", setting["draft"], "--memory", setting["memory"], "--temp", setting["temperature"],
             "--profile", setting["profile"], "--acceptance", acceptance_of(setting)]
    return words + (["--disk-limit", args.disk_limit] if args.disk_limit else [])


def refuse(result):
    sys.exit(f"predict.py: {' '.join(result.args)} ended with {result.returncode}:\n{result.stderr}")


def measure_machine(model, draft, profile):
    result = canopy("calibrate", "hardware", "-m", model, "-md", draft, "-o", profile, "--quiet")
    if result.returncode:
        refuse(result)


def acceptance_of(setting):
    """The file of what the pair accepts at the setting's temperature, measured if it is not there."""
    file = pathlib.Path(setting["profile"]).with_suffix(f".{setting['temperature']}.acceptance.json")
    if not file.exists():
        result = canopy("calibrate", "acceptance", "-m", setting["model"], "-md", setting["draft"], "--temp", setting["temperature"],
                        "--examples", ACCEPTANCE_EXAMPLES, "--prompt-tokens", PROMPT_TOKENS, "-n", TOKENS, "-o", file, "--quiet")
        if result.returncode:
            refuse(result)
    return file


def predict(setting, args):
    """The plan's s/token, or None and the refusal."""
    if setting["method"] in ("topk", "calibrated") and setting["temperature"] > 0:
        return None, "canopy calibrate acceptance measures drawn children there, not the draft's best"
    size = ["--tree-size", setting["nodes"]] if setting["method"] != "none" else []
    result = canopy("plan", *flags(setting, args), "--spec", setting["method"], *size, "-n", PROMPT_TOKENS + TOKENS, "--json")
    if result.returncode == 0:
        return json.loads(result.stdout)["plan"]["seconds_per_token"], None
    if result.returncode not in (1, 2):
        refuse(result)
    return None, next((line for line in result.stderr.splitlines() if line.startswith("canopy")), result.stderr)


def predict_anew(setting, args):
    """The plan's s/token by a measurement of now."""
    measure_machine(setting["model"], setting["draft"], setting["profile"])
    predicted, refusal = predict(setting, args)
    if predicted is None:
        sys.exit(f"predict.py: {refusal}")
    return predicted


def measure(setting, args):
    size = ["--tree-sizes", setting["nodes"]] if setting["method"] != "none" else []
    examples = PLAIN_EXAMPLES if setting["method"] == "none" else EXAMPLES
    result = canopy("bench", "decode", *flags(setting, args), "--methods", setting["method"], *size, "--examples", examples, "-n", TOKENS,
                    "--prompt-tokens", PROMPT_TOKENS, "--prompts", args.texts, "--no-learn", "--json")
    if result.returncode:
        refuse(result)
    return json.loads(result.stdout)["rows"][-1]


def token_of(row):
    """Measured s/token, all tokens of the last sweeps counted."""
    return row["seconds_per_step"] / row["tokens_per_step"]


def sweep_ratio(row):
    return row["seconds_per_step"] / row["predicted_seconds_per_step"]


def term_off(row):
    """The name of the term whose error changes seconds per token most."""
    step, wrong = row["seconds_per_step"], {}
    wrong["tokens of a sweep"] = abs(math.log(row["predicted_tokens_per_step"] / row["tokens_per_step"]))
    for name, key in (("target", "compute_seconds"), ("draft", "draft_seconds")):
        wrong[name] = abs(row["predicted_" + key] - row[key]) / step
    rest = abs(row["predicted_seconds_per_step"] - step) / step
    wrong["link"] = max(0, rest - wrong["target"] - wrong["draft"])
    return max(wrong, key=wrong.get)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", dest="models", action="append", required=True)
    parser.add_argument("-md", dest="drafts", action="append", required=True)
    parser.add_argument("--prompts", nargs="+", type=pathlib.Path, default=PROMPTS)
    parser.add_argument("--settings", type=int, default=20)
    parser.add_argument("--seed", type=int, default=20261127)
    parser.add_argument("--disk-limit", help="bytes per second, e.g. 400M, at which the link is held")
    parser.add_argument("--out", help="writes the rows as JSON")
    args = parser.parse_args()
    if len(args.models) != len(args.drafts):
        parser.error("one -md for each -m")
    with tempfile.TemporaryDirectory() as folder:
        args.texts = joined(args.prompts, folder)
        run(args, least_budgets(list(zip(args.models, args.drafts)), folder))


def joined(files, folder):
    """One file with the texts of all, without their references."""
    texts = pathlib.Path(folder) / "prompts.jsonl"
    texts.write_text("".join(json.dumps({"text": json.loads(line)["text"]}) + "\n" for file in files for line in file.open()))
    return texts


def run(args, least_of):
    generator, rows, refused = random.Random(args.seed), [], 0
    print(f"{'memory':>7} {'method':10} {'nodes':>5} {'temp':>4}  {'predicted':>9} {'measured':>9} {'ratio':>6}  "
          "sweep: measured over predicted, tokens predicted, measured; predicted afterwards")
    while len(rows) < args.settings:
        setting = draw(generator, least_of)
        words = in_words(setting)
        predicted, refusal = predict(setting, args)
        if predicted is None:
            refused += 1
            print(f"{words}  refused: {refusal}", flush=True)
            if refused > 2 * args.settings:
                sys.exit("predict.py: most settings are refused")
            continue
        predicted = predict_anew(setting, args)
        print(f"{words}  {predicted:>9.4f}", end=" ", flush=True)
        row = measure(setting, args)
        measured, afterwards = token_of(row), predict_anew(setting, args)
        print(f"{measured:>9.4f} {measured / predicted:>6.2f}  {sweep_ratio(row):.2f}, {row['predicted_tokens_per_step']:.2f}, "
              f"{row['tokens_per_step']:.2f} ± {row['tokens_per_step_half_width']:.2f}; {afterwards:.4f}", flush=True)
        del setting["profile"]  # a file that goes
        rows.append({**setting, "predicted": predicted, "measured": measured, "afterwards": afterwards, "row": row})
        if args.out:
            pathlib.Path(args.out).write_text(json.dumps(rows, indent=1) + "\n")
    summarise(rows)


def within(ratio, percent):
    return abs(math.log(ratio)) <= math.log(1 + percent / 100)


def summarise(rows):
    ratios = [row["measured"] / row["predicted"] for row in rows]
    for name, some in (("a token", ratios), ("a sweep", [sweep_ratio(row["row"]) for row in rows])):
        print(f"seconds of {name} within " + ", ".join(f"{percent} %: {sum(within(ratio, percent) for ratio in some)} of {len(some)}"
                                                       for percent in (5, 10, 20)))
    held = sum(abs(row["row"]["predicted_tokens_per_step"] - row["row"]["tokens_per_step"]) <= row["row"]["tokens_per_step_half_width"]
               for row in rows)
    print(f"tokens of a sweep within their interval: {held} of {len(rows)}")
    for row, ratio in zip(rows, ratios):
        if not within(ratio, 5):
            print(f"{in_words(row)}  {ratio:.2f}: {term_off(row['row'])}")


if __name__ == "__main__":
    main()
