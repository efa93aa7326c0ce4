"""lm-evaluation-harness: tasks that generate, by chats and by completions, and tasks by likelihood, which are checked against the server's
own numbers."""
import json
import math
import pathlib
import tempfile

import lm_eval
import requests
from asked import MODEL, URL

QUESTIONS = [{"question": "The capital of France is", "answer": " Paris"}, {"question": "Once upon a time there was", "answer": " a king"}]
CHOICES = [{"question": "The capital of France is", "choices": ["Paris", "cheese", "seven"], "label": 0},
           {"question": "One, two, three,", "choices": ["purple", "four", "Monday morning"], "label": 1}]
TEXTS = [{"text": "The sun rises in the east and sets in the west."}, {"text": "Café au lait: ☕."}]
SHARED = {"dataset_path": "json", "test_split": "test"}
MEANS = [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("acc", "acc_norm")]
ROLLING = [{"metric": "byte_perplexity", "aggregation": "weighted_perplexity", "higher_is_better": False}]
EXACT = [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}]
TASKS = [
    ({**SHARED, "task": "questions", "output_type": "generate_until", "doc_to_text": "{{question}}", "doc_to_target": "{{answer}}",
      "generation_kwargs": {"until": [".", "\n\n"], "max_gen_toks": 16, "do_sample": False}, "metric_list": EXACT}, QUESTIONS),
    ({**SHARED, "task": "choices", "output_type": "multiple_choice", "doc_to_text": "{{question}}", "doc_to_choice": "{{choices}}",
      "doc_to_target": "{{label}}", "metric_list": MEANS}, CHOICES),
    ({**SHARED, "task": "texts", "output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}",
      "metric_list": ROLLING}, TEXTS)]


def encode(text):
    return requests.post(f"{URL}/tokenize", json={"content": text}).json()["tokens"]


def likelihood(before, after):
    """Sum of the log-probabilities of these tokens after those, and if each is the likeliest."""
    asked = {"prompt": before + after, "max_tokens": 0, "echo": True, "logprobs": 1}
    found = requests.post(f"{URL}/v1/completions", json=asked).json()["choices"][0]["logprobs"]
    own = [column[len(before):] for column in (found["token_logprobs"], found["top_logprobs"])]
    return sum(own[0]), all(logprob == max(top.values()) for logprob, top in zip(*own))


def evaluate(kind, route, tasks, **how):
    return lm_eval.simple_evaluate(
        model=kind, tasks=tasks, bootstrap_iters=0, apply_chat_template=kind == "local-chat-completions",
        model_args={"model": MODEL, "base_url": f"{URL}/v1/{route}", "max_retries": 1, **how})


with tempfile.TemporaryDirectory() as folder:
    tasks = {}
    for task, documents in TASKS:
        data = pathlib.Path(folder, task["task"] + ".jsonl")
        data.write_text("".join(json.dumps(document) + "\n" for document in documents))
        tasks[task["task"]] = {**task, "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": folder}}

    for kind, route in ("local-chat-completions", "chat/completions"), ("local-completions", "completions"):
        results = evaluate(kind, route, [tasks["questions"]], num_concurrent=2, tokenized_requests=False, tokenizer_backend=None)
        texts = [sample["resps"][0][0] for sample in results["samples"]["questions"]]
        assert len(texts) == 2 and all(text and "." not in text for text in texts), texts
        assert "exact_match,none" in results["results"]["questions"], results["results"]

    # The server has the tokenizer: there is no other that tokens could differ from.
    end = encode(requests.get(f"{URL}/tokenizer_info").json()["eos_token"])
    for how in {"num_concurrent": 4}, {"num_concurrent": 1, "batch_size": 3}, {"num_concurrent": 2, "tokenized_requests": False}:
        results = evaluate("local-completions", "completions", list(tasks.values()), tokenizer_backend="remote", **how)
        for sample in results["samples"]["choices"]:
            document = sample["doc"]
            before = encode(document["question"])
            for choice, (answer,) in zip(document["choices"], sample["resps"], strict=True):
                assert tuple(answer) == likelihood(before, encode(f"{document['question']} {choice}")[len(before):]), (choice, answer)
        assert results["results"]["choices"]["acc,none"] == 1, results["results"]
        total = sum(likelihood(end, encode(document["text"]))[0] for document in TEXTS)
        expected = math.exp(-total / sum(len(document["text"].encode()) for document in TEXTS))
        assert math.isclose(results["results"]["texts"]["byte_perplexity,none"], expected, rel_tol=1e-12), (results["results"], expected)
        assert len(results["samples"]["questions"]) == 2
