#!/usr/bin/env python3
"""Canopy against Accelerate, DeepSpeed, AirLLM and llama.cpp: same model, same memory, same disk.

  bench/compare/run             sets up what is missing, then this script: settings are tried, then the headline table; 1.5 hours
  bench/compare/run --quick     a 2 GB model, one round
  bench/compare/run --full      also 4 bits, and over memory and model size; hours; resumes where it was
  bench/compare/run --mixture   a mixture of 48 experts, of which a token uses 4, in memory for a tenth and for a fifth of them

One system at a time, each run in a memory cgroup of the budget (page cache included), caches dropped before it, the raw disk
measured before and after it with fio, into small pages and into huge ones (the better is what shares are of); systems take
turns within a round. A run is one prompt: it ends when its tokens are there, or --limit seconds after its first token (four
times that with a draft), because systems that take 20 s for each would take hours for what others do in a minute; what they did
until then counts. Before that, but not with --quick, the settings of TRIED below are tried on a 2 GB model and other prompts,
and the fastest of each system is taken; Canopy learns on those prompts how right the draft is, which it keeps as it does for
any user, and nothing from the runs that count. What is measured is a commit: a tree with changes is refused. One line of JSON per run
goes to --out, and runs that are in it are not repeated; in the end bench/report makes a page of it.
Needs root (cgroups, caches), fio, and disk: 41 GB for the 8 GB model, as each system wants it in a form of its own; 45 GB more
with --full.
"""
import argparse
import datetime
import json
import os
import pathlib
import queue
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
sys.path.insert(0, str(REPO / "bench"))
import measuring  # noqa: E402

CANOPY = REPO / "build/release/canopy"
WORK = REPO / "build/compare"
MODELS = REPO / "models"
GIB = 1 << 30
SEED = 1
QUESTION = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n")
TOGETHER = 0.01  # seconds: tokens that come closer than this are of one step
FEWEST = 3  # tokens, where they come one by one, whatever the limit
PATIENCE = 900  # seconds for loading and the first token
SPECULATING_LONGER = 4  # times the limit: how fast these are depends on the text, so more of it is needed

# adapter, its settings, and what it needs: the model as GGUF or packed, a read-ahead in KB (else the machine's), the cap only when it has
# loaded; whether it speculates.
SYSTEMS = {
    "canopy": ("canopy", {"flags": []}, {"speculates"}),
    "canopy-packed": ("canopy", {"flags": []}, {"packed", "speculates"}),
    "canopy-chain": ("canopy", {"flags": ["--spec", "chain"]}, {"speculates"}),
    "canopy-none": ("canopy", {"flags": ["--spec", "none"]}, set()),
    "llama.cpp": ("llama_cpp", {}, {"gguf"}),
    "llama.cpp-128k": ("llama_cpp", {}, {"gguf", "read-ahead 128"}),
    "llama.cpp-chain": ("llama_cpp", {"speculation": {"spec-type": "draft-simple", "spec-draft-n-max": 8}}, {"gguf", "speculates"}),
    "accelerate": ("hf_accelerate", {}, set()),
    "deepspeed": ("zero_inference", {}, {"cap when loaded"}),
    "airllm": ("air_llm", {}, set()),
}
# Canopy keeps of a mixture's experts about a tenth and a fifth in these; the others have the same cgroup. Canopy has a draft, and its
# planner decides whether to use it.
MIXTURE_MEMORY = (1000 << 20, 1700 << 20)
MIXTURE_SYSTEMS = ["canopy", "canopy-none", "llama.cpp", "llama.cpp-128k", "accelerate"]
# What is tried of each before it is measured, {} being the adapter's own; the fastest is taken. Canopy's planner tunes itself.
TRIED = {
    "llama.cpp-chain": [{"speculation": {"spec-type": "draft-simple", "spec-draft-n-max": n}} for n in (4, 8, 16)],
    "accelerate": [{}, *({"resident": share} for share in (0.05, 0.2, 0.6, 0.75))],
    "deepspeed": [{}, {"prefetch": 0}, {"prefetch": 3.2e8, "live": 8e8}, {"block_size": 1 << 18, "queue_depth": 64},
                  {"block_size": 1 << 23, "queue_depth": 32}, {"buffer_count": 10}],
    "airllm": [{}, {"prefetching": False}],
}
TUNING_PROMPTS = [{"id": "tuning-rivers", "question": "Name three long rivers and say what each is known for."},
                  {"id": "tuning-harbour", "text": "The harbour was quiet that morning. Two boats lay at the pier, and"}]


