"""Drafts without a model, as a user gives them: the text is plain decoding's, in fewer sweeps where it repeats."""
import json
import os
import subprocess
import unittest

from support import CANOPY, SANITIZED, SMOLLM2, TempDirCase, bytes_model, main, run, run_json

PROMPT = "Here is the list again. One, two, three, four, five, six. One, two, three, four, five, six. One, two,"


@unittest.skipUnless(SMOLLM2.exists(), "the model is not here; scripts/get_model fetches it")
class ModelFree(TempDirCase):
    def generate(self, *words, model=SMOLLM2):
        return run_json("generate", "-m", model, "-p", PROMPT, "-n", 32, *words)

    def test_greedy_text_is_plain_decodings(self):
        tiny = bytes_model(self.dir / "tiny")
        plain = self.generate(model=tiny)
        self.assertIsNone(plain["plan"]["model_free_draft"])
        for draft in ("copy", "copy:4", "ngram:2", "ngram:1", "random"):
            for words in (["--spec", "chain", "--tree-size", 6], ["--tree", "3,2,1"], []):
                drafted = self.generate("-md", draft, *words, model=tiny)
                self.assertEqual(drafted["tokens"], plain["tokens"], (draft, words))
                if drafted["plan"]["spec"] != "none":
                    self.assertEqual(drafted["plan"]["model_free_draft"], "copy:2" if draft == "copy" else draft)
                    self.assertTrue(any(line.startswith("draft " + draft) for line in drafted["plan"]["ledger"]))

    def test_copies_what_repeats(self):
        copied = self.generate("-md", "copy", "--spec", "chain", "--tree-size", 8)
        self.assertGreater(copied["tokens_per_step"], 1.5)

    def test_a_corpus_is_copied_from(self):
        plain = self.generate()
        (self.dir / "corpus").write_text(PROMPT + plain["text"])
        words = ["-md", "copy:3", "--spec", "chain", "--tree-size", 8]
        alone, with_corpus = self.generate(*words), self.generate(*words, "--draft-corpus", self.dir / "corpus")
        self.assertEqual(with_corpus["tokens"], plain["tokens"])
        self.assertGreaterEqual(with_corpus["tokens_per_step"], alone["tokens_per_step"])
        self.assertGreater(with_corpus["tokens_per_step"], 5)

    @unittest.skipIf(SANITIZED, "sanitizers take memory of their own")
    def test_a_large_corpus_stays_within_the_memory(self):
        (self.dir / "corpus").write_text("Words of all kinds stand in a corpus, line by line.\n" * 400_000)
        process = subprocess.Popen([CANOPY, "generate", "-m", SMOLLM2, "-p", PROMPT, "-n", "2", "-c", "256", "-md", "copy",
                                    "--draft-corpus", self.dir / "corpus", "--memory", "300M"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        self.assertLess(used.ru_maxrss << 10, 300 << 20)

    def test_a_reproducible_text_is_plain_samplings(self):
        words = ["--temp", 0.8, "--seed", 7]
        self.assertEqual(self.generate("-md", "ngram:2", "--tree", "2,1", *words)["tokens"], self.generate(*words)["tokens"])

    def test_plans_follow_a_measured_acceptance(self):
        measured = self.dir / "acceptance.json"
        found = run("calibrate", "acceptance", "-m", SMOLLM2, "-md", "copy", "--examples", 3, "-n", 48, "-o", measured)
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertIn("alpha = ", found.stdout)
        kept = json.loads(measured.read_text())
        self.assertEqual(kept["draft"], "copy")
        self.assertGreater(kept["deeper"][0][0], kept["accept"][0])  # what was copied goes on
        plan = run_json("plan", SMOLLM2, "-md", "copy", "--acceptance", measured)
        self.assertEqual(plan["acceptance"], f"of {measured}")
        self.assertEqual(self.generate("-md", "copy", "--acceptance", measured)["tokens"], self.generate()["tokens"])


if __name__ == "__main__":
    main()
