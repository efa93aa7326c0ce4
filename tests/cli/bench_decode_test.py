"""canopy bench decode: a row per method and tree size, and what it refuses."""
import json
import pathlib
import tempfile
import unittest

from support import SMOLLM2, main, run, run_json

DECODE = ("bench", "decode", "-m", SMOLLM2, "-md", SMOLLM2)


def to_lines(objects):
    return "".join(json.dumps(one) + "\n" for one in objects)


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

    def test_continuations_are_compared_with_the_references_that_prompts_have(self):
        prompt = "The capital of France is"
        generated = run_json("generate", "-m", SMOLLM2, "-p", prompt, "-n", "40")
        self.assertEqual(generated["finish_reason"], "stop")  # what follows the end is not compared
        text = generated["text"]
        prompts = [{"text": prompt, "reference": text}, {"text": "Water boils at", "reference": "Qqq zzz."}, {"text": "One, two,"}]
        with tempfile.TemporaryDirectory() as folder:
            csv = pathlib.Path(folder) / "table.csv"
            words = DECODE + ("--methods", "none,mtad", "--examples", "3", "-n", "40", "--csv", csv, "--prompts", "-")
            done = run(*words, "--json", stdin=to_lines(prompts))
            self.assertEqual(done.returncode, 0, done.stderr)
            result = json.loads(done.stdout)
            self.assertEqual(result["references"], 2)
            none, mtad = result["rows"]
            self.assertEqual([none[key] for key in ("rouge_1", "rouge_2", "rouge_l")], [0.5, 0.5, 0.5])
            self.assertLess(mtad["rouge_1"], 0.5)  # its text is another
            self.assertIn("rouge_1", csv.read_text())
            shown = run(*words, stdin=to_lines(prompts)).stdout.splitlines()
            self.assertEqual(shown[1].split()[-3:], ["rouge-1", "-2", "-L"])
            self.assertEqual(shown[2].split()[-3:], ["0.500"] * 3)
            plain = run(*words, "--json", stdin=to_lines(prompts[2:]))
            self.assertEqual(json.loads(plain.stdout)["references"], 0)
            self.assertNotIn("rouge", plain.stdout + csv.read_text())

    def test_a_reference_is_a_text_with_words_and_its_prompt_is_not_cut(self):
        for reference in (3, None, "", "...", ["a"]):
            done = run(*DECODE, "--prompts", "-", stdin=to_lines([{"text": "a"}, {"text": "b", "reference": reference}]))
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stderr, 'line 2.*"reference"|"reference".*line 2')
        prompts = [{"text": "one two three four"}, {"text": "one two three four", "reference": "five"}]
        done = run(*DECODE, "--prompts", "-", "--prompt-tokens", "2", stdin=to_lines(prompts))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--prompt-tokens: prompt 2 has a reference and 4 tokens", done.stderr)

    def test_graphs_say_where_in_them_the_accepted_nodes_were(self):
        words = DECODE + ("--methods", "none,tsd,ssd", "--tree-size", "12", "--examples", "1", "--prompt-tokens", "16", "-n", "16")
        done = run(*words, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        none, tsd, ssd = json.loads(done.stdout)["rows"]
        self.assertEqual((none["accepted_by_rank"], none["accepted_of_longest"], none["recurring_1"]), ([], 0, 0))
        for row in (tsd, ssd):  # the draft is the model itself: its first child is always right
            self.assertEqual(row["accepted_by_rank"], [1])
            self.assertGreater(row["checked_nodes_per_text"], 0)
            self.assertLessEqual(row["accepted_of_checked"], row["accepted_of_longest"])
            self.assertGreaterEqual(row["recurring_1"], row["recurring_4"])
        self.assertEqual(ssd["accepted_of_checked"], ssd["accepted_of_longest"])  # one child each
        shown = run(*words).stdout.splitlines()
        self.assertEqual([line.split()[0] for line in shown[-3:]], ["graph", "tsd", "ssd"])

    def test_bild_says_what_ended_its_runs_and_mtad_how_many_tokens_its_steps_kept(self):
        words = DECODE + ("--methods", "none,bild,mtad", "--examples", "1", "--prompt-tokens", "16", "-n", "20")
        done = run(*words, "--fallback", "0", "--rollback", "100", "--threshold", "0", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        none, bild, mtad = json.loads(done.stdout)["rows"]
        ends = ("run_length", "fallbacks_per_100_tokens", "rollbacks_per_100_tokens")
        for row in (none, mtad):
            self.assertEqual([row[key] for key in ends], [None] * 3)
        self.assertEqual([bild[key] for key in ends], [10, 0, 0])  # never unsure, never rolled back
        self.assertEqual(mtad["steps_by_accepted"], [0, 0, 0, 0, 1])
        unsure = json.loads(run(*words, "--fallback", "1", "--json").stdout)["rows"][1]
        self.assertLess(unsure["run_length"], 1)
        self.assertGreater(unsure["fallbacks_per_100_tokens"], 50)  # 100 where no probability rounds to 1
        self.assertEqual(unsure["rollbacks_per_100_tokens"], 0)
        shown = run(*words, "--fallback", "0", "--rollback", "0", "--threshold", "0").stdout
        self.assertIn("bild: runs of 10.00 drafted tokens; of 100 tokens 0.0 steps where", shown)
        self.assertIn("and 100.0 that rolled a run back", shown)
        self.assertIn("mtad: share of the steps that kept 0: 0.000, 1: 0.000, 2: 0.000, 3: 0.000, 4: 1.000 drafted", shown)

    def test_each_text_s_tokens_and_steps_add_up_to_the_mean(self):
        done = run(*DECODE, "--methods", "sequoia", "--tree-size", "8", "--examples", "3", "--prompt-tokens", "16", "-n", "20", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        row, = json.loads(done.stdout)["rows"]
        self.assertEqual(len(row["texts"]), 3)
        tokens, steps = (sum(text[key] for text in row["texts"]) for key in ("tokens", "steps"))
        self.assertAlmostEqual(tokens / steps, row["tokens_per_step"])

    def test_wrong_usage_names_the_flag(self):
        for words in (("--tree-sizes", "1"), ("--tree-sizes", "8,x"), ("--tree-sizes", ","),
                      ("--tree-sizes", "8", "--tree-size", "8"), ("--tree-sizes", "8", "--tree", "2,1")):
            done = run(*DECODE, *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--tree-sizes", done.stderr)


if __name__ == "__main__":
    main()
