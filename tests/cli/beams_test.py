"""generate --num-beams: the same texts with a draft and without; what does not go with it is refused by name."""
from support import TempDirCase, bytes_model, main, run, run_json


class Beams(TempDirCase):
    def setUp(self):
        super().setUp()
        self.model = bytes_model(self.dir / "model")

    def search(self, *flags, most=12):
        return run_json("generate", "-m", self.model, "-p", "hello", "-n", most, *flags)

    def test_a_draft_makes_no_difference_to_the_texts(self):
        plain = self.search("--num-beams", 3)
        drafted = self.search("--num-beams", 3, "-md", self.model, "--draft-beams", 9, "--tree-depth", 4)
        self.assertEqual(plain["beams"], drafted["beams"])
        self.assertEqual((len(plain["beams"]), plain["tokens"]), (3, plain["beams"][0]["tokens"]))
        self.assertEqual(plain["text"], plain["beams"][0]["text"])
        scores = [beam["score"] for beam in plain["beams"]]
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertTrue(plain["exact"])
        self.assertEqual((plain["steps"], sum(drafted["step_tokens"])), (12, 12))
        self.assertLess(drafted["steps"], 12)
        self.assertEqual(plain["drafted_rows"], 0)

    def test_one_beam_is_greedy(self):
        flags = "generate", "-m", self.model, "-p", "hello", "-n", 12, "--ignore-eos"
        self.assertEqual(run(*flags, "--num-beams", 1).stdout, run(*flags).stdout)

    def test_a_penalty_changes_scores(self):
        for penalty in (0, 2.5):
            for beam in self.search("--num-beams", 2, "--length-penalty", penalty)["beams"]:
                self.assertAlmostEqual(beam["score"], beam["log_probability"] / len(beam["tokens"]) ** penalty)

    def test_tokens_that_are_decided_together_are_labelled(self):
        flags = "--num-beams", 4, "--joint-tokens", 3
        joint = self.search(*flags)
        self.assertEqual((joint["exact"], joint["reproducible"]), (False, False))
        self.assertIn("each 3 tokens", joint["changes"])
        self.assertEqual(joint["tokens"], self.search(*flags, "-md", self.model)["tokens"])
        self.assertIn("each 3 tokens", run("generate", "-m", self.model, "-p", "hello", "-n", 4, *flags).stderr)

    def test_what_does_not_go_with_it_is_refused(self):
        for says, flags in (("--num-beams: must be between", ("--num-beams", 0)),
                            ("--draft-beams: needs --num-beams", ("--draft-beams", 3)),
                            ("--length-penalty: needs --num-beams", ("--length-penalty", 1)),
                            ("--joint-tokens: needs --num-beams", ("--joint-tokens", 1)),
                            ("--joint-tokens: must be", ("--num-beams", 2, "--joint-tokens", 0)),
                            ("--joint-tokens", ("--num-beams", 2, "--joint-tokens", 2, "--length-penalty", 1)),
                            ("--length-penalty: 'nan'", ("--num-beams", 2, "--length-penalty", "nan")),
                            ("--draft-beams: needs --model-draft", ("--num-beams", 2, "--draft-beams", 3)),
                            ("at least --num-beams, 4", ("--num-beams", 4, "--draft-beams", 3, "-md", self.model)),
                            ("a temperature above 0", ("--num-beams", 2, "--temp", 1)),
                            ("penalties", ("--num-beams", 2, "--repeat-penalty", 1.2)),
                            ("--spec", ("--num-beams", 2, "-md", self.model, "--spec", "chain")),
                            ("without a model", ("--num-beams", 2, "-md", "copy")),
                            ("--tree", ("--num-beams", 2, "-md", self.model, "--tree", "4,2")),
                            ("--stop", ("--num-beams", 2, "--stop", "x")),
                            ("rows of a sweep", ("--num-beams", 64, "-c", 250, "-n", 200))):
            result = run("generate", "-m", self.model, "-p", "x", *(flags if "-n" in flags else ("-n", 4, *flags)))
            self.assertEqual(result.returncode, 2, f"{flags}: {result.stderr}")
            self.assertIn(says, result.stderr)
            self.assertEqual(result.stdout, "")

    def test_a_budget_that_is_too_small_has_the_beams_in_its_ledger(self):
        result = run("generate", "-m", self.model, "-p", "x", "-n", 100, "--num-beams", 8, "--memory", "20M")
        self.assertEqual(result.returncode, 1)
        self.assertIn("at least", result.stderr)


if __name__ == "__main__":
    main()
