#!/usr/bin/env python3
"""Ranks over MPI, as processes of their own on this machine: all gather the same, and all end when one of them fails, dies or stops."""
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from mpirun import HAS_MPIRUN, MPIRUN, ROOT, mpirun, processes  # noqa: E402

PROGRAM, TEXTS = os.environ["CANOPY_MPI_PROGRAM"], os.environ["CANOPY_MPI_TEXTS"]
MODELS = pathlib.Path(__file__).resolve().parents[1] / "data" / "model"
TIMEOUT, SPARE = 6, 15  # seconds: of a rank that stops; and what ending takes


def is_built_without_mpi():
    alone = subprocess.run([PROGRAM, "60", "gather"], capture_output=True, text=True, timeout=60)
    return "was built without MPI" in alone.stderr and "libopenmpi-dev" in alone.stderr



class Mpi(unittest.TestCase):
    def run_ranks(self, ranks, *arguments, timeout=60):
        """Returns the exit status, both outputs and the seconds since a rank raised a signal, if one did."""
        before = processes(PROGRAM)
        ended = subprocess.run([*MPIRUN, "-n", str(ranks), PROGRAM, str(timeout), *arguments], capture_output=True, text=True,
                               timeout=300, env=os.environ | ROOT)
        raised = [float(line.split()[1]) for line in ended.stdout.split("\n") if line.startswith("raised ")]
        took = time.time() - raised[0] if raised else None
        self.assertEqual(processes(PROGRAM) - before, set(), "a process was left")
        return ended.returncode, ended.stdout, ended.stderr, took

    def test_all_gather_the_same(self):
        for ranks in (1, 2, 3):
            status, out, errors, _ = self.run_ranks(ranks, "gather")
            self.assertEqual(status, 0, errors)
            self.assertEqual(sorted(out.split("\n"))[1:], [f"done {rank}" for rank in range(ranks)])

    def test_an_error_of_one_reaches_all(self):
        for failing in (0, 1, 2):
            status, _, errors, _ = self.run_ranks(3, "fail", str(failing))
            self.assertNotEqual(status, 0)
            for rank in range(3):
                line = next((line for line in errors.split("\n") if line.startswith(f"rank {rank} (")), "")
                self.assertIn("the disk is gone", line, errors)

    def test_all_end_when_one_is_killed(self):
        for killed in (0, 1):
            status, _, errors, took = self.run_ranks(2, "kill", str(killed))
            self.assertNotEqual(status, 0)
            self.assertIn(f"rank {killed} ", errors)
            self.assertLess(took, TIMEOUT + SPARE)

    def test_all_end_when_one_is_stopped(self):
        for stopped in (0, 1):
            status, _, errors, took = self.run_ranks(2, "stop", str(stopped), timeout=TIMEOUT)
            self.assertNotEqual(status, 0)
            self.assertIn(f"rank {stopped} (", errors)
            self.assertIn(f"did not answer for {TIMEOUT} s", errors)
            self.assertLess(took, TIMEOUT + SPARE)


class Texts(unittest.TestCase):
    def mpirun(self, *contexts):
        """Runs a process for each list of arguments."""
        return mpirun(*[(TEXTS, *context) for context in contexts])

    def test_texts_are_those_of_one_process(self):
        for model in ("llama2", "mixtral", "qwen3"):
            words = (MODELS / model, 3, 0, 60)
            alone = subprocess.run([TEXTS, *map(str, words)], capture_output=True, text=True, timeout=300, check=True)
            self.assertEqual(len(alone.stdout.split()), 3 * 60)
            for ranks in (2, 3):
                result = self.mpirun(*[words] * ranks)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stdout, alone.stdout, (model, ranks))

    def test_ranks_with_other_models_end_all(self):
        result = self.mpirun((MODELS / "llama2", 1, 0, 60), (MODELS / "llama3", 1, 0, 60))
        self.assertNotEqual(result.returncode, 0)
        for rank in (0, 1):
            self.assertRegex(result.stderr, rf"(?m)^rank {rank} \(.*the model's fingerprint is ")
        self.assertEqual(result.stdout, "")

    def test_ranks_have_budgets_of_their_own(self):
        words = (MODELS / "llama2", 1, 0, 60)
        more = self.mpirun(words, (MODELS / "llama2", 1, 500, 60))
        self.assertEqual(more.returncode, 0, more.stderr)
        less = self.mpirun(words, (MODELS / "llama2", 1, 5, 60))
        self.assertNotEqual(less.returncode, 0)
        self.assertRegex(less.stderr, r"(?m)^rank 0 \(.*rank 1 \(.*memory budget")
        self.assertEqual(less.stdout, "")

    def test_all_end_when_one_is_killed_or_stopped_while_texts_are_written(self):
        for sent in (signal.SIGKILL, signal.SIGSTOP):
            for which in (0, 1):
                before = processes(TEXTS)
                words = [*MPIRUN, "-n", "2", TEXTS, str(MODELS / "llama2"), "1000000", "0", str(TIMEOUT)]
                with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      env=os.environ | ROOT) as launched:
                    launched.stdout.readline()  # both are at work
                    ranks = sorted(processes(TEXTS) - before)
                    self.assertEqual(len(ranks), 2)
                    os.kill(ranks[which], sent)
                    start = time.monotonic()
                    _, errors = launched.communicate(timeout=120)
                    self.assertLess(time.monotonic() - start, TIMEOUT + SPARE)
                    self.assertNotEqual(launched.returncode, 0)
                    self.assertIn(f"rank {which} ", errors)
                    self.assertEqual(processes(TEXTS) - before, set(), "a process was left")


if __name__ == "__main__":
    if is_built_without_mpi():
        print("skipped: built without MPI, as the program says")
        sys.exit(77)
    if not HAS_MPIRUN:
        print("skipped: there is no mpirun")
        sys.exit(77)
    unittest.main()
