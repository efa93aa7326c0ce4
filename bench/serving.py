#!/usr/bin/env python3
"""The worth of sharing sweeps, and its cost for the others: canopy serve under requests that come together.

    bench/serving.py sharing  -m MODEL -md DRAFT --memory 1G [--requests 8] [-n 96]
    bench/serving.py fairness -m MODEL -md DRAFT --memory 2G [--prompt 2000]
    bench/serving.py places   -m MODEL -md DRAFT --memory 1G,1536M,3G,4G [--places 1,2,4,8] [-n 96]
    bench/serving.py pool     -m MODEL --memory 1G,2G,3G [--places 1,2,8] [--prompt 48] [-n 16]
    bench/serving.py growth   -m MODEL --memory 1G,2G,3G [--prompt 6000] [-n 8]
    bench/serving.py peer     -m MODEL -md DRAFT --memory 1G --llama-server PROGRAM --gguf MODEL.gguf

sharing: the same requests one after another, then at once, each on a fresh server: tokens per second of all of them, and whether each
text is what it was alone. fairness: a long prompt alone, then next to a text that is being written: how much longer it takes until its
first token, and how much longer the text's sweeps become. places: one text alone on servers of these places and budgets, what was
predicted of it and what it took; another build by --canopy. pool: one text without a draft where weights give way to texts, and where as
many weights rest as full caches leave room for (--resident). growth: a text as long as the one that the plan prices, without a draft, and
one that fills its place, for which weights go, next to what the plan said of both. peer: the requests of sharing at once, to canopy serve
and to llama-server with the same draft and as many slots, each in a memory cgroup of the budget (as root); llama-server with chains of 4,
8 and 16 tokens and without a draft, as which is fastest depends on the machine.
Seconds are of this machine; the ratios are the result. A machine that does something else gives other ratios."""
import argparse
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.request

import measuring

REPO = pathlib.Path(__file__).resolve().parents[1]
TEXTS = [text.strip() for text in (REPO / "src/measure/calibration_prompts.txt").read_text().split("\n\n") if text.strip()]


@contextlib.contextmanager
def server(args, *flags, join=None, cache=("-ctk", "f16")):
    """Its port, while it runs; `join` is called in the process before it starts."""
    words = [args.canopy, "serve", "-m", args.model, "--port", "0", "--memory", args.memory, *cache, "--no-learn", *flags]
    if args.draft:
        words += ["-md", args.draft]
    process = subprocess.Popen([str(word) for word in words], stderr=subprocess.PIPE, text=True, preexec_fn=join)
    try:
        log = []
        for line in process.stderr:
            log.append(line)
            if found := re.match(r"serving .* on http://[^:]*:(\d+): (\d+) texts?", line):
                break
        else:
            sys.exit("canopy serve ended:\n" + "".join(log))
        if int(found[2]) > 1 or "--parallel" not in flags:
            print(f"# {found[2]} texts share a sweep", flush=True)
        yield int(found[1])
    finally:
        process.send_signal(signal.SIGTERM)
        process.stderr.close()
        process.wait()


def post(port, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=36000)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    answer = json.loads(reply.read())
    if reply.status != 200:
        sys.exit(f"{path}: {answer}")
    return answer


