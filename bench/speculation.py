#!/usr/bin/env python3
"""Gains of speculation on real models, against what is predicted.

  bench/speculation.py growth MODEL DRAFT              tokens per step against G(n, d), both on the same prompts
  bench/speculation.py methods MODEL DRAFT             every method of --spec at about the same number of nodes
  bench/speculation.py robustness MODEL DRAFT          Sequoia, SpecInfer and top-k over temperature and top-p, on one tree
  bench/speculation.py rejection MODEL DRAFT           every method's chance to refuse k children, over temperature
  bench/speculation.py choice MODEL DRAFT --small M    the planner's tree against other sizes and depths, on this machine
  bench/speculation.py learned MODEL DRAFT             plans by what other texts have shown of acceptance, against the default's

Each writes docs/results/speculation/NAME.csv; `plot` draws what lies there (pip install matplotlib). All but the last two
count tokens, so MODEL should be one that fits in memory; those two measure time, so nothing else should run. Needs a
release build (scripts/build release).
"""
import argparse
import csv
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

from same_text import PROMPTS

REPO = pathlib.Path(__file__).resolve().parents[1]
CANOPY = REPO / "build/release/canopy"
LEVELS = 16  # no tree is deeper: more hardly gains


def canopy(*words):
    done = subprocess.run([CANOPY, *map(str, words)], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"canopy {words[0]} failed")
    return json.loads(done.stdout)


def decode(flags, model, methods, *words):
    return canopy("bench", "decode", "-m", model, "-md", flags.draft, "--methods", methods, "--prompt-tokens", flags.tokens,
                  "-n", flags.tokens, "--json", *words)["rows"]


def examples(flags):
    return "--examples", flags.examples, "--num-sequences", flags.together


def tokens_of(row):
    return {"tokens_per_step": f"{row['tokens_per_step']:.3f}", "half_width": f"{row['tokens_per_step_half_width']:.3f}",
            "outside_loops": f"{row['tokens_per_step_outside_loops'] or 0:.3f}"}


def growth(flags):
    """Measures the vector on the prompts and lengths that are then decoded: what is left is the model, not the texts."""
    for temperature in ("0", "0.6"):
        vector = canopy("calibrate", "acceptance", "-m", flags.model, "-md", flags.draft, "--temp", temperature,
                        "--examples", flags.examples, "--prompt-tokens", flags.tokens, "-n", flags.tokens, "--json")
        kept = pathlib.Path(vector["kept_in"])
        for nodes in (16, 64, 128, 256):
            shape = ("--temp", temperature, "--tree-size", nodes, "--tree-depth", LEVELS)
            row, = decode(flags, flags.model, "sequoia", *shape, *examples(flags))
            predicted = {"predicted": row["predicted_tokens_per_step"]}
            whole = kept.read_text()
            outside = json.loads(whole)  # the same vector file with what was measured outside loops in it
            outside["accept"] = [p["mean"] for p in vector["outside_loops"]["accept"]]
            kept.write_text(json.dumps(outside))
            plan = canopy("plan", "-m", flags.model, "-md", flags.draft, "--spec", "sequoia", *shape, "--json")["plan"]
            kept.write_text(whole)
            predicted["predicted_outside_loops"] = plan["tokens_per_step"]
            yield {"temperature": temperature, "nodes": nodes, "levels": LEVELS, **tokens_of(row),
                   **{key: f"{value:.3f}" for key, value in predicted.items()}}


def methods(flags):
    for temperature in ("0", "0.6"):
        for row in decode(flags, flags.model, "all", "--temp", temperature, "--tree-size", 65, "--tree-depth", LEVELS,
                          *examples(flags)):
            yield {"temperature": temperature, "method": row["method"], "nodes": row["tree_size"], "levels": row["tree_depth"],
                   **tokens_of(row)}


def robustness(flags):
    """Temperatures without a cut, cuts at temperature 1, the tree held fixed: Sequoia's for temperature 0.6 (arXiv:2402.12374,
    Sec. 4.2)."""
    grid = [(temperature, "1") for temperature in ("0.2", "0.4", "0.6", "0.8", "1")] + [("1", "0.9"), ("1", "0.8")]
    plan = canopy("plan", "-m", flags.model, "-md", flags.draft, "--spec", "sequoia", "--temp", 0.6, "--tree-size", 65,
                  "--tree-depth", LEVELS, "--json")["plan"]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as tree:
        tree.write(json.dumps(plan["parents"]))
        tree.flush()
        for temperature, top_p in grid:
            for row in decode(flags, flags.model, "sequoia,specinfer,topk", "--temp", temperature, "--top-p", top_p,
                              "--tree", tree.name, *examples(flags)):
                yield {"temperature": temperature, "top_p": top_p, "method": row["method"], "nodes": row["tree_size"],
                       "levels": row["tree_depth"], **tokens_of(row)}


