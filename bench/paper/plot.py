#!/usr/bin/env python3
"""The paper's figures and tables by this project's planner: CSV files, and plots of them.

  bench/paper/plot.py [--shapes FOLDER] [--out FOLDER]

Runs build/release/bench/bench_paper (scripts/build release benches) and writes its CSV files, with plots of some, into docs/results/sequoia/. FOLDER holds published
shapes as JSON (default: those in tests/data/planner/trees). Plots need matplotlib (pip install matplotlib); without it
the CSV files are written all the same.
"""
import argparse
import csv
import pathlib
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = REPO / "build/release/bench/bench_paper"
QUESTIONS = ("growth", "growth_rate", "step_costs", "specinfer", "components", "rejection", "forward_times", "hardware_aware",
             "offloading", "offloading_levels", "shapes")


def growth(rows, plt):
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    for axis, acceptance in zip(axes, unique(rows, "acceptance")):
        for shape in unique(rows, "shape"):
            of = [r for r in rows if r["acceptance"] == acceptance and r["shape"] == shape]
            line, = axis.plot(numbers(of, "nodes"), numbers(of, "expected_tokens"), label=shape,
                              linewidth=2.5 if shape == "sequoia" else 1.2)
            bound = float(of[-1]["bound_of_the_form"])
            if bound < 14:  # others lie far above
                axis.axhline(bound, color=line.get_color(), linestyle=":", linewidth=0.8)
        axis.set(title=acceptance.split("at ")[-1], xscale="log", xlabel="nodes")
    axes[0].set_ylabel("expected tokens per step")
    axes[0].legend(frameon=False)
    figure.suptitle("Growth of tree shapes; dotted: their bounds. Measured acceptance: SmolLM2-135M, Q4_0 self-draft")
    return figure


def growth_rate(rows, plt):
    figure, axis = plt.subplots(figsize=(5.6, 4.2))
    for b in unique(rows, "b"):
        of = [r for r in rows if r["b"] == b]
        axis.plot(numbers(of, "nodes"), numbers(of, "ratio"), marker=".", label=f"b = {b}")
    axis.set(title="Synthetic acceptance: $r_k = (k+1)^{-b}$", xscale="log", xlabel="nodes n", ylim=(0, None),
             ylabel="G(n) / (b log n / log log n)")
    axis.legend(frameon=False)
    return figure


def rejection(rows, plt):
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True)
    for axis, temperature in zip(axes, unique(rows, "temperature")):
        for method in unique(rows, "method"):
            of = [r for r in rows if (r["temperature"], r["method"]) == (temperature, method)]
            axis.plot(numbers(of, "children"), numbers(of, "rejected"), marker=".", label=f"{method}: b = {float(of[0]['power_law_b']):.2f}")
        axis.set(title=f"T={temperature}", xscale="log", yscale="log", xlabel="children k")
        axis.legend(frameon=False)
    axes[0].set_ylabel("chance that all are refused, $r_k \\sim k^{-b}$")
    return figure


def forward_times(rows, plt):
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    for axis, gpu in zip(axes, unique(rows, "gpu")):
        for pair in dict.fromkeys((r["target"], r["draft"]) for r in rows if r["gpu"] == gpu):
            of = [r for r in rows if (r["gpu"], r["target"], r["draft"]) == (gpu, *pair) and r["temperature"] in ("0", "")]
            of = sorted(of, key=lambda r: float(r["nodes"]))
            axis.plot([1, *numbers(of, "nodes")], [1, *numbers(of, "t_of_n")], marker=".", label=" / ".join(pair))
        axis.set(title=gpu, xscale="log", xlabel="tokens n of a forward")
        axis.legend(frameon=False, fontsize=8)
    axes[0].set(ylabel="t(n), in forwards of one token", ylim=(0, 1.05 * max(numbers(rows, "t_of_n"))))
    return figure


def offloading_levels(rows, plt):
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    for axis, temperature in zip(axes, unique(rows, "temperature")):
        for nodes, color in zip(unique(rows, "nodes"), ("tab:green", "tab:blue", "tab:purple")):
            of = [r for r in rows if r["temperature"] == temperature and r["nodes"] == nodes]
            levels = numbers(of, "levels")
            axis.plot(levels, numbers(of, "s_per_token_by_sum"), color=color, label=f"n = {nodes}, the paper's sum")
            axis.plot(levels, numbers(of, "s_per_token_overlapped"), color=color, linestyle="--",
                      label=f"n = {nodes}, ideal overlap")
        paper = {"0": (22, 0.56), "0.6": (23, 0.69)}[temperature]
        axis.plot(*paper, "k*", markersize=11, label="paper, Table 5: n = 768")
        axis.set(title=f"T={temperature}, acceptance FITTED to the star", xlabel="levels", ylim=(0.3, 1.2))
    axes[0].set_ylabel("seconds per token, Llama2-70B on an L40")
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def unique(rows, key):
    return list(dict.fromkeys(r[key] for r in rows))


def numbers(rows, key):
    return [float(r[key]) for r in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=pathlib.Path, default=REPO / "tests/data/planner/trees")
    parser.add_argument("--out", type=pathlib.Path, default=REPO / "docs/results/sequoia")
    flags = parser.parse_args()
    flags.out.mkdir(parents=True, exist_ok=True)
    rows = {}
    for name in QUESTIONS:
        words = [PROGRAM, name] + ([flags.shapes] if name == "shapes" else [])
        text = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
        (flags.out / f"{name}.csv").write_text(text)
        rows[name] = list(csv.DictReader(text.splitlines()))
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot.py: CSV files written; no plots without matplotlib (pip install matplotlib)")
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "canopy", "svg.fonttype": "none", "axes.spines.top": False,
                                "axes.spines.right": False})
    from matplotlib import pyplot
    for plot in (growth, growth_rate, rejection, forward_times, offloading_levels):
        figure = plot(rows[plot.__name__], pyplot)
        figure.tight_layout()
        figure.savefig(flags.out / f"{plot.__name__}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
