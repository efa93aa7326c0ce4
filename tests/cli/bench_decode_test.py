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
        result = json.loads(done.stdout)
        rows = result["rows"]
        self.assertEqual([result[key] for key in ("target", "draft", "sampling", "prompts", "new_tokens")],
                         [SMOLLM2.name, SMOLLM2.name, "temperature 0", 1, 12])
        for row in rows:
            self.assertTrue(row["joules_per_token"] is not None or result["energy_missing"])
        self.assertEqual([(row["method"], row["tree_size"]) for row in rows],
                         [("none", 1), ("sequoia", 4), ("sequoia", 9), ("topk", 4), ("topk", 9)])
        self.assertEqual(rows[0]["tokens_per_step"], 1)
        self.assertGreater(rows[2]["tokens_per_step"], 1.5)  # the draft is the model itself

    def test_chains_have_as_many_nodes_as_the_trees_beside_the_one_of_generate(self):
        for words, sizes in ((("--tree-sizes", "3,5"), [3, 5]), (("--tree", "2,2"), [7]), ((), [])):
            done = run(*DECODE, "--methods", "chain", *words, "--examples", "1", "--prompt-tokens", "8", "-n", "6", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = json.loads(done.stdout)["rows"]
            self.assertEqual([row["tree_size"] for row in rows[1:]], sizes)
            self.assertEqual([row["tree_depth"] for row in rows], [row["tree_size"] for row in rows])

    def test_wrong_usage_names_the_flag(self):
        for words in (("--tree-sizes", "1"), ("--tree-sizes", "8,x"), ("--tree-sizes", ","),
                      ("--tree-sizes", "8", "--tree-size", "8"), ("--tree-sizes", "8", "--tree", "2,1")):
            done = run(*DECODE, *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--tree-sizes", done.stderr)


if __name__ == "__main__":
    main()