def rejection(flags):
    """Trees of k children of the root alone: a step gains one token more where one of them is accepted (Figure 3 there)."""
    for temperature in ("0.2", "0.6", "1"):
        for k in (1, 2, 4, 8, 16):
            for row in decode(flags, flags.model, "sequoia,specinfer,spectr,naive,topk", "--temp", temperature, "--tree", k,
                              *examples(flags)):
                yield {"temperature": temperature, "method": row["method"], "children": k,
                       "rejected": f"{2 - row['tokens_per_step']:.4f}", "half_width": f"{row['tokens_per_step_half_width']:.4f}"}


def choice(flags):
    """Seconds per step on MODEL of each shape next to the chosen one, which runs before and after it, because a machine drifts
    more than shapes differ; tokens per step on --small, the same function in memory, over more prompts than MODEL could
    continue in the time."""
    models = ("-m", flags.model, "-md", flags.draft, "--memory", flags.memory)
    with tempfile.TemporaryDirectory() as folder:
        profile = ("--profile", pathlib.Path(folder) / "profile.json")
        subprocess.run([CANOPY, "calibrate", "hardware", *models, "-o", profile[1]], check=True, stdout=subprocess.DEVNULL)
        best = canopy("plan", *models, *profile, "-c", 2 * flags.tokens, "--json")["plan"]
        chosen = (best["tree_size"], best["tree_depth"])
        shapes = [(n, d) for n in (8, 16, 32, 64, 128) for d in (6, 10, 16) if d < n and 16 * d > n and (n, d) != chosen]

        def step(shape):
            row, = decode(flags, flags.model, "sequoia", "--examples", 1, "--memory", flags.memory, *profile, "--tree-size",
                          shape[0], "--tree-depth", shape[1])
            return row["seconds_per_step"], row["predicted_seconds_per_step"]

        beside, alone, predicted = {shape: [] for shape in shapes}, [step(chosen)], {}
        predicted[chosen] = alone[0][1]
        for turn in range(flags.rounds):
            random.Random(turn).shuffle(shapes)
            for shape in shapes:
                seconds, predicted[shape] = step(shape)
                alone.append(step(chosen))
                beside[shape].append(2 * seconds / (alone[-2][0] + alone[-1][0]))
    of_chosen = statistics.median(seconds for seconds, _ in alone)
    ratios = {chosen: 1.0, **{shape: statistics.median(values) for shape, values in beside.items()}}
    counted = {shape: decode(flags, flags.small, "sequoia", *examples(flags), "--tree-size", shape[0], "--tree-depth", shape[1])[0]
               for shape in sorted(ratios)}
    for shape, row in counted.items():
        per_token = ratios[shape] * counted[chosen]["tokens_per_step"] / row["tokens_per_step"]
        yield {"nodes": shape[0], "levels": shape[1], "chosen": int(shape == chosen),
               "seconds_per_step": f"{of_chosen * ratios[shape]:.3f}", "predicted_seconds_per_step": f"{predicted[shape]:.3f}",
               **tokens_of(row), "per_step_to_chosen": f"{ratios[shape]:.3f}", "per_token_to_chosen": f"{per_token:.3f}"}


def learned(flags):
    """Pairs of runs on prompts other than those that were learned from, which of the two comes first in turns. Each has the same
    profile, and each of the second kind the same vectors: those of the three texts."""
    cache = pathlib.Path(os.environ["XDG_CACHE_HOME"])
    run = lambda prompt, *words: canopy("generate", "-m", flags.model, "-md", flags.draft, "--memory", flags.memory, "-p", prompt,
                                        "-n", flags.tokens, "--ignore-eos", "--json", *words)
    for prompt in PROMPTS[:3]:
        run(prompt)
    with tempfile.TemporaryDirectory() as folder:
        taught = pathlib.Path(folder) / "taught"
        shutil.copytree(cache, taught)
        for turn in range(flags.rounds):
            for prompt in PROMPTS[3:]:
                found = {}
                for kind in ("default", "learned")[::-1 if turn % 2 else 1]:
                    shutil.copytree(taught, cache, dirs_exist_ok=True)
                    found[kind] = run(prompt, *(("--no-learn",) if kind == "default" else ()))
                row = {"turn": turn, "prompt": PROMPTS.index(prompt)}
                for kind, done in sorted(found.items()):
                    row |= {f"{kind}_seconds_per_token": f"{done['seconds_per_token']:.4f}",
                            f"{kind}_tokens_per_step": f"{done['tokens_per_step']:.2f}", f"{kind}_nodes": done["plan"]["tree_size"]}
                yield row | {"times_as_fast": f"{found['default']['seconds_per_token'] / found['learned']['seconds_per_token']:.3f}"}


def numbers(rows, key):
    return [float(row[key]) for row in rows]


def mark_nodes(axis, nodes):
    axis.set_xticks(sorted(set(nodes)), [f"{n:.0f}" for n in sorted(set(nodes))])
    axis.minorticks_off()


