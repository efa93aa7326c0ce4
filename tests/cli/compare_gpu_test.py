"""bench/compare/gpu.py, the comparison on a GPU, without one: Canopy on the CPU, the other systems played by a small script."""
import json
import subprocess
import sys

from support import CANOPY, REPO, TempDirCase, main

SCRIPT = REPO / "bench" / "compare" / "gpu.py"
TORCH = """#!/usr/bin/env python3
import json, sys, time
job = json.load(sys.stdin)
assert sys.argv[1].endswith("random_torch.py") and job["shape"]["num_hidden_layers"] == 3, job
if job["how"] == "deepspeed-cpu":
    sys.exit("ModuleNotFoundError: No module named 'deepspeed'")
if job["how"] == "accelerate-disk":
    time.sleep(60)
print("something that a library says")
print(json.dumps({"load_seconds": 1, "prefill_seconds": 2, "token_seconds": [5, 3, 4], "settings": {}, "versions": {}, "gpu_bytes": None,
                  "host_bytes": 1 << 30}))
"""


class CompareOnGpu(TempDirCase):
    def setUp(self):
        super().setUp()
        self.torch = self.dir / "python"
        self.torch.write_text(TORCH)
        self.torch.chmod(0o755)

    def compare(self, *words):
        self.out = self.dir / "out.jsonl"
        done = subprocess.run([sys.executable, SCRIPT, "--device", "cpu", "--model", "tiny", "--draft", "tiny", "--layers", "3",
                               "--tree-size", "8", "--prompt-tokens", "8", "--tokens", "2", "--canopy", CANOPY, "--python", self.torch,
                               "--dir", self.dir, "--out", self.out, *words], capture_output=True, text=True)
        self.assertNotIn("Traceback", done.stderr)
        return done, [json.loads(line) for line in self.out.read_text().splitlines()] if self.out.exists() else []

    def test_systems_take_turns_and_a_failure_is_a_line(self):
        done, runs = self.compare("--rounds", "2", "--limit", "10", "--systems", "canopy,canopy-none,deepspeed-cpu,accelerate-cpu")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual([r["system"] for r in runs], ["canopy", "canopy-none", "deepspeed-cpu", "accelerate-cpu", "canopy-none",
                                                       "deepspeed-cpu", "accelerate-cpu", "canopy"])
        self.assertEqual(done.stdout.count("\n"), 8)
        by = {r["system"]: r for r in runs}
        self.assertIn("No module named 'deepspeed'", by["deepspeed-cpu"]["failed"])
        self.assertEqual((by["accelerate-cpu"]["seconds_per_token"], by["accelerate-cpu"]["tokens_per_step"]), (4, 1))
        self.assertGreater(by["canopy"]["tokens_per_step"], by["canopy-none"]["tokens_per_step"])
        self.assertTrue(all(r["synthetic"] and r["layers"] == 3 for r in runs))

    def test_who_takes_too_long_is_ended_and_no_run_begins_without_time(self):
        done, runs = self.compare("--limit", "1", "--systems", "accelerate-disk")
        self.assertIn("stopped after 1 s", runs[0]["failed"])
        done, runs = self.compare("--budget", "5", "--systems", "canopy")
        self.assertEqual((done.returncode, runs[-1]["failed"]), (1, "no time is left"))

    def test_wrong_words_are_refused(self):
        for words in (["--systems", "x"], ["--layers", "9"], ["--gpu-memory", "much"]):
            done, _ = self.compare(*words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words[0], done.stderr)


if __name__ == "__main__":
    main()
