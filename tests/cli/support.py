"""What the command-line tests share: the program, models to run it on, and a way to run it."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CANOPY = os.environ["CANOPY"]
REPO = pathlib.Path(__file__).resolve().parents[2]
DATA = REPO / "tests" / "data"
SMOLLM2 = pathlib.Path(os.environ.get("CANOPY_SMOLLM2", REPO / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"))
SKIPPED = 77  # CTest shows a program that returns this as skipped


def run(*words, stdin="", timeout=300, **options):
    return subprocess.run([CANOPY, *map(str, words)], input=stdin, capture_output=True, text=True,
                          timeout=timeout, **options)


def run_json(*words, **options):
    result = run(*words, "--json", **options)
    if result.returncode != 0:
        raise AssertionError(f"exit code {result.returncode}: {result.stderr}")
    return json.loads(result.stdout)


class TempDirCase(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="canopy_test_"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)


def main():
    """Runs the tests of the calling program; all of them skipped counts as skipped."""
    result = unittest.main(exit=False, verbosity=2).result
    if result.wasSuccessful() and result.testsRun == len(result.skipped):
        sys.exit(SKIPPED)
    sys.exit(not result.wasSuccessful())
