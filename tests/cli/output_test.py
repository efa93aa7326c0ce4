"""A closed or full standard output ends a run at once; a stopped run says by which signal."""
import json
import os
import signal
import subprocess
import time
import unittest

from support import CANOPY, SMOLLM2, TempDirCase, bytes_model, main, run, tiny_model

LONG = ("--tokens", "1,2,3", "-n", 100_000, "--ignore-eos")


class Output(TempDirCase):
    def setUp(self):
        super().setUp()
        self.model = tiny_model(self.dir)

    def start(self, *words, **options):
        process = subprocess.Popen([CANOPY, *map(str, words)], stderr=subprocess.PIPE, text=True, **options)
        self.addCleanup(process.__exit__, None, None, None)
        self.addCleanup(process.kill)
        return process

    def into_a_full_disk(self, *words):
        with open("/dev/full", "w") as full:
            process = self.start(*words, stdout=full)
            err = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 1)
        self.assertIn("cannot write to standard output: No space left on device", err)
        return err

    def test_a_full_disk_stops_the_run_at_its_first_step(self):
        self.assertNotIn("step 2", self.into_a_full_disk("generate", "-m", self.model, *LONG, "--progress"))

    def test_a_full_disk_fails_what_only_prints(self):
        for words in (["--help"], ["--version"], ["generate", "--help"], ["bench", "--help"], ["inspect", self.model],
                      ["inspect", self.model, "--json"]):
            with self.subTest(words):
                self.into_a_full_disk(*words)

    def test_an_output_that_was_closed_is_no_file_of_ours(self):
        trace = self.dir / "trace.json"
        process = self.start("generate", "-m", self.model, "--tokens", "1,2", "-n", 4, "--trace", trace,
                             preexec_fn=lambda: os.close(1))
        self.assertIn("cannot write to standard output", process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, 1)

    def reader_goes_away(self, **options):
        process = self.start("generate", "-m", self.model, *LONG, stdout=subprocess.PIPE, **options)
        self.assertEqual(len(process.stdout.read(1)), 1)
        process.stdout.close()
        return process.wait(timeout=60), process.stderr.read()

    def test_dies_of_sigpipe_when_its_reader_goes_away(self):
        code, err = self.reader_goes_away()
        self.assertEqual(code, -signal.SIGPIPE)
        self.assertNotIn("standard output", err)

    def test_says_that_its_reader_went_away_where_sigpipe_is_ignored(self):
        code, err = self.reader_goes_away(restore_signals=False)  # Python ignores it
        self.assertEqual(code, 1)
        self.assertIn("standard output: Broken pipe", err)

    def stopped(self, stop, started, *words):
        """The code of a command that gets the signal once started(its process) is true."""
        process = self.start(*words, stdout=subprocess.DEVNULL)
        while not started(process):
            self.assertIsNone(process.poll(), "it ended too early to be stopped")
            time.sleep(0.01)
        process.send_signal(stop)
        err = process.communicate(timeout=60)[1]
        self.assertIn("stopped", err)
        return process.returncode

    def test_names_the_signal_that_stopped_a_run(self):
        for stop in (signal.SIGINT, signal.SIGTERM):
            code = self.stopped(stop, lambda p: "step 2" in p.stderr.readline(), "generate", "-m", self.model, *LONG,
                                "--progress")
            self.assertEqual(code, 128 + stop)

    @unittest.skipUnless(SMOLLM2.exists(), "the model is not here; scripts/get_model fetches it")
    def test_every_long_command_ends_by_its_signal_and_leaves_nothing(self):
        model, out = ("-m", SMOLLM2), self.dir / "out"
        a_line = lambda process: process.stderr.readline()
        begun = lambda process: any(self.dir.glob("out*"))
        text = self.dir / "text"
        text.write_text("A river is water on its way. " * 4000)
        for started, words in ((begun, ("quantize", *model, "-o", out, "--type", "q8_0")),
                               (begun, ("inflate", *model, "-o", out, "--size", "8G")),
                               (a_line, ("perplexity", *model, "-f", text, "--progress")),
                               (a_line, ("calibrate", "hardware", *model, "-o", out, "--progress")),
                               (a_line, ("calibrate", "acceptance", *model, "-md", SMOLLM2, "-o", out, "--progress")),
                               (a_line, ("bench", *model, "--progress")),
                               (a_line, ("bench", "decode", *model, "-md", SMOLLM2, "--progress")),
                               (a_line, ("bench", "link", *model, "--progress"))):
            with self.subTest(words[:2]):
                self.assertEqual(self.stopped(signal.SIGTERM, started, *words), 143)
                self.assertEqual(list(self.dir.glob("out*")), [])

    @unittest.skipUnless(SMOLLM2.exists(), "the model is not here; scripts/get_model fetches it")
    def test_a_signal_that_comes_twice_at_once_is_one_stop(self):
        """timeout(1) sends one to the process and one to its group; what is half-written goes all the same."""
        process = self.start("quantize", "-m", SMOLLM2, "-o", self.dir / "out", "--type", "q8_0")
        while not any(self.dir.glob("out*")):
            self.assertIsNone(process.poll(), "it ended too early to be stopped")
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.001)  # else the system may make one signal of both
        process.send_signal(signal.SIGTERM)
        self.assertIn("stopped", process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, 143)
        self.assertEqual(list(self.dir.glob("out*")), [])

    def test_a_file_name_that_is_no_utf_8_is_replaced_in_json(self):
        model = bytes_model(self.dir / os.fsdecode(b"odd \xff"))
        for words in (["inspect", model, "--json"], ["bench", model, "-p", 4, "-n", 2, "-r", 1, "-o", "json"],
                      ["bench", model, "-p", 4, "-n", 2, "-r", 1, "-o", "jsonl"], ["bench", "link", model, "-r", 1, "--read-size", "4K", "--queue-depth", 2, "--json"],
                      ["calibrate", "acceptance", model, "-md", model, "--examples", 2, "--prompt-tokens", 4, "-n", 4, "--json"]):
            with self.subTest(words[:2]):
                done = run(*words)
                self.assertEqual(done.returncode, 0, done.stderr)
                objects = done.stdout.splitlines() if "jsonl" in words else [done.stdout]
                self.assertIn("odd \ufffd", json.dumps([json.loads(text) for text in objects], ensure_ascii=False))

    def test_help_names_the_exit_codes(self):
        for code in ("130", "143"):
            self.assertIn(code, run("--help").stdout)


if __name__ == "__main__":
    main()
