#!/usr/bin/env python3
"""Steps of two ranks over TCP on this machine, next to what (T7) in docs/math.md says of them.

    bench/ranks.py MODEL DRAFT [--rates none 25gbit 10gbit 1gbit] [--limit 400M] [--rounds 3]

Each rank has a network namespace and a core; a virtual cable joins them, whose ends let through as many bits a second as --rates
says (tc's token bucket, which lets bursts of 256 KB through at once). So rates are EMULATED; the latency is that of this machine's
kernel, at every rate. Needs root, iproute2, Open MPI and a release build; nothing else should run.

A step is predicted as max(W f / b, A + X + F): W f bytes of the rank with most rows at a --limit of b; A + F from one process with all
resident, on two cores, whose A is divided as the rows are; X by (T7), with the latency and the bytes per second that the run has measured.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parents[1]
CANOPY = REPO / "build/release/canopy"
ADDRESSES = ("10.77.0.1", "10.77.0.2")
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# In place of ssh: in the namespace of that address, under a name of its own, as another machine is.
AGENT = """#!/bin/sh
host=$1; shift
exec ip netns exec "ranks-$host" unshare -u sh -c "hostname ranks-$host; $*"
"""
NODES, TOKENS = 16, 12


def do(*words):
    subprocess.run([*map(str, words)], check=True)


@contextlib.contextmanager
def cable():
    """Makes two namespaces with a cable between them; yields what makes the words that start a program in each."""
    try:
        for address in ADDRESSES:
            do("ip", "netns", "add", f"ranks-{address}")
            do("ip", "-n", f"ranks-{address}", "link", "set", "lo", "up")
        one, other = (f"ranks-{address}" for address in ADDRESSES)
        do("ip", "link", "add", "eth", "netns", one, "type", "veth", "peer", "name", "eth", "netns", other)
        for address in ADDRESSES:
            do("ip", "-n", f"ranks-{address}", "addr", "add", f"{address}/24", "dev", "eth")
            do("ip", "-n", f"ranks-{address}", "link", "set", "eth", "up")
        with tempfile.TemporaryDirectory() as folder:
            agent, hosts = pathlib.Path(folder, "agent"), pathlib.Path(folder, "hosts")
            agent.write_text(AGENT)
            agent.chmod(0o755)
            hosts.write_text("".join(f"{address} slots=1\n" for address in ADDRESSES))
            mpirun = ["mpirun", "-n", 2, "--hostfile", hosts, "--bind-to", "none", "--mca", "plm_rsh_agent", agent, "--mca", "pml", "ob1",
                      "--mca", "btl", "self,tcp"]
            yield lambda words: [agent, ADDRESSES[0], shlex.join(map(str, [*mpirun, *words]))]
    finally:
        for address in ADDRESSES:
            subprocess.run(["ip", "netns", "del", f"ranks-{address}"], stderr=subprocess.DEVNULL)


def limit_rate(rate):
    for address in ADDRESSES:
        tc = ["tc", "-n", f"ranks-{address}", "qdisc"]
        subprocess.run([*tc, "del", "dev", "eth", "root"], stderr=subprocess.DEVNULL)
        if rate != "none":
            do(*tc, "add", "dev", "eth", "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")


def generate(launch, model, threads, *words):
    words = launch([CANOPY, "generate", "-m", model, "-p", "Once upon a time", "-n", TOKENS, "--ignore-eos", "--json", "--no-learn",
                    "--device", "cpu", "-t", threads, *words])
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, env=os.environ | ROOT)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def columns_bytes(model):
    """Exchanges of a sweep, and bytes of a row's columns in all of them."""
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    heads, dim, layers = config["num_attention_heads"], config["hidden_size"], config["num_hidden_layers"]
    head_dim = config.get("head_dim") or dim // heads
    of_layer = (heads + 2 * config["num_key_value_heads"]) * head_dim + 2 * dim + config["intermediate_size"]
    return 4 * layers + 1, 4 * (layers * of_layer + config["vocab_size"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="a Hugging Face directory")
    parser.add_argument("draft", metavar="DRAFT")
    parser.add_argument("--rates", nargs="+", default=["none", "25gbit", "10gbit", "1gbit"])
    parser.add_argument("--limit", default="400M", help="--disk-limit of the runs that stream")
    parser.add_argument("--memory", default="2G", help="of each process; all of the model rests in it")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    exchanges, row_bytes = columns_bytes(args.model)
    texts = {1: ["--spec", "none"], NODES: ["-md", args.draft, "--spec", "sequoia", "--tree-size", NODES]}
    streamed = ["--resident", "none", "--disk-limit", args.limit]
    alone, drafting, shared = {}, {}, {}
    with cable() as on_both:
        for _ in range(args.rounds):
            for rows, words in texts.items():
                run = generate(list, args.model, 2, "--memory", args.memory, *words)["step"]["measured"]
                alone.setdefault(rows, []).append(run["seconds_per_step"] - run["draft_seconds"])
                run = generate(list, args.model, 1, "--memory", args.memory, *words)["step"]["measured"]
                drafting.setdefault(rows, []).append(run["draft_seconds"])
            for rate in args.rates:
                limit_rate(rate)
                for rows, words in texts.items():
                    for link in streamed, []:
                        run = generate(on_both, args.model, 1, "--memory", args.memory, *words, *link)
                        shared.setdefault((rate, rows, bool(link)), []).append(run)
    middle = statistics.median
    print("| emulated | rows | streams | latency, us | GB/s | disk, s | A, s | F, s | X, s | predicted, s | measured, s (range) | ratio |")
    print("|" + "---|" * 12)
    for (rate, rows, link), runs in shared.items():
        read = [[rank["disk_bytes"] for rank in run["ranks"]["by_rank"]] for run in shared[rate, rows, True]]
        share = middle(max(one) / sum(one) for one in read)
        latency, speed = (middle(run["ranks"][key] for run in runs) for key in ("latency_seconds", "bytes_per_second"))
        disk = middle(run["step"]["predicted"]["link_seconds"] for run in runs) if link else 0
        arithmetic, draft = 2 * share * middle(alone[rows]), middle(drafting[rows])
        exchange = exchanges * latency + rows * row_bytes / 2 / speed
        predicted = max(disk, arithmetic + draft + exchange)
        measured = [run["step"]["measured"]["seconds_per_step"] for run in runs]
        print(f"| {rate} | {rows} | {'yes' if link else ''} | {latency * 1e6:.0f} | {speed / 1e9:.2f} | {disk:.3f} | {arithmetic:.3f} | "
              f"{draft:.3f} | {exchange:.3f} | {predicted:.3f} | {middle(measured):.3f} ({min(measured):.3f} to {max(measured):.3f}) | "
              f"{middle(measured) / predicted:.2f} |")


if __name__ == "__main__":
    main()
