"""Rules that are not exact: only where asked for, and every report says so; exact growths leave the text alone."""
import json
import unittest

from support import SMOLLM2, TempDirCase, main, run, run_json

PROMPT = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"


@unittest.skipUnless(SMOLLM2.exists(), "the model is not here; scripts/get_model fetches it")
class Inexact(TempDirCase):
    def generate(self, *words):
        return run_json("generate", "-m", SMOLLM2, "-p", PROMPT, "-n", 24, *words)

    def test_adaptive_chains_are_exact(self):
        plain = self.generate()
        for words in (["--spec", "chain", "--adaptive", "--tree-size", 8], ["--spec", "adaptive"]):
            drafted = self.generate("-md", SMOLLM2, *words)
            self.assertEqual(drafted["plan"]["spec"], "adaptive")
            self.assertTrue(drafted["exact"])
            self.assertNotIn("changes", drafted)
            self.assertEqual(drafted["tokens"], plain["tokens"])

    def test_a_hierarchy_is_exact(self):
        plain = self.generate()
        for inner in ("copy", "ngram:2", SMOLLM2):
            drafted = self.generate("-md", SMOLLM2, "--spec", "chain", "--tree-size", 6, "-mdd", inner)
            self.assertEqual((drafted["exact"], drafted["tokens"]), (True, plain["tokens"]))
            self.assertEqual(drafted["plan"]["spec"], "hierarchy")
            self.assertTrue(any("draft's draft" in line for line in drafted["plan"]["ledger"]))

    def test_benches_say_what_is_not_exact(self):
        words = ["bench", "-m", SMOLLM2, "-md", SMOLLM2, "--spec", "bild", "-p", 8, "-n", 8, "-r", 1]
        row = json.loads(run(*words, "-o", "jsonl").stdout.splitlines()[0])
        self.assertEqual((row["exact"], row["spec"]), (False, "bild"))
        self.assertIn("rollback", row["changes"])
        self.assertIn("~bild", run(*words).stdout)

    def test_graphs_are_exact(self):
        plain = self.generate()
        for words in (["gsd"], ["tsd", "--gsd-children", 2], ["ssd"], ["gsd", "--gsd-tau", 1, "--tree-size", 20],
                      ["gsd-sequoia"], ["gsd-sequoia", "--gsd-tau", 1], ["gsd-ratio"]):
            drafted = self.generate("-md", SMOLLM2, "--spec", *words)
            self.assertEqual((drafted["exact"], drafted["tokens"]), (True, plain["tokens"]), words)
            self.assertEqual(drafted["plan"]["spec"], words[0])
            self.assertGreater(drafted["tokens_per_step"], 1.5)
        drawn = self.generate("-md", SMOLLM2, "--spec", "gsd-sequoia", "--temp", 1, "--top-p", 0.7)
        self.assertTrue(drawn["exact"])
        self.assertGreater(drawn["tokens_per_step"], 1.5)
        ratio = self.generate("-md", SMOLLM2, "--spec", "gsd-ratio", "--temp", 1)
        self.assertFalse(ratio["exact"])
        self.assertIn("min(1, p/q)", ratio["changes"])

    def test_a_model_that_drafts_with_its_resting_layers_is_exact(self):
        plain = self.generate()
        drafted = self.generate("--spec", "self-ssd", "--resident", "85M", "--gsd-prob", 0)
        self.assertEqual((drafted["exact"], drafted["tokens"]), (True, plain["tokens"]))
        self.assertEqual(drafted["plan"]["spec"], "self-ssd")
        self.assertGreater(drafted["plan"]["sweep_bytes"], 0)
        self.assertGreater(drafted["tokens_per_step"], 1.5)
        for words, why in (((), "none travel"), (("--resident", "none"), "at least"),
                           (("--resident", "20M"), "not 20.0 MiB")):
            refused = run("generate", "-m", SMOLLM2, "-p", PROMPT, "--spec", "self-ssd", *words)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(why, refused.stderr)

    def test_bild_and_mtad_say_what_they_change(self):
        plain = self.generate()
        for words, says in ((["bild"], "rollback 2:"), (["bild", "--rollback", 0.5], "rollback 0.5:"),
                            (["mtad"], "threshold 0.1:"), (["mtad", "--threshold", 0.5, "--gamma", 6], "threshold 0.5:")):
            kept = self.generate("-md", SMOLLM2, "--spec", *words)
            self.assertFalse(kept["exact"])
            self.assertFalse(kept["reproducible"])
            self.assertIn(says, kept["changes"])
        for words in (["bild", "--rollback", 0], ["mtad", "--threshold", 1]):
            self.assertEqual(self.generate("-md", SMOLLM2, "--spec", *words)["tokens"], plain["tokens"], words)

    def test_bench_decode_has_every_method_in_one_table(self):
        words = ["bench", "decode", "-m", SMOLLM2, "-md", SMOLLM2, "--methods", "none,gsd,ssd,bild,mtad", "--examples", 2,
                 "--prompt-tokens", 16, "-n", 12, "--perplexity", "--rollback", 1, "--gsd-tau", 1]
        rows = {row["method"]: row for row in run_json(*words)["rows"]}
        self.assertEqual([rows[m]["exact"] for m in ("none", "gsd", "ssd", "bild", "mtad")], [True, True, True, False, False])
        for row in rows.values():
            self.assertGreater(row["perplexity"], 1)
            self.assertGreater(row["rows_per_token"], 0.2)
        for method in ("none", "gsd", "ssd"):
            self.assertEqual(rows[method]["equal_to_plain"], 1)
            self.assertAlmostEqual(rows[method]["perplexity"], rows["none"]["perplexity"], places=6)
        self.assertEqual(rows["none"]["draft_rows_per_token"], 0)
        self.assertGreater(rows["gsd"]["draft_rows_per_token"], 0)
        self.assertIn("rollback 1:", rows["bild"]["changes"])

    def test_lenience_says_what_it_changes(self):
        words = ["-md", SMOLLM2, "--spec", "chain", "--tree-size", 4, "--temp", 1, "--seed", 3]
        lenient = self.generate(*words, "--lenience", 0.3)
        self.assertFalse(lenient["exact"])
        self.assertFalse(lenient["reproducible"])
        self.assertIn("lenience 0.3", lenient["changes"])
        self.assertTrue(any("not exactly the model's" in note for note in lenient["notes"]))
        shown = run("generate", "-m", SMOLLM2, "-p", PROMPT, "-n", 8, *words, "--lenience", 0.3)
        self.assertIn("note: the text is not exactly the model's (lenience 0.3", shown.stderr)
        strict = self.generate(*words, "--lenience", 1)
        self.assertTrue(strict["exact"])
        self.assertEqual(strict["tokens"], self.generate(*words)["tokens"])

    def test_bench_decode_marks_rows_that_are_not_exact(self):
        words = ["bench", "decode", "-m", SMOLLM2, "-md", SMOLLM2, "--methods", "none,chain,topk", "--tree-size", 4,
                 "--examples", 2, "--prompt-tokens", 16, "-n", 8, "--temp", 1, "--lenience", 0.2]
        rows = {row["method"]: row for row in run_json(*words)["rows"]}
        self.assertEqual([rows[m]["exact"] for m in ("none", "chain", "topk")], [True, False, True])
        self.assertIn("lenience 0.2", rows["chain"]["changes"])
        table = run(*words).stdout
        self.assertIn("~chain", table)
        self.assertIn("~ not exactly the model's text", table)


if __name__ == "__main__":
    main()
