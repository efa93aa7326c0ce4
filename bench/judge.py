#!/usr/bin/env python3
"""Scores of lm-evaluation-harness by canopy serve and by its own transformers backend, and what shared sweeps are worth to it.

    bench/judge.py scores -m MODEL_DIR
    bench/judge.py time   -m MODEL --memory 2G [--places 16]

Both run in a Python that has lm_eval[api]; scores needs torch and transformers too, and memory for the model in float32. Three
tasks are made from pieces of the texts that canopy calibrates with: the second half of a piece among those of three others
(multiple choice), whole pieces (loglikelihood_rolling), and what follows a first half (generate_until, greedy). scores: each
task by both, the largest differences of scores and of log likelihoods, and how many texts are the same; exit code 1 where
scores differ by more than 1e-4. time: the rolling task one prompt after another and --places at once, on a fresh server each."""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

import lm_eval

import serving

MEAN = {"aggregation": "mean", "higher_is_better": True}
SHARED = {"dataset_path": "json", "test_split": "test"}
CHOICES = 4
WORDS = 24  # of half a piece


def pieces(count):
    """Halves of as many pieces."""
    words = " ".join(serving.TEXTS).split()
    halves = [" ".join(words[at:at + WORDS]) for at in range(0, 2 * count * WORDS, WORDS)]
    return list(zip(halves[::2], halves[1::2]))


def make_tasks(folder, count):
    parts = pieces(count)
    choices = []
    for i, (before, _) in enumerate(parts):
        label = i % CHOICES
        others = [parts[(i + 1 + k) % len(parts)][1] for k in range(CHOICES - 1)]
        choices.append({"before": before, "choices": [*others[:label], parts[i][1], *others[label:]], "label": label})
    documents = {
        "choices": choices,
        "texts": [{"text": f"{before} {after}"} for before, after in parts],
        "goes_on": [{"before": before, "after": " " + after} for before, after in parts]}
    tasks = {
        "choices": {"output_type": "multiple_choice", "doc_to_text": "{{before}}", "doc_to_choice": "{{choices}}",
                    "doc_to_target": "{{label}}", "metric_list": [{"metric": name, **MEAN} for name in ("acc", "acc_norm")]},
        "texts": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}", "metric_list": [
            {"metric": "byte_perplexity", "aggregation": "weighted_perplexity", "higher_is_better": False}]},
        "goes_on": {"output_type": "generate_until", "doc_to_text": "{{before}}", "doc_to_target": "{{after}}",
                    "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 24, "do_sample": False},
                    "metric_list": [{"metric": "exact_match", **MEAN}]}}
    for name, rows in documents.items():
        data = pathlib.Path(folder, name + ".jsonl")
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        tasks[name] |= {**SHARED, "task": name, "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": folder}}
    return tasks


def by_canopy(port, tasks, concurrent, **more):
    return lm_eval.simple_evaluate(model="local-completions", tasks=tasks, bootstrap_iters=0, model_args={
        "model": "judge", "base_url": f"http://127.0.0.1:{port}/v1/completions", "tokenizer_backend": "remote",
        "num_concurrent": concurrent, "timeout": 86400, **more})


def responses(results, task):
    return [sample["resps"] for sample in sorted(results["samples"][task], key=lambda sample: sample["doc_id"])]


def likelihoods(task, results):
    """Scores of each choice, or of each text."""
    return [one[0] if isinstance(one, (list, tuple)) else one for of_sample in responses(results, task) for (one,) in of_sample]


def scores(args, folder):
    import transformers

    tasks = make_tasks(folder, args.count)
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    prefix = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    reference = lm_eval.simple_evaluate(model="hf", tasks=list(tasks.values()), bootstrap_iters=0, device="cpu",
                                        model_args={"pretrained": str(args.model), "dtype": "float32"})
    with serving.server(args, "--parallel", str(args.places), "-c", "2048", "--alias", "judge", cache=()) as port:
        own = by_canopy(port, list(tasks.values()), args.places, custom_prefix_token_id=prefix)
    worst = 0.0
    for task in tasks:
        for name, score in reference["results"][task].items():
            if not isinstance(score, float) or "stderr" in name:
                continue
            ours = own["results"][task][name]
            worst = max(worst, abs(ours / score - 1) if score else abs(ours))
            print(f"{task:>8} {name.split(',')[0]:<16} transformers {score:.8f}  canopy {ours:.8f}")
    for task in "choices", "texts":
        apart = [abs(a / b - 1) for a, b in zip(likelihoods(task, own), likelihoods(task, reference), strict=True)]
        print(f"{task:>8} {len(apart)} log likelihoods: at most {max(apart):.1e} apart, relatively")
    same = [a == b for a, b in zip(responses(own, "goes_on"), responses(reference, "goes_on"), strict=True)]
    print(f" goes_on {sum(same)} of {len(same)} texts are the same")
    print(f"scores are at most {worst:.1e} apart, relatively")
    return worst <= 1e-4


def take_time(args, folder):
    task = make_tasks(folder, args.count)["texts"]
    seconds, results = {}, []
    for concurrent in 1, args.places:
        with serving.server(args, "--parallel", str(args.places), "-c", "1024", "--alias", "judge", cache=()) as port:
            start = time.monotonic()
            results.append(by_canopy(port, [task], concurrent)["results"]["texts"]["byte_perplexity,none"])
            seconds[concurrent] = time.monotonic() - start
        print(f"{args.count} texts, {concurrent} at a time: {seconds[concurrent]:.1f} s, byte perplexity {results[-1]!r}", flush=True)
    print(f"{args.places} at a time take {seconds[1] / seconds[args.places]:.2f} times fewer seconds")
    return results[0] == results[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["scores", "time"])
    parser.add_argument("-m", "--model", required=True, type=pathlib.Path)
    parser.add_argument("--memory", default="2G")
    parser.add_argument("--places", type=int, default=16)
    parser.add_argument("--count", type=int, default=16, help="texts of each task")
    parser.add_argument("--canopy", default=serving.REPO / "build/release/canopy", type=pathlib.Path)
    args = parser.parse_args()
    args.draft = None
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with tempfile.TemporaryDirectory() as folder:
        return 0 if {"scores": scores, "time": take_time}[args.what](args, folder) else 1


if __name__ == "__main__":
    sys.exit(main())
