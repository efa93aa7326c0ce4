"""What texts teach about a draft is kept for the plans to come, and can be left alone."""
import json
import os

from support import TempDirCase, bytes_model, main, run, run_json


class Learn(TempDirCase):
    def setUp(self):
        super().setUp()
        self.env = dict(os.environ, XDG_CACHE_HOME=str(self.dir / "cache"))
        # A model and its enlargement compute the same: the draft is always right, so it is known what is learned.
        self.draft, self.model = bytes_model(self.dir / "tiny"), self.dir / "model"
        inflated = run("inflate", "-m", self.draft, "-o", self.model, "--size", "2M")
        self.assertEqual(inflated.returncode, 0, inflated.stderr)
        self.models = "-m", self.model, "-md", self.draft

    def learned(self):
        return sorted((self.dir / "cache").glob("canopy/learned-*.json"))

    def generate(self, *flags):
        words = "-p", "The river", "-n", "24", "--tree", "3,2", "--ignore-eos"
        return run_json("generate", *self.models, *words, *flags, env=self.env)

    def acceptance_of(self, *flags):
        return run_json("plan", *self.models, "-n", "24", *flags, env=self.env)["acceptance"]

    def test_the_next_plan_knows_what_a_text_has_shown(self):
        self.assertIn("assumed", self.acceptance_of())
        self.generate()
        files = self.learned()
        self.assertEqual([file.name.split("-")[1] for file in files], ["topk"])
        first = json.loads(files[0].read_text())
        self.assertGreater(first["asked"][0], 5)
        self.assertEqual(first["asked"][0], first["accepted"][0])
        self.assertEqual(first["accepted"][1:], [0, 0])
        self.assertIn(f"learned at {round(first['asked'][0])} nodes", self.acceptance_of())
        self.generate()
        self.assertEqual(json.loads(files[0].read_text())["asked"][0], 2 * first["asked"][0])
        # Another sampling has a file of its own.
        self.assertIn("assumed", self.acceptance_of("--temp", "0.6"))
        self.generate("--temp", "0.6")
        self.assertEqual([file.name.split("-")[1] for file in self.learned()], ["sequoia", "topk"])

    def test_it_is_left_alone(self):
        self.generate("--no-learn")
        self.assertEqual(self.learned(), [])
        self.generate()
        self.assertIn("learned", self.acceptance_of())
        self.assertIn("assumed", self.acceptance_of("--no-learn"))
        given = self.dir / "acceptance.json"
        given.write_text("[0.5, 0.25]")
        self.assertIn(str(given), self.acceptance_of("--acceptance", given))
        plain = run("generate", "-m", self.model, "-p", "x", "-n", "4", env=self.env)
        self.assertEqual((plain.returncode, len(self.learned())), (0, 1))

    def test_bad_files_are_told(self):
        self.generate()
        file = self.learned()[0]
        file.write_text("{}")
        for words in (("plan", "-n", "24"), ("generate", "-p", "x", "-n", "2", "--tree", "2")):
            result = run(words[0], *self.models, *words[1:], env=self.env)
            self.assertEqual(result.returncode, 1)
            self.assertIn(str(file), result.stderr)
        bad = self.dir / "bad.json"
        for text in ("[]", "[0.9, 0.9]", "[1, \"x\"]", "{}", "no"):
            bad.write_text(text)
            result = run("plan", *self.models, "-n", "24", "--acceptance", bad, env=self.env)
            self.assertEqual(result.returncode, 1, text)
            self.assertIn(str(bad), result.stderr)

    def test_a_packed_model_knows_what_its_source_has_shown(self):
        packed = self.dir / "packed"
        self.assertEqual(run("pack", "-m", self.model, "-o", packed).returncode, 0)
        self.generate()
        self.assertIn("learned", self.acceptance_of())
        self.models = "-m", packed, "-md", self.draft
        self.assertIn("learned", self.acceptance_of())


if __name__ == "__main__":
    main()