def ask(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as reply:
        return json.load(reply)


def prompts(port, count, tokens):
    """Texts of that many tokens each, numbered, so that none begins like another and finds that read."""
    out = []
    for i in range(count):
        text = f"{i + 1}. " + " ".join(TEXTS[i % len(TEXTS):] + TEXTS[:i % len(TEXTS)])
        while len(ids := post(port, "/tokenize", {"content": text})["tokens"]) < tokens:
            text += " " + text
        out.append(ids[:tokens])
    return out


def write(port, prompt, tokens):
    reply = post(port, "/v1/completions", {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True})
    if cached := reply["usage"]["prompt_tokens_details"]["cached_tokens"]:
        sys.exit(f"{cached} tokens of a prompt were read before: what is measured would seem faster")
    return reply


def sharing(args):
    texts, rate = {}, {}
    for way in "alone", "together":
        with server(args, "--parallel", args.requests, "-c", 64 + args.tokens + 1) as port:
            asked = prompts(port, args.requests, 64)
            start = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(args.requests if way == "together" else 1) as pool:
                replies = list(pool.map(lambda prompt: write(port, prompt, args.tokens), asked))
            seconds = time.monotonic() - start
        texts[way] = [reply["choices"][0]["text"] for reply in replies]
        rate[way] = args.requests * args.tokens / seconds
        sweeps = sum(reply["timings"]["sweeps"] for reply in replies)
        print(f"{way}: {seconds:.1f} s, {rate[way]:.2f} tokens per second, {sweeps} sweeps of texts", flush=True)
    differ = sum(a != b for a, b in zip(texts["alone"], texts["together"]))
    print(f"together over alone: {rate['together'] / rate['alone']:.2f}; {differ} of {args.requests} texts differ")
    return differ


def first_token(port, prompt):
    start = time.monotonic()
    write(port, prompt, 1)
    return time.monotonic() - start


def stream_gaps(port, prompt, tokens, gaps, begun):
    """Appends (when, seconds) for each piece of a stream."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=36000)
    connection.request("POST", "/v1/completions", json.dumps({
        "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}))
    last = None
    for line in connection.getresponse():
        if line.startswith(b"data: {"):
            now = time.monotonic()
            if last is not None:
                gaps.append((now, now - last))
            last = now
            begun.append(True)


def fairness(args):
    with server(args, "--parallel", 2, "-c", args.prompt + 400) as port:
        long, other, short = prompts(port, 3, args.prompt)
        alone = first_token(port, long)
        gaps, begun = [], []
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            text = pool.submit(stream_gaps, port, short[:64], 300, gaps, begun)
            while len(begun) < 8 and not text.done():
                time.sleep(0.05)
            start = time.monotonic()
            beside = first_token(port, other)
            end = time.monotonic()
            enough = time.monotonic() + 20
            while time.monotonic() < enough and not text.done():
                time.sleep(0.1)
    quiet = [seconds for when, seconds in gaps if when < start or when - seconds > end]
    busy = [seconds for when, seconds in gaps if start < when - seconds and when < end]
    mean = lambda values: sum(values) / max(1, len(values))
    print(f"a prompt of {args.prompt} tokens: {alone:.1f} s alone, {beside:.1f} s beside a text: {beside / alone:.2f} times as long")
    print(f"the text's sweeps: {mean(quiet):.2f} s alone ({len(quiet)}), {mean(busy):.2f} s beside the prompt ({len(busy)}): "
          f"{mean(busy) / max(1e-9, mean(quiet)):.2f} times as long")
    return 0


def places(args):
    """One text on servers of all sizes; the first sweep, which reads the prompt, does not count."""
    print(f"{'memory':>8} {'places':>6} {'context':>7}  {'method':8} {'nodes':>5} {'predicted':>9} {'measured':>9}  s/token of one text")
    for args.memory in args.memory.split(","):
        for count in map(int, args.places.split(",")):
            try:
                with server(args, "--parallel", count, *(("--profile", args.profile) if args.profile else ()), cache=()) as port:
                    props = ask(port, "/props")
                    plan, slots = props["canopy"], props["total_slots"]
                    predicted = plan.get("predicted", {}).get("one_text", {}).get("seconds_per_token", float("nan"))
                    prompt = prompts(port, 1, 64)[0]
                    write(port, prompt, 4)  # what is made the first time
                    timings = write(port, prompt[1:], args.tokens)["timings"]
                    print(f"{args.memory:>8} {slots:>6} {props['default_generation_settings']['n_ctx']:>7}  {plan['method']:8} "
                          f"{plan['tree_nodes']:>5} {predicted:>9.3f} {1 / timings['predicted_per_second']:>9.3f}", flush=True)
            except SystemExit as refused:
                print(f"{args.memory:>8} {count:>6}  refused: {str(refused).splitlines()[-1][:80]}", flush=True)
    return 0


def pool(args):
    """The last sweep of a text, by what its server reports; a server for each."""
    def last_sweep(count, *resident):
        with server(args, "--spec", "none", "--parallel", count, *resident, cache=()) as port:
            plan = ask(port, "/props")["canopy"]
            write(port, prompts(port, 1, args.prompt)[0], args.tokens)
            state = ask(port, "/canopy/state")
            rests = state["pool"]["resident_bytes"] if state["pool"]["bytes"] else plan["resident_bytes"]
            return state["last"]["seconds"], plan["predicted"]["one_text"]["seconds_per_token"], rests, plan.get("full_resident_bytes")

    print(f"{'memory':>8} {'places':>6}  {'pool: measured':>14} {'predicted':>9} {'GB rest':>7}  {'fixed: measured':>15} {'GB rest':>7} {'ratio':>6}"
          "  s/token of one text")
    for args.memory in args.memory.split(","):
        for count in map(int, args.places.split(",")):
            try:
                seconds, predicted, rests, full = last_sweep(count)
                row = f"{args.memory:>8} {count:>6}  {seconds:>14.3f} {predicted:>9.3f} {rests / 1e9:>7.2f}"
                if full is not None:
                    fixed, _, fixed_rests, _ = last_sweep(count, "--resident", full)
                    row += f"  {fixed:>15.3f} {fixed_rests / 1e9:>7.2f} {fixed / seconds:>6.2f}"
                print(row, flush=True)
            except SystemExit as refused:
                print(f"{args.memory:>8} {count:>6}  refused: {str(refused).splitlines()[-1][:80]}", flush=True)
    return 0


def growth(args):
    end = f"{'tokens':>6} {'s/token':>8} {'predicted':>9} {'GB rest':>7}"
    print(f"{'memory':>8}  {end}  grown: {end}  slower by: measured, predicted")
    for args.memory in args.memory.split(","):
        try:
            with server(args, "--spec", "none", "--parallel", 1, "-c", args.prompt + args.tokens + 1, cache=()) as port:
                predicted = ask(port, "/props")["canopy"]["predicted"]
                ends = [predicted[end] for end in ("one_text", "full_house")]
                said = [end["seconds_per_token"] for end in ends]
                took, cells = [], []
                for i, length in enumerate(round(end["text_tokens"]) for end in ends):
                    prompt = prompts(port, 2, length - args.tokens - 1)[i]  # begins unlike the other
                    timings = write(port, prompt, args.tokens)["timings"]
                    took.append(timings["predicted_ms"] / 1000 / (timings["predicted_n"] - 1))  # the prompt's sweep brings the first
                    rests = ask(port, "/canopy/state")["pool"]["resident_bytes"] / 1e9
                    cells.append(f"{length:>6} {took[i]:>8.3f} {said[i]:>9.3f} {rests:>7.2f}")
                print(f"{args.memory:>8}  {cells[0]}         {cells[1]}  {took[1] / took[0]:.2f}, {said[1] / said[0]:.2f}", flush=True)
        except SystemExit as refused:
            print(f"{args.memory:>8} {args.prompt:>6}  refused: {str(refused).splitlines()[-1][:80]}", flush=True)
    return 0


@contextlib.contextmanager
def llama_server(args, *flags, join):
    """As server(), of llama.cpp; without a prompt cache, whose memory would come on top."""
    port = 18081
    context = args.requests * (64 + args.tokens + 64)  # shared out evenly over the slots
    words = [args.llama_server, "-m", args.gguf, "--port", port, "-np", args.requests, "-c", context, "-t",
             len(os.sched_getaffinity(0)), "--no-warmup", "--fit", "off", "--cache-ram", 0, *flags]
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=join)
    try:
        while True:
            if process.poll() is not None:
                sys.exit(f"llama-server ended with {process.returncode}: {' '.join(map(str, words))}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except OSError:
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


def llama_write(port, prompt, tokens):
    body = {"prompt": prompt, "n_predict": tokens, "ignore_eos": True, "cache_prompt": False, "samplers": ["top_k"], "top_k": 1}
    return post(port, "/completion", body)["content"]


def peer(args):
    if not (args.llama_server and args.gguf and args.draft):
        sys.exit("bench/serving.py: peer needs --llama-server, --gguf and -md")
    with server(args, "--parallel", args.requests, "-c", 64 + args.tokens + 1) as port:
        asked = prompts(port, args.requests, 64)

    def measured(name, serving, write):
        """Tokens per second of all requests at once, and their texts; in a cgroup of the budget, from cold caches."""
        with measuring.memory_cgroup("canopy_serving", args.memory) as cgroup:
            measuring.drop_caches()
            with serving(cgroup.join) as port:
                start = time.monotonic()
                with concurrent.futures.ThreadPoolExecutor(args.requests) as pool:
                    texts = list(pool.map(lambda prompt: write(port, prompt, args.tokens), asked))
                seconds = time.monotonic() - start
            peak = cgroup.peak()
        rate = args.requests * args.tokens / seconds
        print(f"{name}: {seconds:.1f} s, {rate:.2f} tokens per second, peak {peak >> 20} MiB", flush=True)
        return rate, texts

    def canopy(join):
        return server(args, "--parallel", args.requests, "-c", 64 + args.tokens + 1, join=join)

    ours, texts = measured("canopy serve", canopy, lambda *words: write(*words)["choices"][0]["text"])
    draft = ["-md", args.draft, "-td", len(os.sched_getaffinity(0)), "--spec-type", "draft-simple", "--spec-draft-n-max"]
    ways = {f"llama-server, chains of {length}": [*draft, length] for length in (4, 8, 16)} | {"llama-server, no draft": []}
    for name, flags in ways.items():
        theirs, others = measured(name, lambda join: llama_server(args, *flags, join=join), llama_write)
        same = sum(a == b for a, b in zip(texts, others))
        print(f"  canopy serve is {ours / theirs:.2f} times as fast; {same} of {args.requests} texts are the same")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["sharing", "fairness", "places", "pool", "growth", "peer"])
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-md", "--draft")
    parser.add_argument("--memory", required=True)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("-n", "--tokens", type=int, default=96)
    parser.add_argument("--prompt", type=int, default=2000)
    parser.add_argument("--canopy", default=os.environ.get("CANOPY", REPO / "build/release/canopy"))
    parser.add_argument("--places", default="1,2,4,8")
    parser.add_argument("--profile", help="what canopy calibrate hardware -o wrote, for places")
    parser.add_argument("--llama-server", help="the program, for peer; bench/compare/run builds one")
    parser.add_argument("--gguf", help="the model as llama-server wants it, in 16 bits")
    args = parser.parse_args()
    return {"sharing": sharing, "fairness": fairness, "places": places, "pool": pool, "growth": growth, "peer": peer}[args.what](args)


if __name__ == "__main__":
    sys.exit(main())
