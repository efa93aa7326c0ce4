"""canopy generate and perplexity on the real small model, as a user runs them."""
import contextlib
import json
import math
import os
import pty
import re
import signal
import subprocess
import termios
import unittest

from support import (CANOPY, PROFILE, SMOLLM2, TempDirCase, command, counts_own_memory, machine_with_a_gpu_that_counts, main, run,
                     run_json)

PROMPT = ("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")


@unittest.skipUnless(SMOLLM2.exists(), "the model is not here; scripts/get_model fetches it")
class Generate(TempDirCase):
    def test_answers_a_question(self):
        result = run("generate", "-m", SMOLLM2, "-p", PROMPT, "-n", 40)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Paris", result.stdout)

    def test_every_way_to_give_the_prompt_is_the_same(self):
        (self.dir / "prompt").write_text(PROMPT + "\n")  # the last newline is the file's
        expected = run_json("generate", "-m", SMOLLM2, "-p", PROMPT, "-n", 12)
        ids = run("tokenize", "-m", SMOLLM2, stdin=PROMPT).stdout.split()
        self.assertEqual(len(ids), expected["prompt_tokens"])
        for words, stdin in ((["-f", self.dir / "prompt"], ""), (["-p", "-"], PROMPT + "\n"), ([], PROMPT + "\n"),
                             (["--tokens", ",".join(ids)], "")):
            self.assertEqual(run_json("generate", "-m", SMOLLM2, "-n", 12, *words, stdin=stdin)["tokens"], expected["tokens"])
        plain = run("generate", "-m", SMOLLM2, "-p", PROMPT, "-n", 12)
        self.assertEqual(plain.stdout, expected["text"] + "\n")

    @counts_own_memory
    def test_streams_through_a_small_budget_to_the_same_text(self):
        whole = run_json("generate", "-m", SMOLLM2, "-p", PROMPT, "-n", 16)
        tight = run_json("generate", "-m", SMOLLM2, "-p", PROMPT, "-n", 16, "--memory", "100M")
        self.assertEqual(whole["plan"]["ring_bytes"], 0)
        self.assertGreater(tight["plan"]["ring_bytes"], 0)
        self.assertEqual(tight["tokens"], whole["tokens"])
        self.assertLessEqual(tight["peak_memory_bytes"], 100 << 20)

    @counts_own_memory
    def test_verifies_what_it_reads_again_and_says_where_there_is_nothing_to_verify(self):
        words = ["-m", SMOLLM2, "-p", PROMPT, "-n", 8, "--verify-weights"]
        streamed, resident = run_json("generate", *words, "--memory", "100M"), run_json("generate", *words)
        self.assertEqual(streamed["tokens"], resident["tokens"])
        self.assertGreater(streamed["checksums"], 0)
        self.assertIn("not verified", " ".join(resident["notes"]))
        self.assertIsNone(resident["checksums"])

    @counts_own_memory
    def test_draws_the_live_line_below_the_text(self):
        words = ["generate", "-m", SMOLLM2, "-p", PROMPT, "-n", 16, "--memory", "100M"]
        main_end, program_end = pty.openpty()
        termios.tcsetwinsize(program_end, (24, 200))
        with subprocess.Popen([CANOPY, *map(str, words)], stdout=program_end, stderr=program_end) as program:
            os.close(program_end)
            shown = b""
            with contextlib.suppress(OSError):  # EIO: the program has ended
                while piece := os.read(main_end, 1 << 16):
                    shown += piece
        os.close(main_end)
        self.assertEqual(program.returncode, 0)
        self.assertRegex(shown, rb"step 2: 1 tokens, 2 in all, .* tokens/sweep, .* at .*/s, link busy \d+%")
        live = re.compile(rb"\x1bD\x1b\[A\x1b7\x1b\[B\r\x1b\[J[^\x1b]*\x1b8")  # down, wipe, draw, and back
        text = run(*words).stdout
        self.assertIn(text.replace("\n", "\r\n").encode(), live.sub(b"", shown))

    def test_a_tree_gives_the_same_text_in_fewer_steps(self):
        draft = self.dir / "draft.gguf"
        self.assertEqual(run("quantize", "-m", SMOLLM2, "-o", draft, "--type", "Q4_0").returncode, 0)
        plain = run_json("generate", "-m", SMOLLM2, "-p", PROMPT, "-n", 24, "--ignore-eos")
        (self.dir / "tree.json").write_text('{"parents": [-1, 0, 0, 0, 1, 1, 4, 6, 7]}')
        for most, words in ((1, ["--spec", "chain"]), (1, ["--spec", "sequoia"]), (.5, ["--tree-size", 24, "--tree-depth", 8]),
                            (.5, ["--spec", "specinfer"]), (.5, ["--spec", "topk", "--tree", "3,2,1,1"]),
                            (.5, ["--tree", self.dir / "tree.json"])):
            tree = run_json("generate", "-m", SMOLLM2, "-md", draft, "-p", PROMPT, "-n", 24, "--ignore-eos", "--profile", PROFILE,
                            *words)
            self.assertEqual(tree["tokens"], plain["tokens"])
            self.assertLess(tree["steps"], most * plain["steps"])
            self.assertEqual(tree["plan"]["spec"], words[1] if words[0] == "--spec" else "sequoia")
            self.assertEqual(tree["step"]["predicted"].keys() - tree["step"]["measured"].keys(), {"bottleneck"})
            # The first sweep may carry less of it, next to the prompt.
            self.assertIn(tree["plan"]["tree_size"], [shape["tree_size"] for shape in tree["shapes"][:2]])
            self.assertEqual(len(tree["step_seconds"]), tree["steps"])
            self.assertGreaterEqual(sum(tree["step_tokens"]), 24)  # the last may gain more than is wanted
            self.assertLess(sum(tree["step_tokens"][:-1]), 24)
            self.assertEqual(tree["step_seconds"], sorted(tree["step_seconds"]))
            # Since the text was admitted: the sweeps, and what was shown between them.
            self.assertGreaterEqual(tree["step_seconds"][-1], tree["seconds"]["prefill"] + tree["seconds"]["decode"])
        self.assertEqual(tree["plan"]["tree_size"], 9)
        self.assertEqual(tree["plan"]["tree_depth"], 6)

    def test_reports_joules_of_prefill_and_decoding(self):
        report = run_json("generate", "-m", SMOLLM2, "-p", PROMPT, "-n", 5, env=machine_with_a_gpu_that_counts(self))
        energy = report["energy"]
        self.assertEqual(energy["counters"]["GPU 0, Fake H100"], 2)
        self.assertEqual(energy["decode_joules"], sum(energy["counters"].values()))  # this machine's own are among them
        self.assertEqual(energy["joules_per_token"], energy["decode_joules"] / 4)
        self.assertGreaterEqual(energy["prefill_joules"], 2)
        self.assertIn("GPU 1, Fake K80: Not Supported", energy["missing"])

    def test_reports_log_probabilities(self):
        report = run_json("generate", "-m", SMOLLM2, "-p", PROMPT, "-n", 5, "--logprobs", 3)
        self.assertEqual(len(report["logprobs"]), len(report["tokens"]))
        for token, entry in zip(report["tokens"], report["logprobs"]):
            self.assertEqual(entry["id"], token)
            top = entry["top_logprobs"]
            self.assertEqual(top[0]["id"], token)  # greedy
            self.assertEqual(top[0]["logprob"], entry["logprob"])
            self.assertEqual([t["logprob"] for t in top], sorted((t["logprob"] for t in top), reverse=True))
            for each in (entry, *top):
                self.assertEqual(each["token"], bytes(each["bytes"]).decode(errors="replace"))
        self.assertEqual("".join(entry["token"] for entry in report["logprobs"]), report["text"])

    def test_ctrl_c_keeps_what_was_generated(self):
        process = subprocess.Popen([CANOPY, "generate", "-m", SMOLLM2, "-p", PROMPT, "-n", "4000", "--ignore-eos"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = process.stdout.read(20)  # text arrives as it is accepted
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual(len(first), 20)
        self.assertIn(b"stopped after", err)

    def samples(self, count, *words, prompt=PROMPT):
        result = run("generate", "-m", SMOLLM2, "-p", prompt, "--temp", 1, "--num-samples", count, *words)
        self.assertEqual(result.returncode, 0, result.stderr)
        return self.parse_lines(result.stdout)

    @staticmethod
    def parse_lines(text):  # not splitlines: a text may hold other characters that end a line
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def test_samples_are_lines_of_json_and_the_first_is_the_text_alone(self):
        words = ["-n", 6, "--seed", 3, "--logprobs", 1]
        report = self.dir / "report.json"
        alone = run_json("generate", "-m", SMOLLM2, "-p", PROMPT, "--temp", 1, *words)
        samples = self.samples(4, *words, "--report", report)
        self.assertEqual([sample["index"] for sample in samples], [0, 1, 2, 3])
        for key in ("text", "tokens", "finish_reason", "logprobs"):
            self.assertEqual(samples[0][key], alone[key])
        self.assertEqual(samples[:2], self.samples(2, *words))
        self.assertGreater(len({sample["text"] for sample in samples}), 1)
        whole = json.loads(report.read_text())
        self.assertEqual(whole["samples"], samples)
        self.assertEqual(whole["plan"]["max_sequences"], 4)
        self.assertLessEqual(whole["steps"], 6)
        self.assertEqual(whole["tokens_per_step"], sum(len(s["tokens"]) for s in samples) / whole["steps"])

    def test_samples_have_the_models_own_distribution(self):
        samples = self.samples(400, "-n", 1, "--top-k", 2, "--logprobs", 2, prompt="The")
        top = samples[0]["logprobs"][0]["top_logprobs"]
        ratio = math.exp(top[1]["logprob"] - top[0]["logprob"])
        chance = 1 / (1 + ratio)
        first = sum(sample["tokens"][0] == top[0]["id"] for sample in samples)
        # Bound of a binomial count: 4 standard deviations, and one for its steps.
        self.assertLess(abs(first - 400 * chance), 1 + 4 * math.sqrt(400 * chance * (1 - chance)))

    def test_ctrl_c_keeps_the_samples_that_are_complete(self):
        with subprocess.Popen([CANOPY, "generate", "-m", SMOLLM2, "-p", "The", "-n", "8", "--ignore-eos", "--temp", "1",
                               "--num-samples", "2000"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            out = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            out += process.stdout.read()
            err = process.stderr.read()
        self.assertEqual(process.returncode, 130, err)
        complete = self.parse_lines(out)
        self.assertTrue(all(len(sample["tokens"]) == 8 for sample in complete))
        self.assertIn(f": {len(complete)} of 2000 samples are complete", err)

    def test_perplexity_of_sense_is_below_that_of_nonsense(self):
        (self.dir / "sense").write_text("The sun rises in the east and sets in the west. " * 4)
        (self.dir / "nonsense").write_text("West the sets sun in rises and the the east in. " * 4)
        sense, nonsense = (run_json("perplexity", "-m", SMOLLM2, "-f", self.dir / name)["perplexity"]
                           for name in ("sense", "nonsense"))
        self.assertLess(sense * 2, nonsense)

    @counts_own_memory
    def test_a_text_that_cannot_be_encoded_within_the_memory_is_refused(self):
        text = self.dir / "digits"
        text.write_text("1234567890" * 400_000)  # encoded, it would take 300 MB
        for words in (["generate", "-f"], ["perplexity", "-f"], ["collect", "-o", self.dir / "rows", "--prompts"],
                      ["bench", "decode", "-md", "copy", "--methods", "chain", "--prompts"],
                      ["calibrate", "acceptance", "-md", "copy", "-o", self.dir / "measured", "--prompts"]):
            process = subprocess.Popen(command(*words, text, "-m", SMOLLM2, "--memory", "300M"),
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            error = process.stderr.read()
            process.stderr.close()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 1, error)
            self.assertRegex(error, r"has 3.8 MiB, and turning it into tokens can take 4\d\d\.\d MiB in all, more than --memory")
            self.assertLess(used.ru_maxrss << 10, 300 << 20)


if __name__ == "__main__":
    main()
