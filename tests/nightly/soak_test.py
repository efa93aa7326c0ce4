"""scripts/soak for half a minute on a random model; and what it makes of curves that are not flat."""
import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from support import REPO, TempDirCase, bytes_model, main  # noqa: E402

SCRIPT = REPO / "scripts" / "soak"
PROGRAM = pathlib.Path(os.environ["CANOPY_BUILD"]) / "tests" / "soak" / "soak"


def script():
    loader = importlib.machinery.SourceFileLoader("soak", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("soak", loader))
    loader.exec_module(module)
    return module


class Soak(TempDirCase):
    def test_it_runs(self):
        model = bytes_model(self.dir / "model")
        done = subprocess.run([SCRIPT, "0.008", "-m", model, "-md", model, "--least", "48", "--most", "200", "--soak", PROGRAM],
                              capture_output=True, text=True, env={**os.environ, "XDG_CACHE_HOME": str(self.dir)})
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr)
        self.assertIn("| 4 |", done.stdout)


class Judgement(unittest.TestCase):
    FLAT = dict(memory=100 << 20, steps=5, texts=3, wrong=0, errors=0, cancelled=0, stopped=0, peak_bytes=90 << 20,
                idle_bytes=30 << 20, descriptors=4, threads=1, cgroup_bytes=40 << 20)

    def wrongs(self, last):
        rows = [dict(self.FLAT) for _ in range(12)]
        for row in rows[9:]:
            row.update(last)
        soak = script()
        return " ".join(soak.wrongs(soak.quarters(rows)))

    def test_flat_curves_are_right(self):
        self.assertEqual(self.wrongs({}), "")

    def test_what_grows_or_differs_is_wrong(self):
        for last, says in (({"idle_bytes": 45 << 20}, "idle: 30 MiB became 45"), ({"descriptors": 5}, "descriptors: 4 became 5"),
                           ({"cgroup_bytes": 60 << 20}, "cgroup"), ({"threads": 2}, "threads"), ({"wrong": 1}, "3 texts differ"),
                           ({"errors": 1}, "3 ended in an error"), ({"peak_bytes": 101 << 20}, "1.01 of the budget")):
            self.assertIn(says, self.wrongs(last))


if __name__ == "__main__":
    main()
