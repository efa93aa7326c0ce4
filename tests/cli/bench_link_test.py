"""canopy bench link: sweeps against raw reads, and what it refuses."""
import json
import unittest

from support import SMOLLM2, main, run


@unittest.skipUnless(SMOLLM2.exists(), "needs scripts/get_model")
class BenchLinkTest(unittest.TestCase):
    def test_measures_raw_reads_and_sweeps(self):
        done = run("bench", "link", SMOLLM2, "-r", "2", "--read-size", "256K", "--queue-depth", "8", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual((found["file"], found["read_bytes"], found["queue_depth"], found["repetitions"]),
                         (str(SMOLLM2), 256 << 10, 8, 2))
        for figures in (found[name] for name in ("raw_bytes_per_second", "sweep_bytes_per_second", "share")):
            self.assertGreater(figures["least"], 0)
            self.assertLessEqual(figures["least"], figures["median"])
            self.assertLessEqual(figures["median"], figures["most"])
        self.assertGreater(found["link_busy"]["median"], 0.3)  # nobody computes: what is left is waiting for reads
        self.assertLessEqual(found["link_busy"]["most"], 1.01)

    def test_table(self):
        done = run("bench", "link", SMOLLM2, "-r", "1", "--ring", "64M", "--no-direct-io", "--no-io-uring")
        self.assertEqual(done.returncode, 0, done.stderr)
        # A line without a name has the raw reads into more memory, where those are faster or slower.
        self.assertEqual([name for line in done.stdout.splitlines() if (name := line.split("  ")[0].strip())],
                         ["raw reads", "sweeps", "share", "link busy", "processor"])
        self.assertIn("64.0 MiB", done.stdout)
        share = next(line for line in done.stdout.splitlines() if line.startswith("share"))
        self.assertRegex(share, r"\d+ % \(\d+ to \d+\)  of the probe, the raw reads before the sweep$")

    def test_wrong_usage_names_the_flag(self):
        for words, flag in (((SMOLLM2, "--ring", "4K"), "--ring"), ((SMOLLM2, "--read-size", "5000"), "--read-size"),
                            ((SMOLLM2, "--queue-depth", "0"), "--queue-depth"), ((SMOLLM2, "-r", "0"), "--repetitions"),
                            ((), "--model")):
            done = run("bench", "link", *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(flag, done.stderr)

    def test_a_model_that_is_not_there(self):
        done = run("bench", "link", "nowhere")
        self.assertEqual(done.returncode, 1)
        self.assertIn("nowhere", done.stderr)


if __name__ == "__main__":
    main()
