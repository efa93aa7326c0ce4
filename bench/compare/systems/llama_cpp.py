"""llama.cpp: llama-server on the model as GGUF, mapped into memory, with or without a draft model.

Settings: `speculation` holds llama-server's own flags, {} for none, `flags` any others; which are tried stands in compare.py, which
also sets the block device's read-ahead. Nothing is kept between prompts, and the draft is the one that Canopy uses.
"""
import json
import os
import re
import subprocess
import time
import urllib.request

from protocol import Channel

SERVER = os.environ["LLAMA_SERVER"]
PORT = 18080


def wait_until_ready(server):
    while server.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=5)
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"llama-server ended with {server.returncode}")


with Channel().failures() as channel:
    job = channel.job
    settings = {"speculation": {}, "flags": [], **job["settings"]}
    flags = ["-m", job["model"], "-t", job["threads"], "-c", len(job["prompt"]) + job["new_tokens"] + 64, "--port", PORT,
             "-np", 1, "--no-warmup", "--fit", "off", "--cache-ram", 0, *settings["flags"]]
    if settings["speculation"]:
        flags += ["-md", job["draft"], "-td", job["threads"]]
        for name, value in settings["speculation"].items():
            flags += [f"--{name}", value]
    version = subprocess.run([SERVER, "--version"], capture_output=True, text=True)
    version = re.search(r"version: (.*)", version.stderr + version.stdout)[1]
    server = subprocess.Popen([SERVER, *map(str, flags)])
    try:
        wait_until_ready(server)
        channel.loaded({"llama.cpp": version, "llama-cpp-python": os.environ["LLAMA_CPP_PYTHON"]}, settings)
        body = {"prompt": job["prompt"], "n_predict": job["new_tokens"], "stream": True, "return_tokens": True,
                "ignore_eos": True, "cache_prompt": False, "temperature": job["temperature"], "seed": job["seed"],
                "samplers": ["temperature"] if job["temperature"] else ["top_k"], "top_k": 0 if job["temperature"] else 1}
        request = urllib.request.Request(f"http://127.0.0.1:{PORT}/completion", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        for line in urllib.request.urlopen(request):
            if not line.startswith(b"data: "):
                continue
            event = json.loads(line[6:])
            for token in event["tokens"] if not event["stop"] else []:
                channel.token(token)
    finally:
        server.terminate()
        server.wait()