def canopy(*words, **options):
    return subprocess.run([CANOPY, *map(str, words)], check=True, text=True, **options)


class Model:
    """A SmolLM2-135M-Instruct of about that many GB, in 16 or 4 bits, and its other forms, made when first asked for."""

    def __init__(self, gigabytes, bits=16):
        self.gigabytes, self.bits = gigabytes, bits
        self.name = f"SmolLM2-{gigabytes}G" + ("" if bits == 16 else "-q4_0")
        self.checkpoint = MODELS / f"SmolLM2-{gigabytes}G"
        self.draft = MODELS / "SmolLM2-draft-q4_0.gguf"

    def path(self, needs=frozenset()):
        """The file or folder in the form that a system needs: packed, as GGUF, else the checkpoint."""
        small = MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"
        if not self.checkpoint.exists():
            canopy("inflate", "-m", small, "-o", self.checkpoint, "--size", f"{self.gigabytes}G", "--progress")
        if not self.draft.exists():
            canopy("quantize", "-m", f"{self.checkpoint}-small", "-o", self.draft, "--type", "q4_0")
        if self.bits == 4:
            quantized = MODELS / f"{self.name}.gguf"
            if not quantized.exists():
                canopy("quantize", "-m", self.checkpoint, "-o", quantized, "--type", "q4_0", "--progress")
            return quantized
        if "packed" in needs:
            if not (packed := MODELS / f"{self.name}-packed").exists():
                canopy("pack", "-m", self.checkpoint, "-o", packed, "--progress")
            return packed
        if "gguf" not in needs:
            return self.checkpoint
        converted = MODELS / f"{self.name}-bf16.gguf"
        if not converted.exists():  # with llama.cpp's own converter, which does not look at the disk first
            size = sum(f.stat().st_size for f in measuring.weight_files(self.checkpoint))
            if (free := shutil.disk_usage(MODELS).free) < size:
                sys.exit(f"compare: {converted} would take {size / 1e9:.1f} GB and {free / 1e9:.1f} GB are free: delete models "
                         "that are done with, and run this again; it goes on where it was")
            part, log = converted.with_suffix(".part"), WORK / "logs/convert.log"
            print(f"making {converted}", flush=True)
            done = subprocess.run([WORK / "venv/bin/python", WORK / "llama.cpp/convert_hf_to_gguf.py", self.checkpoint,
                                   "--outtype", "bf16", "--outfile", part], stdout=log.open("w"), stderr=subprocess.STDOUT)
            if done.returncode != 0:
                sys.exit(f"compare: llama.cpp's converter failed: {log}")
            part.rename(converted)
        return converted

    def tokens(self, prompt):
        """A question as the model's chat template puts it, or a text as it is."""
        text = QUESTION.format(prompt["question"]) if "question" in prompt else prompt["text"]
        done = canopy("tokenize", "-m", self.checkpoint, "--json", input=text, stdout=subprocess.PIPE)
        return json.loads(done.stdout)["tokens"]


class Mixture(Model):
    """SmolLM2-135M-Instruct inflated to a Mixtral: 7.2 GiB, the same function whichever experts a router of random weights takes."""

    def __init__(self, experts=48, active=4):
        super().__init__(0)
        self.name = f"SmolLM2-{experts}x{active}"
        self.checkpoint = MODELS / self.name
        self.experts, self.active = experts, active

    def path(self, needs=frozenset()):
        small = MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"
        if not self.checkpoint.exists():
            canopy("inflate", "-m", small, "-o", self.checkpoint, "--experts", self.experts, "--active", self.active, "--progress")
        return super().path(needs)


def text_of(model, tokens):
    from tokenizers import Tokenizer
    return Tokenizer.from_file(str(model.checkpoint / "tokenizer.json")).decode(tokens)