def draw_growth(rows, pyplot):
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 4), sharey=True)
    for axis, temperature in zip(axes, ("0", "0.6")):
        of = [row for row in rows if row["temperature"] == temperature]
        nodes = numbers(of, "nodes")
        axis.errorbar(nodes, numbers(of, "tokens_per_step"), numbers(of, "half_width"), marker="o", capsize=3, label="measured")
        axis.plot(nodes, numbers(of, "predicted"), "--", label="G(n, d) of the measured vector")
        axis.plot(nodes, numbers(of, "outside_loops"), marker="o", label="measured outside loops")
        axis.plot(nodes, numbers(of, "predicted_outside_loops"), "--", label="G(n, d) of the vector outside loops")
        axis.set(title=f"T = {temperature}", xscale="log", xlabel="nodes n", ylim=(0, None))
        mark_nodes(axis, nodes)
    axes[0].set_ylabel("tokens per step")
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def draw_robustness(rows, pyplot):
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 4), sharey=True)
    for axis, over, fixed in zip(axes, ("temperature", "top_p"), ("top_p", "temperature")):
        for method in ("sequoia", "specinfer", "topk"):
            of = [row for row in rows if row[fixed] == "1" and row["method"] == method]
            axis.errorbar(numbers(of, over), numbers(of, "tokens_per_step"), numbers(of, "half_width"), marker="o",
                          capsize=3, label=method)
        axis.set(title=f"{fixed.replace('_', '-')} = 1", xlabel=over.replace("_", "-"), ylim=(0, None))
    axes[0].set_ylabel("tokens per step")
    axes[0].legend(frameon=False)
    return figure


def draw_rejection(rows, pyplot):
    temperatures = list(dict.fromkeys(row["temperature"] for row in rows))
    figure, axes = pyplot.subplots(1, len(temperatures), figsize=(11, 4), sharey=True)
    for axis, temperature in zip(axes, temperatures):
        for method in dict.fromkeys(row["method"] for row in rows):
            of = [row for row in rows if (row["temperature"], row["method"]) == (temperature, method)]
            axis.errorbar(numbers(of, "children"), numbers(of, "rejected"), numbers(of, "half_width"), marker="o", capsize=3,
                          label=method)
        axis.set(title=f"temperature {temperature}", xscale="log", yscale="log", xlabel="children k", ylim=(0.003, 1))
        mark_nodes(axis, numbers(rows, "children"))
    axes[0].set_ylabel("chance that all are refused")
    axes[0].legend(frameon=False)
    return figure


def draw_choice(rows, pyplot):
    figure, axis = pyplot.subplots(figsize=(6, 4))
    for levels in sorted({int(row["levels"]) for row in rows}):
        of = [row for row in rows if int(row["levels"]) == levels]
        axis.plot(numbers(of, "nodes"), numbers(of, "per_token_to_chosen"), marker=".", label=f"{levels} levels")
    for row in rows:
        if row["chosen"] == "1":
            axis.plot(float(row["nodes"]), float(row["per_token_to_chosen"]), "k*", markersize=13, label="chosen")
    axis.set(xscale="log", xlabel="nodes", ylabel="seconds per token, to the chosen", ylim=(0, None))
    mark_nodes(axis, numbers(rows, "nodes"))
    axis.legend(frameon=False, fontsize=8)
    return figure


def draw(out):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "canopy", "svg.fonttype": "none", "axes.spines.top": False,
                                "axes.spines.right": False})
    from matplotlib import pyplot
    for name, plot in {"growth": draw_growth, "robustness": draw_robustness, "rejection": draw_rejection, "choice": draw_choice}.items():
        file = out / f"{name}.csv"
        if not file.exists():
            continue
        figure = plot(list(csv.DictReader(file.read_text().splitlines())), pyplot)
        figure.tight_layout()
        figure.savefig(out / f"{name}.svg", metadata={"Date": None})


def main():
    questions = {question.__name__: question for question in (growth, methods, robustness, rejection, choice, learned)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", choices=[*questions, "plot"])
    parser.add_argument("model", nargs="?")
    parser.add_argument("draft", nargs="?")
    parser.add_argument("--examples", type=int, default=20, help="prompts")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of each prompt, and of each continuation")
    parser.add_argument("--together", type=int, default=6, help="prompts that share sweeps where time is not measured")
    parser.add_argument("--memory", default="600M", help="of choice and learned: the budget")
    parser.add_argument("--small", help="of choice: the same function as MODEL, in memory")
    parser.add_argument("--rounds", type=int, default=2, help="of choice and learned: times that each shape, or prompt, is timed")
    parser.add_argument("--out", type=pathlib.Path, default=REPO / "docs/results/speculation")
    flags = parser.parse_args()
    flags.out.mkdir(parents=True, exist_ok=True)
    if flags.question == "plot":
        return draw(flags.out)
    if flags.draft is None or (flags.question == "choice" and flags.small is None):
        parser.error("give a model and a draft, and --small for choice")
    with tempfile.TemporaryDirectory() as cache:  # nothing measured before may take part
        os.environ["XDG_CACHE_HOME"] = cache
        with open(flags.out / f"{flags.question}.csv", "w") as file:
            writer = None
            for row in questions[flags.question](flags):
                if writer is None:
                    writer = csv.DictWriter(file, row, lineterminator="\n")
                    writer.writeheader()
                writer.writerow(row)
                file.flush()
                print(" ".join(f"{key} {value}" for key, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
