"""Processes that mpirun has started and that share a model's rows: the text is one process's, and they end together."""
import json
import os
import re
import signal
import subprocess
import time
import unittest

from mpirun import HAS_MPIRUN, MPIRUN, ROOT, has_mpi, mpirun, processes, random_model, rank_of
from support import CANOPY, PATIENCE, PROFILE, TOKENIZER, TempDirCase, bytes_model, main, run, run_json

MEMORY = ["--memory", "300M"]
TIMEOUT, SPARE = 2, 5 * PATIENCE  # seconds: of a rank that says nothing; and what ending takes


@unittest.skipUnless(HAS_MPIRUN and has_mpi(), "built without MPI, as the program says, or there is no mpirun")
class Ranks(TempDirCase):
    def setUp(self):
        super().setUp()
        self.model = random_model(self.dir / "model", TOKENIZER)
        self.draft = random_model(self.dir / "draft", TOKENIZER, layers=1, width=128, seed=2)
        self.words = ["-p", "abc abd", "-n", 24, "--ignore-eos", "--resident", "none", "--profile", PROFILE, "--no-learn"]

    def ranks(self, *contexts, command="generate", **options):
        """Runs the command by a rank for each list of words."""
        before = processes(CANOPY)
        result = mpirun(*[(CANOPY, command, *context) for context in contexts], **options)
        self.assertEqual(processes(CANOPY) - before, set(), "a process was left")
        return result

    def same(self, ranks, *words, **options):
        return self.ranks(*[words] * ranks, **options)

    def refusal(self, result, code, name="canopy generate"):
        """Returns the one message of ranks that have ended."""
        messages = [line for line in result.stderr.split("\n") if line.startswith(f"{name}: ")]
        self.assertEqual(len(messages), 1, result.stderr)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        return messages[0]

    def test_texts_are_those_of_one_process(self):
        for words in ([], ["-md", "ngram:2", "--spec", "chain", "--tree-size", 6], ["-md", self.draft, "--tree", "3,2,1"],
                      ["-md", self.draft, "--spec", "sequoia", "--tree-size", 12, "--temp", 0.9, "--seed", 7],
                      ["--temp", 1, "--seed", 3, "--num-samples", 3, "--report", self.dir / "report"]):
            alone = run("generate", "-m", self.model, *self.words, *MEMORY, *([] if "--report" in words else ["--json"]), *words)
            self.assertEqual(alone.returncode, 0, alone.stderr)
            for ranks, shares in (2, []), (2, ["--shares", "1:2"]), (3, []):
                shared = self.same(ranks, "-m", self.model, *self.words, *MEMORY, *([] if "--report" in words else ["--json"]), *words,
                                   *shares)
                self.assertEqual(shared.returncode, 0, shared.stderr)
                self.assertEqual(self.tokens(shared.stdout), self.tokens(alone.stdout), (words, ranks, shares))

    @staticmethod
    def tokens(output):
        """Tokens of one JSON object, or of a line for each sample."""
        try:
            return [json.loads(output)["tokens"]]
        except json.JSONDecodeError:
            return [json.loads(line)["tokens"] for line in output.splitlines()]

    def test_the_first_rank_alone_prints_and_reads_the_prompt(self):
        words = ["-m", self.model, *self.words[2:], *MEMORY]
        alone = run("generate", *words, stdin="abc abd")
        shared = self.same(3, *words, stdin="abc abd")
        self.assertEqual((shared.returncode, shared.stdout), (0, alone.stdout), shared.stderr)
        help_page = self.same(2, "--help")
        self.assertEqual((help_page.returncode, help_page.stdout), (0, run("generate", "--help").stdout))

    def test_each_rank_reads_its_rows(self):
        alone = run_json("generate", "-m", self.model, *self.words, *MEMORY)
        shared = json.loads(self.same(2, "-m", self.model, *self.words, *MEMORY, "--json").stdout)
        # The matrices of the layers, with 3 and 5 blocks of rows, are cut; so the first rank has some 0.6 of them at most.
        self.assertLess(shared["bytes_read"], 0.75 * alone["bytes_read"])

    def test_ranks_that_differ_end_with_one_message(self):
        words = [*self.words, *MEMORY]
        other = random_model(self.dir / "other", TOKENIZER, seed=3)
        mine = ["-m", self.model, *words]
        for theirs, said in ((["-m", other, *words], r"the model's fingerprint is \w+ on rank 0 \(.+\) and \w+ on rank 1 \("),
                             ([*mine, "-c", 64], r"--ctx-size is missing on rank 0 \(.+\) and 64 on rank 1 \("),
                             ([*mine, "--seed", 1], r"--seed is missing on rank 0 \(.+\) and 1 on rank 1 \("),
                             (["-m", self.dir / "nothing", *words], r"rank 1 \(.+\): .*nothing"),
                             (["-m", self.model, *self.words, "--memory", "5M"], r"rank 1 \(.+\): .*memory budget")):
            self.assertRegex(self.refusal(self.ranks(mine, theirs), 1), said)
        self.assertRegex(self.refusal(self.ranks(mine, [*mine, "--nonsense"]), 2), r"rank 1 \(.+\): unknown flag --nonsense")
        first = self.ranks(["-m", self.model, *self.words, "--memory", "5M"], mine)
        self.assertRegex(self.refusal(first, 1), r"rank 0 \(.+\): .*memory budget")

    def test_what_ranks_cannot_do_is_refused_by_name(self):
        words = ["-m", self.model, *self.words, *MEMORY]
        for more, said in ((["--num-beams", 2], "--num-beams"), (["--prompt-cache", self.dir / "kv"], "--prompt-cache"),
                           (["--shares", "1:1:1"], "--shares: names 3 ranks, and there are 2"), (["--shares", "1:0"], "'1:0' is no"),
                           (["--repack", self.dir / "rows"], "--repack"),
                           (["--rank-timeout", "0.1"], "--rank-timeout: must be"), (["--gpu-memory", "1G"], "--gpu-memory")):
            self.assertRegex(self.refusal(self.same(2, *words, *more), 2), rf"rank 0 \(.+\): .*{re.escape(said)}")
        self.assertIn("--memory: 2 ranks share this machine", self.refusal(self.same(2, "-m", self.model, *self.words), 2))
        tokenized = self.same(2, "-m", self.model, "-p", "abc", command="tokenize")
        self.assertIn("start it without mpirun", self.refusal(tokenized, 2, "canopy tokenize"))
        for flag in (["--shares", "1:1"], ["--rank-timeout", 3]):
            alone = run("generate", *words, *flag)
            self.assertEqual(alone.returncode, 2)
            self.assertIn("this is one process", alone.stderr)

    def launch(self, ranks, *words):
        """Starts ranks that write a long text; returns the launcher and the ranks' processes, once the text has begun."""
        before = processes(CANOPY)
        launched = subprocess.Popen([*MPIRUN, "-n", str(ranks), CANOPY, "generate", "-m", str(self.model), "-p", "abc", "-n", "500",
                                     "--ignore-eos", "--resident", "none", "--profile", str(PROFILE), *MEMORY, *words],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | ROOT)
        self.addCleanup(launched.kill)
        launched.stdout.read(1)
        found = sorted(processes(CANOPY) - before, key=rank_of)
        self.assertEqual(len(found), ranks)
        return launched, found

    def ended(self, launched, ranks, seconds):
        """Returns standard error and the exit status, once all have ended in time and none is left."""
        start = time.monotonic()
        _, errors = launched.communicate(timeout=120)
        self.assertLess(time.monotonic() - start, seconds)
        self.assertEqual(processes(CANOPY) & set(ranks), set(), "a process was left")
        return errors.decode(), launched.returncode

    def ended_by(self, number, which):
        """Sends one of three ranks a signal; returns what ended() does."""
        launched, ranks = self.launch(3, "--rank-timeout", str(TIMEOUT))
        os.kill(ranks[which], number)
        return self.ended(launched, ranks, TIMEOUT + SPARE)

    def test_all_end_when_one_is_killed(self):
        for which in (0, 2):
            errors, code = self.ended_by(signal.SIGKILL, which)
            self.assertNotEqual(code, 0)
            self.assertRegex(errors, rf"rank {which} ")

    def test_all_end_when_one_is_stopped(self):
        for which in (0, 1):
            errors, code = self.ended_by(signal.SIGSTOP, which)
            self.assertEqual(code, 1)
            self.assertEqual(len(re.findall(r"(?m)^canopy generate: ", errors)), 1, errors)
            self.assertRegex(errors, rf"(?m)^canopy generate: rank \d \(.+\): rank {which} \(.+\) did not answer for {TIMEOUT} s")

    def test_a_stop_request_of_the_first_ends_the_text_in_order(self):
        launched, ranks = self.launch(2)
        os.kill(ranks[0], signal.SIGTERM)
        errors, code = self.ended(launched, ranks, 60)
        self.assertEqual(code, 143, errors)
        self.assertIn("canopy generate: stopped after ", errors)


class OneProcess(TempDirCase):
    def test_one_process_of_mpirun_is_one_process(self):
        if not HAS_MPIRUN:
            self.skipTest("there is no mpirun")
        model = bytes_model(self.dir / "tiny")
        words = (CANOPY, "generate", "-m", model, "-p", "ab", "-n", 5, "--profile", PROFILE)
        self.assertEqual(mpirun(words).stdout, run(*words[1:]).stdout)


if __name__ == "__main__":
    main()
