"""canopy calibrate acceptance on a model that drafts for itself: what it prints, keeps and refuses."""
import json
import os
import pathlib
import signal
import subprocess
import unittest

from support import CANOPY, SMOLLM2, TempDirCase, main, run, run_json


@unittest.skipUnless(SMOLLM2.exists(), "the model is not here; scripts/get_model fetches it")
class CalibrateAcceptance(TempDirCase):
    pair = ("calibrate", "acceptance", "-m", SMOLLM2, "-md", SMOLLM2)
    short = ("--prompt-tokens", "6", "-n", "3")

    def setUp(self):
        super().setUp()
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(self.dir / "cache")}

    def prompts(self, text):
        file = self.dir / "prompts"
        file.write_text(text)
        return file

    def fails(self, *words, code=1):
        result = run(*self.pair, *self.short, *words, env=self.environment)
        self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
        self.assertEqual([f.name for f in self.dir.iterdir() if f.name != "prompts"], [])
        return result.stderr

    def test_a_model_accepts_all_of_its_own_guesses(self):
        for temperature in ("0", "0.6"):
            report = run_json(*self.pair, *self.short, "--examples", 4, "--temp", temperature, env=self.environment)
            self.assertAlmostEqual(report["accept"][0], 1, delta=1e-6)
            self.assertEqual(len(report["accept"]), 32)
            self.assertEqual(report["all"]["taken"][0], report["positions"])
            kept = json.loads(pathlib.Path(report["kept_in"]).read_text())
            self.assertEqual(kept, {key: report[key] for key in kept})
            self.assertTrue(report["kept_in"].startswith(str(self.dir / "cache" / "canopy")))
        self.assertEqual(len(list((self.dir / "cache" / "canopy").iterdir())), 2)

    def test_prompts_of_a_file_and_a_place_of_the_users(self):
        text = "\n".join(json.dumps({"id": i, "text": f"{i} bottles of beer on the wall"}) for i in range(3)) + "\n\n"
        for prompts in (text, "one bottle\r\ntwo bottles\n\nthree bottles"):
            out = self.dir / "vector.json"
            result = run(*self.pair, *self.short, "--prompts", self.prompts(prompts), "-o", out,
                         "--examples", 3, env=self.environment)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("cut from 3 texts", result.stdout)
            self.assertEqual(json.loads(out.read_text())["texts"], 3)
            self.assertFalse((self.dir / "cache").exists())

    def test_walks_say_which_child_each_position_went_on_with(self):
        walks = self.dir / "walks.jsonl"
        report = run_json(*self.pair, *self.short, "--prompts", self.prompts("one bottle\ntwo bottles"), "--examples", 2,
                          "-o", self.dir / "vector.json", "--walks", walks, env=self.environment)
        lines = [json.loads(line) for line in walks.read_text().splitlines()]
        self.assertEqual([line["text"] for line in lines], [0, 1])
        taken = [child for line in lines for child in line["taken"]]
        self.assertEqual(taken, [0] * report["positions"])

    def test_refuses_a_place_of_walks_that_cannot_be_written_before_measuring(self):
        self.assertIn("nowhere", self.fails("-o", "-", "--walks", self.dir / "nowhere" / "file"))

    def test_says_how_many_different_prompts_there_are(self):
        result = run(*self.pair, *self.short, "--prompts", self.prompts("one\ntwo"), "--examples", 9, env=self.environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("only 2 different prompts", result.stderr)

    def test_names_the_line_that_is_no_prompt(self):
        good = '{"text": "a"}\n'
        for bad in ("text", "{", "[]", '{"text": 3}', '{"text": ""}', "{}"):
            self.assertIn("prompts line 3", self.fails("--prompts", self.prompts(good + "\n" + bad + "\n")))
        self.assertIn("no prompt", self.fails("--prompts", self.prompts(" \n\n")))
        self.assertIn("two texts", self.fails("--prompts", self.prompts("only one\n")))

    def test_refuses_a_place_that_cannot_be_written_before_measuring(self):
        self.assertIn("nowhere", self.fails("-o", self.dir / "nowhere" / "file"))

    def test_an_interrupt_keeps_nothing(self):
        process = subprocess.Popen([CANOPY, *map(str, self.pair), "--examples", "3", "--progress"], stderr=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True, env=self.environment)
        for line in process.stderr:
            if "positions" in line:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (130, ""))
        self.assertIn("stopped; nothing was kept", err)
        self.assertEqual(list((self.dir / "cache" / "canopy").iterdir()), [])


if __name__ == "__main__":
    main()
