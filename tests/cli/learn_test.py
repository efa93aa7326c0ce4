"""The evidence of texts on a draft is kept for the plans of others, and can be left alone."""
import fcntl
import json
import os
import subprocess
import time

from support import CANOPY, PATIENCE, TempDirCase, bytes_model, main, run, run_json


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

    def texts(self):
        [file] = self.learned()
        kept = json.loads(file.read_text())
        self.assertEqual(kept["canopy_learned_acceptance"], 2)
        return kept["texts"]

    def words(self, prompt="The river", new=24):
        return [*self.models, "-p", prompt, "-n", new, "--tree", "3,2", "--ignore-eos"]

    def generate(self, *flags, **text):
        return run_json("generate", *self.words(**text), *flags, env=self.env)

    def start(self, **text):
        return subprocess.Popen([CANOPY, "generate", *map(str, self.words(**text))], env=self.env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def end(self, process):
        out, err = process.communicate(timeout=60 * PATIENCE)
        self.assertEqual(process.returncode, 0, err)
        return err

    def acceptance_of(self, *flags):
        return run_json("plan", *self.models, "-n", "24", *flags, env=self.env)["acceptance"]

    def test_the_next_plan_knows_what_texts_have_shown(self):
        self.assertIn("assumed", self.acceptance_of())
        self.generate()
        self.assertEqual([file.name.split("-")[1] for file in self.learned()], ["topk"])
        [text] = self.texts()
        # 24 positions, none twice: a leaf's is counted with the root after it.
        self.assertGreater(text["asked"][0], 20)
        self.assertLessEqual(text["asked"][0], 24 + 2)  # what the last walk gained beyond the text's end
        self.assertEqual(text["accepted"], text["asked"])
        self.assertEqual(len(text["asked"]), 1)  # nothing was left to ask later ranks for
        self.assertIn("learned from 1 text,", self.acceptance_of())
        self.generate(prompt="The sea")
        self.assertEqual(len(self.texts()), 2)
        self.assertIn("learned from 2 texts,", self.acceptance_of())
        # Another sampling has a file of its own.
        self.assertIn("assumed", self.acceptance_of("--temp", "0.6"))
        self.generate("--temp", "0.6")
        self.assertEqual([file.name.split("-")[1] for file in self.learned()], ["sequoia", "topk"])

    def test_trees_that_the_drafts_rows_shape_keep_the_chances_that_they_have_shown(self):
        def generate(prompt, *flags):
            text = run_json("generate", *self.models, "-p", prompt, "-n", 24, "--spec", "calibrated", "--tree-size", 6, "--ignore-eos",
                            *flags, env=self.env)
            self.assertEqual(text["plan"]["spec"], "calibrated")
            [file] = self.learned()
            return text, json.loads(file.read_text())["calibrated"]["greedy"]

        text, once = generate("The river")
        self.assertEqual(text["tokens"], self.generate("--no-learn")["tokens"])
        self.assertGreater(once["contexts"], 3)
        self.assertLessEqual(once["contexts"], 30)
        self.assertEqual(sum(sweeps for sweeps, _, _ in once["sizes"]), sum(sweeps for sweeps, _, _ in once["sizes"][1:3]))
        self.assertEqual(generate("The sea", "--no-learn")[1], once)
        self.assertGreater(generate("The sea")[1]["contexts"], once["contexts"])
        [file] = self.learned()
        kept = json.loads(file.read_text())
        kept["calibrated"]["greedy"]["moment"].pop()
        file.write_text(json.dumps(kept))
        done = run("generate", *self.models, "-p", "A", "-n", 4, "--spec", "calibrated", env=self.env)
        self.assertIn('"moment" of greedy must be a list of 14', done.stderr)

    def test_the_same_text_again_shows_nothing_new(self):
        self.generate()
        once = self.texts()
        self.generate()
        self.generate(new=18)
        self.assertEqual(self.texts(), once)
        self.generate(new=48)  # it goes on
        [longer] = self.texts()
        self.assertEqual(longer["text"], once[0]["text"])
        self.assertGreater(longer["asked"][0], once[0]["asked"][0])

    def test_no_word_of_a_text_is_kept(self):
        self.generate()
        [text] = self.texts()
        self.assertEqual(set(text), {"text", "asked", "accepted"})
        self.assertRegex(text["text"], "^[0-9a-f]{16}$")

    def test_all_of_many_runs_that_end_at_once_count(self):
        self.generate(prompt="0")  # measures the machine, which only one run can do at a time
        runs = [self.start(prompt=str(i)) for i in range(1, 8)]
        for process in runs:
            self.assertNotIn("draft", self.end(process))
        self.assertEqual(len(self.texts()), 8)

    def test_a_run_waits_for_another_that_adds_its_texts(self):
        self.generate(prompt="0")
        folder = os.open(self.dir / "cache" / "canopy", os.O_RDONLY)
        self.addCleanup(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)
        runs = [self.start(prompt=str(i)) for i in range(1, 3)]
        texts = [process.stdout.read(1) for process in runs]
        self.assertNotIn("", texts)
        time.sleep(1)  # they have ended but for that
        self.assertEqual([process.poll() for process in runs], [None, None])
        [first] = self.texts()
        other = {"text": "0123456789abcdef", "asked": [20], "accepted": [10]}
        self.learned()[0].write_text(json.dumps({"canopy_learned_acceptance": 2, "texts": [first, other]}))
        fcntl.flock(folder, fcntl.LOCK_UN)
        for process in runs:
            self.assertNotIn("draft", self.end(process))
        self.assertEqual(len(self.texts()), 4)
        self.assertEqual(self.texts()[:2], [first, other])

    def test_a_run_that_does_not_let_go_costs_a_note(self):
        self.generate(prompt="0")
        before = self.texts()
        folder = os.open(self.dir / "cache" / "canopy", os.O_RDONLY)
        self.addCleanup(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)
        result = run("generate", *self.words(prompt="1"), env=self.env)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("note: what texts have shown is not kept", result.stderr)
        self.assertIn(str(self.dir / "cache" / "canopy"), result.stderr)
        self.assertEqual(self.texts(), before)

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

    def test_a_file_that_cannot_be_used_is_noted_and_begun_anew(self):
        self.generate()
        file = self.learned()[0]
        good = file.read_text()
        for bad in ('{"canopy_learned_acceptance":1,"asked":[90.0],"accepted":[42.0]}', "{}", "no", ""):
            file.write_text(bad)
            result = run("plan", *self.models, "-n", "24", "--json", env=self.env)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("assumed", json.loads(result.stdout)["acceptance"])
            self.assertIn(f"note: {file}: ", result.stderr)
            self.assertEqual(file.read_text(), bad)
            result = run("generate", *self.words(), env=self.env)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"note: {file}: ", result.stderr)
            self.assertEqual(file.read_text(), good)

    def test_a_vector_that_is_none_is_refused(self):
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
