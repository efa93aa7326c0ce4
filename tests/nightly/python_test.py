"""The package for Python: the wheel that scripts/wheel builds, in a fresh virtual environment, by the tests of tests/python."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from support import REPO, main

WHEELS = REPO / "build" / "wheel"
TESTS = sorted((REPO / "tests" / "python").glob("*_test.py"))


def checked(*words, **options):
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True, **options)
    if result.returncode != 0:
        raise AssertionError(f"{words}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
    return result


@unittest.skipUnless((WHEELS / "env" / "bin" / "pip").exists(), "needs scikit-build-core and nanobind: scripts/wheel gets them")
class Package(unittest.TestCase):
    def test_its_wheel_does_what_it_says(self):
        checked(REPO / "scripts" / "wheel", "-DCANOPY_CUDA=OFF")
        [wheel] = WHEELS.glob("canopy-*.whl")
        folder = pathlib.Path(tempfile.mkdtemp(prefix="canopy_test_"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        checked(WHEELS / "env" / "bin" / "python", "-m", "venv", folder / "env")
        checked(folder / "env" / "bin" / "pip", "install", "--no-index", wheel)  # it needs no other package
        for test in TESTS:
            with self.subTest(test.stem):
                checked(folder / "env" / "bin" / "python", test, cwd=folder, timeout=600, env={**os.environ, "PYTHONPATH": ""})


if __name__ == "__main__":
    main()
