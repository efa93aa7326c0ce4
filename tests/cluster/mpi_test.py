#!/usr/bin/env python3
"""Ranks over MPI, as processes of their own on this machine: all gather the same, and all end when one of them fails, dies or stops."""
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

PROGRAM = os.environ["CANOPY_MPI_PROGRAM"]
TIMEOUT, SPARE = 3, 10  # seconds: of a rank that stops; and what ending takes


def is_built_without_mpi():
    alone = subprocess.run([PROGRAM, "60", "gather"], capture_output=True, text=True, timeout=60)
    return "was built without MPI" in alone.stderr and "libopenmpi-dev" in alone.stderr


def processes():
    """Returns the processes that run the program."""
    found = set()
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "exe") == os.path.realpath(PROGRAM):
                found.add(int(entry.name))
        except OSError:  # it has ended, or is another's
            pass
    return found


class Mpi(unittest.TestCase):
    def run_ranks(self, ranks, *arguments, timeout=60):
        """Returns the exit status, both outputs and the seconds since a rank raised a signal, if one did."""
        command = ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none",
                   # A copy from another process's memory is refused in many containers.
                   "--mca", "btl_vader_single_copy_mechanism", "none", PROGRAM, str(timeout), *arguments]
        # mpirun refuses root without these.
        environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        before = processes()
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        raised = [float(line.split()[1]) for line in ended.stdout.split("\n") if line.startswith("raised ")]
        took = time.time() - raised[0] if raised else None
        self.assertEqual(processes() - before, set(), "a process was left")
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


if __name__ == "__main__":
    if is_built_without_mpi():
        print("skipped: built without MPI, as the program says")
        sys.exit(77)
    if not shutil.which("mpirun"):
        print("skipped: there is no mpirun")
        sys.exit(77)
    unittest.main()
