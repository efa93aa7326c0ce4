"""canopy bench decode: a row per method and tree size, and what it refuses."""
import json
import unittest

from support import SMOLLM2, main, run

DECODE = ("bench", "decode", "-m", SMOLLM2, "-md", SMOLLM2)


@unittest.skipUnless(SMOLLM2.exists(), "needs scripts/get_model")
class BenchDecodeTest(unittest.TestCase):
    def test_a_row_for_each_size_of_the_methods_that_grow_trees(self):
        done = run(*DECODE, "--methods", "none,sequoia,topk", "--tree-sizes", "4,9", "--examples", "1", "--prompt-tokens", "16",
                   "-n", "12", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)["rows"]
        self.assertEqual([(row["method"], row["tree_size"]) for row in rows],
                         [("none", 1), ("sequoia", 4), ("sequoia", 9), ("topk", 4), ("topk", 9)])
        self.assertEqual(rows[0]["tokens_per_step"], 1)
        self.assertGreater(rows[2]["tokens_per_step"], 1.5)  # the draft is the model itself

    def test_wrong_usage_names_the_flag(self):
        for words in (("--tree-sizes", "1"), ("--tree-sizes", "8,x"), ("--tree-sizes", ","),
                      ("--tree-sizes", "8", "--tree-size", "8"), ("--tree-sizes", "8", "--tree", "2,1")):
            done = run(*DECODE, *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--tree-sizes", done.stderr)


if __name__ == "__main__":
    main()
