#!/usr/bin/env python3
"""The share of the link that a run uses, and what memory and model size do to it.

  bench/offload.py link MODEL...           plain decoding against fio on the same files, in turns
  bench/offload.py busy MODEL DRAFT        the link's busy share with a tree, against the formula in docs/math.md
  bench/offload.py budgets MODEL           time and bytes per sweep as the budget grows, each in a memory cgroup of its size
  bench/offload.py sizes MODEL MODEL...    time per token as the model grows, one budget

Needs a release build (scripts/build release); `link` needs fio, `budgets` the right to make memory cgroups (root).
A disk drifts, so everything runs in turns, --rounds of them, and each figure is a median next to its range.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from measuring import RawDisk, memory_cgroup, weight_files

REPO = pathlib.Path(__file__).resolve().parents[1]
CANOPY = REPO / "build/release/canopy"
PROMPT = "<|im_start|>user\nName three rivers.<|im_end|>\n<|im_start|>assistant\n"


def generate(model, *flags, **options):
    words = [CANOPY, "generate", "-m", model, "-p", PROMPT, "--ignore-eos", "--json", *flags]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def middle(values, form="{:.2f}"):
    values = list(values)
    return f"{form.format(statistics.median(values))} ({form.format(min(values))} to {form.format(max(values))})"


def table(*rows):
    print()
    for number, row in enumerate(rows):
        print("| " + " | ".join(map(str, row)) + " |", flush=True)
        if number == 0:
            print("|" + "---|" * len(row))


def link(args):
    """fio, five sweeps, fio: the disk's rate is the mean of before and after, into small pages and into huge ones."""
    for model in args.models:
        disk, rows = RawDisk(model), []
        before = disk.last
        for _ in range(args.rounds):
            run = generate(model, "--spec", "none", "-n", 6, "--memory", args.memory)
            alone = subprocess.run([CANOPY, "bench", "link", model, "-r", "2", "--json"], capture_output=True, text=True, check=True)
            cpu = json.loads(alone.stdout)["cpu_seconds_per_gb"]["median"]
            after = disk.measure()
            raw = {pages: (before[pages] + after[pages]) / 2 for pages in after}
            best = max(raw.values())
            rows.append((run["link_bytes_per_second"], raw["small"], best, run["link_bytes_per_second"] / best, run["link_busy"], cpu))
            before = after
        rate, small, best, share, busy, cpu = zip(*rows)
        table(("model", "sweeps, GB/s", "fio into small pages, GB/s", "fio at its best, GB/s", "share of that", "link busy",
               "reader's CPU seconds per GB"),
              (pathlib.Path(model).name, middle(x / 1e9 for x in rate), middle(x / 1e9 for x in small), middle(x / 1e9 for x in best),
               middle(share), middle(busy), middle(cpu, "{:.3f}")))


def steps_of(trace):
    """Largest unit in bytes; per step but the first: seconds, seconds in which the target asks for nothing, seconds that
    the link reads."""
    spans = [(e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6, e) for e in trace if e["ph"] == "X"]
    lanes = {e["args"]["name"].split(":")[0]: e["tid"] for e in trace if e["ph"] == "M" and e["name"] == "thread_name"}
    of = lambda lane: [s for s in spans if s[2]["tid"] == lanes[lane]]
    named = lambda name: [s for s in of("host") if s[2]["name"].startswith(name)]
    reads = of("link")
    steps = []
    for begin, end, _ in named("step")[1:]:
        grown = max(s[1] for s in named("grow the tree") if begin <= s[0] < end)
        last = max(s[1] for s in of("target") if begin <= s[0] < end)
        steps.append((end - begin, (grown - begin) + (end - last), sum(max(0, min(end, s[1]) - max(begin, s[0])) for s in reads)))
    return max(s[2]["args"]["bytes"] for s in reads), steps


def busy(args):
    """By the formula: a ring of R bytes, less the unit in use, fills while the target asks for nothing."""
    rows = [("ring, MiB", "resident, MiB", "link busy", "predicted", "s per step", "of them the target waits, s")]
    for memory, resident in (("1G", "auto"), ("1G", "none"), ("2G", "none")):
        shares, predictions, seconds, idles = [], [], [], []
        for _ in range(args.rounds):
            with tempfile.NamedTemporaryFile(suffix=".json") as trace:
                run = generate(args.models[0], "-md", args.models[1], "-n", 48, "--memory", memory, "--resident", resident,
                               "--trace", trace.name)
                unit, steps = steps_of(json.load(trace))
            plan = run["plan"]
            rate = sum(plan["sweep_bytes"] for _ in steps) / sum(s[2] for s in steps)
            ring = plan["ring_bytes"] - unit
            for step, idle, reads in steps:
                ahead = min(ring / rate, idle)
                shares.append(reads / step)
                predictions.append(min(1, 1 - (idle - ahead) / step))
                seconds.append(step)
                idles.append(idle)
        rows.append((plan["ring_bytes"] >> 20, plan["resident_bytes"] >> 20, middle(shares), middle(predictions),
                     middle(seconds), middle(idles)))
    table(*rows)


def budgets(args):
    sizes = [512 << 20, 768 << 20, 1 << 30, 3 << 29, 2 << 30, 3 << 30]
    runs = {size: [] for size in sizes}
    for _ in range(args.rounds):
        for size in sizes:
            with memory_cgroup("canopy_budgets", size) as group:
                run = generate(args.models[0], "--spec", "none", "-n", 4, "--memory", size, preexec_fn=group.join)
                runs[size].append((run, group.peak()))
    rows = [("budget, MiB", "peak of its cgroup, MiB", "resident, MiB", "read per sweep, MiB", "model less resident, MiB",
             "s per sweep", "GB/s")]
    for size, done in runs.items():
        plan = done[0][0]["plan"]
        rows.append((size >> 20, max(peak for _, peak in done) >> 20, plan["resident_bytes"] >> 20,
                     middle((r["bytes_per_token"] / 2**20 for r, _ in done), "{:.0f}"), plan["sweep_bytes"] >> 20,
                     middle(r["seconds_per_token"] for r, _ in done),
                     middle(r["link_bytes_per_second"] / 1e9 for r, _ in done)))
    table(*rows)


def sizes(args):
    runs = {model: [] for model in args.models}
    for _ in range(args.rounds):
        for model, done in runs.items():
            done.append(generate(model, "--spec", "none", "-n", 4, "--memory", args.memory))
    rows = [("model", "GB", "peak memory, MiB", "s per token", "read per token, GB", "s per GB read")]
    for model, done in runs.items():
        rows.append((pathlib.Path(model).name, f"{sum(f.stat().st_size for f in weight_files(model)) / 1e9:.2f}",
                     max(r["peak_memory_bytes"] for r in done) >> 20, middle(r["seconds_per_token"] for r in done),
                     middle(r["bytes_per_token"] / 1e9 for r in done),
                     middle(r["seconds_per_token"] / r["bytes_per_token"] * 1e9 for r in done)))
    table(*rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    questions = {f.__name__: f for f in (link, busy, budgets, sizes)}
    parser.add_argument("question", choices=questions)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", default="1G", help="budget of `link` and `sizes` (default: 1G)")
    args = parser.parse_args()
    if args.question == "busy" and len(args.models) != 2:
        parser.error("busy takes a model and its draft")
    questions[args.question](args)


if __name__ == "__main__":
    main()
