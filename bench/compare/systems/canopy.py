"""Canopy: canopy generate, as anybody calls it.

Settings: `flags`, `["--spec", "none"]` among them; nothing was tuned, the planner chooses. The cache of measurements
($XDG_CACHE_HOME) is a copy for this run alone.
"""
import itertools
import json
import os
import signal
import subprocess
import tempfile
import time

from protocol import Channel

CANOPY = os.environ["CANOPY"]
OWN = 32 << 20  # bytes of the cgroup that this adapter takes

with Channel().failures() as channel:
    job = channel.job
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # canopy stops after its step, and reports
    report = tempfile.NamedTemporaryFile(suffix=".json")
    flags = ["-m", job["model"], "--tokens", ",".join(map(str, job["prompt"])), "-n", job["new_tokens"], "--ignore-eos",
             "--temp", job["temperature"], "--memory", job["memory"] - OWN, "-t", job["threads"], "--report", report.name,
             *job["settings"]["flags"]]
    if "none" not in job["settings"]["flags"]:
        flags += ["-md", job["draft"]]
    started = time.monotonic()
    process = subprocess.Popen([CANOPY, "generate", *map(str, flags)], stdout=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    if process.stdout.read(1):
        channel.first()
    process.communicate()
    if process.returncode not in (0, 130):
        raise RuntimeError(f"canopy generate ended with {process.returncode}")
    report = json.loads(open(report.name).read())  # the file may be a new one by this name
    begun = started + report["seconds"]["load"]
    version = subprocess.run([CANOPY, "--version"], stdout=subprocess.PIPE, text=True).stdout.split()[-1]
    plan = {key: report["plan"][key] for key in ("spec", "tree_size", "tree_depth", "resident_bytes", "sweep_bytes")}
    channel.loaded({"canopy": version}, {**job["settings"], **plan, "step": report["step"]}, begun)
    tokens = iter(report["tokens"])
    for count, seconds in zip(report["step_tokens"], report["step_seconds"]):
        for token in itertools.islice(tokens, count):
            channel.token(token, begun + seconds)
