"""canopy bench on a model: its tests, its formats, what it refuses."""
import csv
import io
import json
import os
import unittest

from support import SMOLLM2, machine_with_a_gpu_that_counts, main, run

QUICK = ("-m", SMOLLM2, "-p", "16,48", "-n", "8", "-r", "2")


@unittest.skipUnless(SMOLLM2.exists(), "needs scripts/get_model")
class BenchModelTest(unittest.TestCase):
    def test_every_format_has_a_row_per_test(self):
        outputs = {}
        for form in ("md", "csv", "json", "jsonl"):
            done = run("bench", *QUICK, "-o", form)
            self.assertEqual(done.returncode, 0, done.stderr)
            outputs[form] = done.stdout
        rows = json.loads(outputs["json"])
        self.assertEqual([(r["n_prompt"], r["n_gen"]) for r in rows], [(16, 0), (48, 0), (0, 8)])
        for row in rows:
            self.assertEqual(len(row["samples_ts"]), 2)
            self.assertAlmostEqual(sum(row["samples_ts"]) / 2, row["avg_ts"])
            self.assertGreater(row["avg_ts"], 0)
            self.assertEqual(row["spec"], "none")
            self.assertGreater(row["model_n_params"], 130e6)
        self.assertEqual(rows[2]["tokens_per_step"], 1)
        self.assertEqual([json.loads(line)["n_prompt"] for line in outputs["jsonl"].splitlines()], [16, 48, 0])
        table = list(csv.DictReader(io.StringIO(outputs["csv"])))
        self.assertEqual([row["n_gen"] for row in table], ["0", "0", "8"])
        self.assertEqual([line.split("|")[8].strip() for line in outputs["md"].splitlines()], ["test", "--:", "pp16", "pp48", "tg8"])

    def test_no_run_finds_its_prompt_read_before(self):
        # Whole blocks of the warm-up's prompt, and of the other test's, are remembered; the program stops where a run meets them.
        done = run("bench", "-m", SMOLLM2, "-p", "128,192", "-n", "0", "-r", "2")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_counts_energy_where_there_are_counters_and_says_what_is_missing(self):
        for env in machine_with_a_gpu_that_counts(self), os.environ:
            done = run("bench", "-m", SMOLLM2, "-p", "0", "-n", "8", "-r", "1", "--no-warmup", "-o", "json", env=env)
            self.assertEqual(done.returncode, 0, done.stderr)
            row, = json.loads(done.stdout)
            if row["joules_per_token"] is None:
                self.assertIs(env, os.environ)
                self.assertIn("no energy is counted; ", done.stderr)
                self.assertTrue(row["energy_missing"])
            else:
                self.assertGreaterEqual(row["joules_per_token"], 2 / 8 if env is not os.environ else 0)

    def test_speculates_with_a_draft(self):
        done = run("bench", "-m", SMOLLM2, "-md", SMOLLM2, "-p", "0", "-n", "24", "-r", "1", "--no-warmup", "--spec", "sequoia",
                   "--tree-size", "8", "-o", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        row, = json.loads(done.stdout)
        self.assertEqual((row["spec"], row["tree_size"]), ("sequoia", 8))
        self.assertGreater(row["tokens_per_step"], 1.5)  # the draft is the model itself

    def test_wrong_usage_names_the_flag(self):
        for words, flag in ((("-p", "x"), "--n-prompt"), (("-n", "8,-1"), "--n-gen"), (("-o", "xml"), "--output"),
                            (("-r", "0"), "--repetitions"), (("-p", "0", "-n", "0"), "nothing to measure"), (("-c", "20"), "--ctx-size")):
            done = run("bench", "-m", SMOLLM2, *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(flag, done.stderr)


if __name__ == "__main__":
    main()
