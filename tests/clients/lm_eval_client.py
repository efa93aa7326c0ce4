"""lm-evaluation-harness: a task that generates, by chats and by completions; its stops and lengths are kept."""
import json
import pathlib
import tempfile

import lm_eval
from asked import MODEL, URL

QUESTIONS = [{"question": "The capital of France is", "answer": " Paris"}, {"question": "Once upon a time there was", "answer": " a king"}]
TASK = {"task": "questions", "dataset_path": "json", "output_type": "generate_until", "test_split": "test",
        "doc_to_text": "{{question}}", "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": [".", "\n\n"], "max_gen_toks": 16, "do_sample": False},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}]}

with tempfile.TemporaryDirectory() as folder:
    data = pathlib.Path(folder, "questions.jsonl")
    data.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    task = {**TASK, "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": folder}}
    for kind, route in ("local-chat-completions", "chat/completions"), ("local-completions", "completions"):
        results = lm_eval.simple_evaluate(
            model=kind, tasks=[task], apply_chat_template=kind == "local-chat-completions", bootstrap_iters=0,
            model_args={"model": MODEL, "base_url": f"{URL}/v1/{route}", "num_concurrent": 2, "max_retries": 1,
                        "tokenized_requests": False, "tokenizer_backend": None})
        texts = [sample["resps"][0][0] for sample in results["samples"]["questions"]]
        assert len(texts) == 2 and all(text and "." not in text for text in texts), texts
        assert "exact_match,none" in results["results"]["questions"], results["results"]
