"""Prompts that generate takes, and the lengths that it goes on for, on a model that runs in no time."""
import json
import os
import subprocess
import unittest

from support import CANOPY, TempDirCase, bytes_model, main, run, run_json, tiny_model

PROMPT = ("--tokens", "1,2,3")


class Prompt(TempDirCase):
    def setUp(self):
        super().setUp()
        self.model = tiny_model(self.dir)

    def generate(self, *words, **options):
        return run_json("generate", self.model, *PROMPT, "--ignore-eos", *words, **options)

    def test_an_empty_stdin_is_no_prompt(self):
        result = run("generate", self.model)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("standard input is empty", result.stderr)

    def test_a_line_end_and_a_mark_of_windows_do_not_belong_to_the_prompt(self):
        model = bytes_model(self.dir / "bytes")
        tokenizer = (model / "tokenizer.json").read_text()  # which is to know a carriage return and the mark
        for letter, byte in zip("ABCD", "\u010d\u00ef\u00bb\u00bf"):
            tokenizer = tokenizer.replace(f'"{letter}":', json.dumps(byte) + ":")
        (model / "tokenizer.json").write_text(tokenizer)

        def tokens(text):
            file = self.dir / "prompt"
            file.write_bytes(text)
            words = [CANOPY, "generate", model, "-n", "3", "--ignore-eos", "--json"]
            piped = subprocess.run(words, input=text, capture_output=True, timeout=60)
            report = run_json("generate", model, "-n", 3, "--ignore-eos", "-f", file)
            self.assertEqual(json.loads(piped.stdout)["prompt_tokens"], report["prompt_tokens"])
            return report["prompt_tokens"], report["tokens"]

        plain = tokens(b"ab")
        for text in (b"ab\n", b"ab\r\n", b"\xef\xbb\xbfab", b"\xef\xbb\xbfab\r\n"):
            self.assertEqual(tokens(text), plain, text)
        for text in (b"ab\r", b"a\r\nb", b"ab\r\n\r\n", b"ab\xef\xbb\xbf"):
            self.assertNotEqual(tokens(text), plain, text)
        count = lambda text: subprocess.run([CANOPY, "tokenize", model], input=text, capture_output=True).stdout
        self.assertEqual(count(b"\xef\xbb\xbfab"), count(b"ab"))

    def test_a_terminal_is_not_read_unasked(self):
        main_end, terminal = os.openpty()
        self.addCleanup(os.close, main_end)
        result = subprocess.run([CANOPY, "generate", self.model], stdin=terminal, capture_output=True, text=True, timeout=60)
        os.close(terminal)
        self.assertEqual(result.returncode, 2)
        self.assertIn("give one prompt", result.stderr)

    def test_the_names_of_a_flag_are_one_flag(self):
        expected = self.generate("-n", 5, "--seed", 0, "--temp", 1)
        for length in ("--n-predict", "--max-tokens", "--max-new-tokens"):
            for heat in ("--temp", "--temperature"):
                self.assertEqual(self.generate(length, 5, "--seed", 0, heat, 1)["tokens"], expected["tokens"])
        for command in (["chat"], ["collect", "-o", self.dir / "out"], ["plan"]):
            for length in ("--max-tokens", "--max-new-tokens"):
                self.assertIn("--n-predict: must be", run(*command, "-m", self.model, length, 0).stderr)
        twice = run("generate", self.model, *PROMPT, "-n", 5, "--max-tokens", 6)
        self.assertEqual(twice.returncode, 2)
        self.assertIn("more than once", twice.stderr)

    def test_the_value_of_a_flag_may_look_like_one(self):
        for value in ("-md", "-cnv", "-5"):
            ids = run("tokenize", self.model, stdin=value).stdout.split()
            self.assertEqual(run_json("generate", self.model, "-p", value, "-n", 2)["prompt_tokens"], len(ids))

    def test_minus_one_goes_on_until_the_context_is_full(self):
        report = self.generate("-n", -1, "-c", 40)
        self.assertEqual((len(report["tokens"]), report["finish_reason"]), (37, "length"))
        self.assertEqual(report["tokens"], self.generate("-n", 37)["tokens"])
        config = self.model / "config.json"
        changed = json.loads(config.read_text()) | {"max_position_embeddings": 64}
        config.write_text(json.dumps(changed))
        self.assertEqual(len(self.generate("-n", -1)["tokens"]), 61)

    def test_says_where_the_context_ends_the_text(self):
        for words, said in ((["-n", 100, "-c", 20], True), (["-n", -1, "-c", 20], True), (["-n", 17, "-c", 20], False),
                            (["-n", 17], False)):
            err = run("generate", self.model, *PROMPT, "--ignore-eos", *words).stderr
            self.assertEqual("the context of 20 tokens is full" in err, said, (words, err))

    def test_the_step_of_the_prompt_says_nothing_of_the_time_left(self):
        with subprocess.Popen([CANOPY, "generate", self.model, *PROMPT, "--ignore-eos", "-n", "100000", "--progress"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            steps = {}
            while 2 not in steps:
                line = process.stderr.readline()
                if line.startswith("step "):
                    steps[int(line.split()[1].rstrip(":"))] = line
            process.kill()
        self.assertNotIn("left", steps[1])
        self.assertRegex(steps[2], r", \d+ s left,")

    def test_more_threads_than_cpus_are_as_many_as_cpus(self):
        cpus = len(os.sched_getaffinity(0))
        result = run("generate", self.model, *PROMPT, "-n", 2, "-t", 999, "--json")
        self.assertIn(f"note: --threads 999: this process may use {cpus} CPU", result.stderr)
        self.assertEqual(json.loads(result.stdout)["plan"]["placement"]["threads"], cpus)

    def test_one_type_of_the_cache_is_that_of_both_halves(self):
        cache = lambda *words: self.generate("-n", 3, *words)["plan"]["ledger"]["target KV cache, 64 slots"]
        both = cache("-ctk", "F16", "-ctv", "f16")
        self.assertLess(both, cache())
        for one in ("-ctk", "-ctv"):
            self.assertEqual(cache(one, "f16"), both)

    def test_a_text_that_is_cut_off_inside_a_character_ends_before_it(self):
        tokenizer = self.model / "tokenizer.json"
        changed = json.loads(tokenizer.read_text())
        vocab = changed["model"]["vocab"]
        for i in range(26):  # the ids of A to Z become bytes that begin a character
            letter, lead = chr(ord("A") + i), chr(0xC3 + i)
            vocab[letter], vocab[lead] = vocab[lead], vocab[letter]
        tokenizer.write_text(json.dumps(changed))
        report = self.generate("-n", 200, "--seed", 0, "--temp", 1, "--logprobs", 1)
        lead = next(i for i, entry in enumerate(report["logprobs"]) if entry["bytes"] and entry["bytes"][-1] >= 0xC3)
        cut = self.generate("-n", lead + 1, "--seed", 0, "--temp", 1)
        self.assertEqual(cut["tokens"], report["tokens"][:lead + 1])
        self.assertNotEqual(cut["text"][-1:], "\ufffd")


if __name__ == "__main__":
    main()