def calibrate(model, needs, memory):
    """Measures what the first canopy generate would measure by itself, and keeps it: some seconds, once for models and machine."""
    begin = time.monotonic()
    for draft in (["-md", model.draft], []):
        canopy("calibrate", "hardware", "-m", model.path(needs), *draft, "--memory", memory, stdout=subprocess.DEVNULL,
               stderr=subprocess.DEVNULL)
    print(f"canopy calibrate hardware, {model.path(needs).name}, {memory >> 20} MiB, with the draft and without: "
          f"{time.monotonic() - begin:.0f} s", flush=True)


def learn(model, memory, temperatures):
    """Lets Canopy write texts on the prompts for tuning, as a user would: what they teach it about the draft is kept."""
    begin = time.monotonic()
    for prompt in TUNING_PROMPTS:
        for temperature in temperatures:
            for spec in ("auto", "chain"):
                canopy("generate", "-m", model.path(), "-md", model.draft, "--tokens", ",".join(map(str, model.tokens(prompt))),
                       "-n", 64, "--ignore-eos", "--temp", temperature, "--memory", memory, "--spec", spec,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(f"canopy learned from {len(TUNING_PROMPTS)} other prompts, {model.name}: {time.monotonic() - begin:.0f} s", flush=True)


def follow(process, limit, cgroup, memory):
    """The adapter's lines, and how it ended: by itself, or stopped `limit` seconds after the first token."""
    lines = queue.Queue()

    def pump():
        for line in process.stdout:
            lines.put(json.loads(line))
        lines.put(None)

    threading.Thread(target=pump, daemon=True).start()
    begun = time.monotonic()
    got, deadline, first = [], begun + PATIENCE, None
    stopped = "done"
    while True:
        try:
            line = lines.get(timeout=max(0.01, deadline - time.monotonic()))
        except queue.Empty:
            if stopped != "done":  # it had its time to stop by itself
                os.killpg(process.pid, signal.SIGKILL)
                deadline = time.monotonic() + 60
                continue
            counted = sum("token" in line for line in got)
            if 0 < counted < FEWEST and time.monotonic() - first < PATIENCE:
                deadline = time.monotonic() + limit
                continue
            stopped = "limit" if first else "too slow: no token in time"
            os.killpg(process.pid, signal.SIGINT)
            deadline = time.monotonic() + 60
            continue
        if line is None:
            return got, stopped
        if "loaded" in line and memory:
            try:
                cgroup.limit(memory)
            except OSError:
                return got, f"does not fit: {cgroup.now() >> 20} MiB in use when loaded"
        if first is None and ("token" in line or "first" in line):
            first = time.monotonic()
            # What it gives after that is not seen until it ends: time enough for a few tokens, where each takes as long.
            deadline = first + (limit if "token" in line else max(limit, FEWEST * (first - begun)))
        got.append(line)


def steps_of(times):
    """Arrivals as (time, tokens) of each step: what came together is of one."""
    steps = []
    for when in times:
        if steps and when - steps[-1][0] < TOGETHER:
            steps[-1] = (when, steps[-1][1] + 1)
        else:
            steps.append((when, 1))
    return steps


def measure(system, model, work, disk):
    """One run; its record."""
    adapter, settings, needs = SYSTEMS[system]
    if adapter == "llama_cpp" and model.bits == 4:
        settings = {**settings, "flags": ["--no-repack"]}  # else it copies the whole model into memory of its own
    path = model.path(needs)
    job = {"model": str(path), "draft": str(model.draft), "prompt": work["prompt_tokens"], "new_tokens": work["new_tokens"],
           "temperature": work["temperature"], "seed": SEED + work["round"], "memory": work["memory_bytes"],
           "threads": len(os.sched_getaffinity(0)), "folder": str(WORK / "offloaded" / f"{adapter}-{model.name}"),
           "settings": {**settings, **work["settings"]}}
    cache = WORK / "cache-of-run"  # a copy, so that no run learns from another
    shutil.rmtree(cache, ignore_errors=True)
    shutil.copytree(os.environ["XDG_CACHE_HOME"], cache)
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "CANOPY": str(CANOPY),
                   "LLAMA_SERVER": str(WORK / "llama.cpp/build/bin/llama-server"),
                   "LLAMA_CPP_PYTHON": (WORK / "llama.cpp/PYTHON_VERSION").read_text().strip(), "TOKENIZERS_PARALLELISM": "false"}
    python = WORK / "venv/bin/python"
    record = {"system": system, "model": model.name, "temperature": work["temperature"], "memory_bytes": work["memory_bytes"],
              "prompt": work["prompt"], "round": work["round"], "asked": work["settings"], "model_bytes": sum(f.stat().st_size for f in
                                                                                measuring.weight_files(path)),
              "prompt_tokens": len(job["prompt"]), "new_tokens": job["new_tokens"], "read_ahead_kb": None}
    before = disk.last
    late_cap = "cap when loaded" in needs
    limit = record["limit_seconds"] = work["limit"] * (SPECULATING_LONGER if "speculates" in needs else 1)
    with measuring.memory_cgroup("canopy_compare", None if late_cap else work["memory_bytes"]) as cgroup, \
            measuring.read_ahead(path, 128 if "read-ahead 128" in needs else None) as kilobytes, measuring.Counters(path) as counters:
        measuring.drop_caches()
        record["read_ahead_kb"] = kilobytes
        begin = time.monotonic()
        log = open(WORK / "logs" / f"{system}.log", "w")
        process = subprocess.Popen([python, HERE / "systems" / f"{adapter}.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=log, text=True, env=environment,
                                   preexec_fn=lambda: (os.setpgid(0, 0), cgroup.join()))
        try:
            process.stdin.write(json.dumps(job))
            process.stdin.close()
            lines, stopped = follow(process, limit, cgroup, work["memory_bytes"] if late_cap else None)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        record["peak_memory_bytes"] = cgroup.peak()
    after = disk.measure()
    raw = {pages: (before[pages] + rate) / 2 for pages, rate in after.items()}
    tokens = [line for line in lines if "token" in line]
    steps = steps_of([t["time"] for t in tokens])
    # The first step's tokens belong to the time to the first token: all later ones are paid for by the time after it.
    later = sum(count for _, count in steps[1:])
    failed = next((line["failed"] for line in lines if "failed" in line), None)
    if failed is None and later == 0:
        failed = f"ended with {code} after {len(tokens)} tokens" if stopped in ("done", "limit") else stopped
    record.update(stopped=stopped, failed=failed, cap_when_loaded=late_cap, tokens=[t["token"] for t in tokens],
                  text=text_of(model, [t["token"] for t in tokens]), raw_disk=raw, disk_bytes_per_second=max(raw.values()))
    for line in lines:
        if "loaded" in line:
            record.update(versions=line["versions"], settings=line["settings"], load_seconds=line["loaded"] - begin)
            if steps:
                record["first_token_seconds"] = steps[0][0] - line["loaded"]
    if not failed:
        seconds = steps[-1][0] - steps[0][0]
        read, cpu, joules = counters.between(steps[0][0], steps[-1][0])
        gaps = sorted((b - a) / count for (a, _), (b, count) in zip(steps, steps[1:]))
        at = lambda share: gaps[min(int(share * len(gaps)), len(gaps) - 1)]
        record.update(decode_tokens=later, tokens_per_step=later / (len(steps) - 1), seconds_per_token=seconds / later,
                      step_seconds_per_token={"p10": at(0.1), "median": at(0.5), "p90": at(0.9)},
                      bytes_per_token=read / later, share_of_disk=read / seconds / record["disk_bytes_per_second"],
                      cpu_seconds_per_token=cpu / later, joules_per_token=None if joules is None else joules / later,
                      energy_missing=counters.energy_missing)
    return record


def compare_texts(records, model, memory):
    """Each system's greedy text on each prompt against the longest of Canopy's; where they part, by how much the target prefers
    the token of the latter."""
    greedy = [r for r in records if r["temperature"] == 0 and r["model"] == model.name and r["tokens"] and not r["failed"]]
    for record in greedy:
        of_canopy = [r for r in greedy if r["system"].startswith("canopy") and r["prompt"] == record["prompt"]]
        longest = max(of_canopy, key=lambda r: len(r["tokens"]), default=record)
        if record is longest:
            continue
        ours, theirs = longest["tokens"], record["tokens"]
        compared = min(len(ours), len(theirs))
        common = next((i for i in range(compared) if ours[i] != theirs[i]), compared)
        margin = None
        if common < compared:
            tokens = ",".join(map(str, model.tokens(record["prompt"]) + ours[:common]))
            done = canopy("generate", "-m", model.path(), "--tokens", tokens, "-n", 1, "--ignore-eos", "--logprobs", 20, "--json",
                          "--memory", memory, stdout=subprocess.PIPE)
            logprobs = {t["id"]: t["logprob"] for t in json.loads(done.stdout)["logprobs"][0]["top_logprobs"]}
            margin = logprobs[ours[common]] - logprobs.get(theirs[common], min(logprobs.values()))
        yield {"group": "texts", "system": record["system"], "model": model.name, "prompt": record["prompt"]["id"],
               "compared": compared, "common": common, "margin": margin}


def best_settings(done, system):
    """Settings that gave the least seconds per token on the prompts for tuning; {} where nothing was tried."""
    tried = [r for r in done if r["group"] == "tuning" and r["system"] == system and not r["failed"]]
    of = lambda settings: statistics.fmean(r["seconds_per_token"] for r in tried if r["asked"] == settings)
    return min((r["asked"] for r in tried), key=of, default={})


def plan(args, done):
    """Yields what to run: (system, model, work) in order. `done` grows meanwhile."""
    prompts = [json.loads(line) for line in args.prompts.read_text().splitlines() if line.strip()]
    systems = args.systems or list(SYSTEMS)

    def rounds(group, model, memory, temperatures, systems, new_tokens=args.tokens):
        for turn in range(args.rounds):
            for temperature in temperatures:
                for system in systems[turn % len(systems):] + systems[:turn % len(systems)]:
                    yield system, model, {"group": group, "temperature": temperature, "memory_bytes": memory, "round": turn,
                                          "prompt": prompts[turn % len(prompts)], "limit": args.limit,
                                          "new_tokens": new_tokens, "settings": args.settings or best_settings(done, system)}

    def tuning():
        """On a small model and prompts that nothing else is measured on, at temperature 0; DeepSpeed does not fit in less."""
        for turn, prompt in enumerate(TUNING_PROMPTS):
            for system in (s for s in systems if s in TRIED):
                for settings in TRIED[system]:
                    yield system, Model(2), {"group": "tuning", "temperature": 0, "round": turn, "prompt": prompt, "limit": 10,
                                             "memory_bytes": 3 * GIB if system == "deepspeed" else GIB, "new_tokens": 64,
                                             "settings": settings}

    if args.mixture:
        for memory in MIXTURE_MEMORY:
            yield from rounds("mixture", Mixture(), memory, args.temp, args.systems or MIXTURE_SYSTEMS)
        return
    if args.quick:
        yield from rounds("quick", Model(2), GIB, args.temp, systems, new_tokens=64)
        return
    if not args.settings:
        yield from tuning()
    yield from rounds("headline", Model(8), 3 * GIB, args.temp, systems)
    if not args.full:
        return
    quantized = [s for s in systems if SYSTEMS[s][0] in ("canopy", "llama_cpp") and "packed" not in SYSTEMS[s][2]]
    yield from rounds("4-bit", Model(8, 4), GIB, args.temp, quantized)
    swept = [s for s in ("canopy", "canopy-none", "llama.cpp-128k", "llama.cpp-chain", "accelerate") if s in systems]
    for memory in (GIB // 2, GIB, 2 * GIB, 3 * GIB, 4 * GIB, 6 * GIB):
        yield from rounds("memory", Model(4), memory, (0,), swept)
    for size in (1, 2, 4, 8, 16):
        yield from rounds("size", Model(size), GIB, (0,), swept)


def clean_commit():
    """The commit that is measured; ends the program if the tree holds anything else."""
    git = lambda *words: subprocess.run(["git", "-C", REPO, *words], capture_output=True, text=True, check=True).stdout
    if changes := git("status", "--porcelain"):
        sys.exit(f"compare: what is measured must be a commit, and this tree has changes:\n{changes}commit them, or put them away")
    return git("describe", "--always").strip()


def describe(record):
    if record["failed"]:
        return f"failed: {record['failed'][:150]}"
    return (f"{record['seconds_per_token']:.2f} s per token ({record['decode_tokens']} tokens, {record['tokens_per_step']:.2f} "
            f"per step), first after {record['first_token_seconds']:.1f} s, {record['share_of_disk']:.0%} of fio's "
            f"{record['disk_bytes_per_second'] / 1e9:.2f} GB/s, peak {record['peak_memory_bytes'] >> 20} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a 2 GB model, one round")
    parser.add_argument("--full", action="store_true", help="also 4 bits, and sweeps over size and memory")
    parser.add_argument("--mixture", action="store_true", help="a mixture of experts, three rounds at temperature 0")
    parser.add_argument("--systems", type=lambda text: text.split(","), help=f"of {','.join(SYSTEMS)}")
    parser.add_argument("--rounds", type=int, help="runs of each system, each with another prompt; 2, or 1 with --quick, 3 with --mixture")
    parser.add_argument("--temp", type=float, nargs="+", help="temperatures; 0 and 0.6, or 0 with --mixture")
    parser.add_argument("--tokens", type=int, default=96, help="tokens of each run")
    parser.add_argument("--limit", type=float, help="seconds after the first token that a run may take; 15, or 10 with --quick")
    parser.add_argument("--prompts", type=pathlib.Path, default=HERE / "prompts.jsonl", help="JSON lines: an id, and a question or a text")
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON: other settings for the --systems, to a new --out")
    parser.add_argument("--out", type=pathlib.Path, default=WORK / "results.jsonl")
    args = parser.parse_args()
    args.rounds = args.rounds or (1 if args.quick else 3 if args.mixture else 2)
    args.temp = args.temp or ([0] if args.mixture else [0, 0.6])
    args.limit = args.limit or (10 if args.quick else 15)
    if unknown := [s for s in args.systems or [] if s not in SYSTEMS]:
        parser.error(f"--systems: {unknown[0]} is none of {', '.join(SYSTEMS)}")
    if os.geteuid() != 0:
        parser.error("needs root, to make memory cgroups and to drop caches")
    for folder in ("logs", "cache"):
        (WORK / folder).mkdir(parents=True, exist_ok=True)
    os.environ["XDG_CACHE_HOME"] = str(WORK / "cache")  # Canopy's measurements: of this comparison, not of the user
    same = ("group", "system", "model", "temperature", "memory_bytes", "round", "prompt")
    key = lambda record: [record[k] for k in same] + [record.get("asked") if record["group"] == "tuning" else None]
    done = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    facts = {"commit": clean_commit(), "machine": measuring.machine()}
    disk, calibrated, learned = None, set(), set()
    for system, model, work in plan(args, done):
        record = {"system": system, "model": model.name, "asked": work["settings"], **work}
        if any(key(record) == key(other) for other in done if other["group"] != "texts"):
            continue
        needs = SYSTEMS[system][2]
        path = model.path(needs)
        if disk is None or disk.files != measuring.weight_files(model.path()):
            disk = measuring.RawDisk(model.path())
        if SYSTEMS[system][0] == "canopy" and (path, work["memory_bytes"]) not in calibrated:
            calibrate(model, needs, work["memory_bytes"])
            calibrated.add((path, work["memory_bytes"]))
        if "speculates" in needs and SYSTEMS[system][0] == "canopy" and work["group"] == "headline" and model.name not in learned:
            learn(model, work["memory_bytes"], args.temp)
            learned.add(model.name)
        work["prompt_tokens"] = model.tokens(work["prompt"])
        print(f"{system}, {model.name}, {work['memory_bytes'] >> 20} MiB, temperature {work['temperature']}, "
              f"{work['prompt']['id']}: ", end="", flush=True)
        record = {"group": work["group"], "date": datetime.date.today().isoformat(), **facts,
                  **measure(system, model, work, disk)}
        print(describe(record), flush=True)
        with open(args.out, "a") as out:
            out.write(json.dumps(record) + "\n")
        done.append(record)
    runs = [r for r in done if r["group"] != "texts"]
    models = {model.name: (model, work["memory_bytes"]) for _, model, work in plan(args, done) if work["group"] != "tuning"}
    texts = [r for r in done if r["group"] == "texts" and r["model"] not in models]
    texts += [text for model, memory in models.values() for text in compare_texts(runs, model, memory)]
    partial = args.out.with_suffix(".partial")
    partial.write_text("".join(json.dumps(line) + "\n" for line in runs + texts))
    partial.rename(args.out)
    subprocess.run([sys.executable, REPO / "bench/report", args.out], check=True)


if __name__ == "__main__":
    main()
