"""A model of 4 GB generates inside a memory cgroup of exactly 1 GB, page cache included; a mixture in the least it can."""
import json
import math
import os
import re
import shutil
import unittest

from support import SMOLLM2, TempDirCase, counts_own_memory, main, memory_cgroup, run, run_json

LIMIT = 1 << 30
PROMPT = "<|im_start|>user\nName three rivers.<|im_end|>\n<|im_start|>assistant\n"


@unittest.skipUnless(SMOLLM2.exists(), "the model is not here; scripts/get_model fetches it")
class Memory(TempDirCase):
    def generate_in_cgroup(self, *words, limit=LIMIT):
        with memory_cgroup(limit) as made:
            if made is None:
                self.skipTest("memory cgroups cannot be made here (needs root)")
            group, peak = made
            join = lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
            done = run("generate", *words, "-p", PROMPT, "--memory", limit, "--ignore-eos", "--progress", "--json",
                       preexec_fn=join)
            self.assertEqual(done.returncode, 0, done.stderr)
            # The rate may be more than the probe's, as disks drift: it is a share of nothing else.
            self.assertRegex(done.stderr, r"/s \(\d+% of the probe\),.* link busy \d+%")
            return json.loads(done.stdout), peak()

    @counts_own_memory
    def test_four_times_the_memory(self):
        if shutil.disk_usage(self.dir).free < 6 << 30:
            self.skipTest(f"needs 6 GB free in {self.dir}")
        big, draft = self.dir / "big", self.dir / "draft.gguf"
        made = run("inflate", "-m", SMOLLM2, "-o", big, "--size", "4G")
        self.assertEqual(made.returncode, 0, made.stderr)
        made = run("quantize", "-m", f"{big}-small", "-o", draft, "--type", "q4_0")
        self.assertEqual(made.returncode, 0, made.stderr)

        plain, plain_peak = self.generate_in_cgroup("-m", big, "-n", 3)
        tree, tree_peak = self.generate_in_cgroup("-m", big, "-md", draft, "-n", 24)
        small = run_json("generate", "-m", f"{big}-small", "-p", PROMPT, "-n", 24, "--ignore-eos")
        self.assertEqual(tree["tokens"], small["tokens"])  # the enlargement is the same function
        self.assertEqual(plain["tokens"], small["tokens"][:3])
        for report, peak in ((plain, plain_peak), (tree, tree_peak)):
            self.assertLessEqual(peak, LIMIT)
            plan = report["plan"]
            self.assertGreater(plan["ring_bytes"], 0)
            self.assertGreater(plan["planned_bytes"], 0.97 * LIMIT)  # no megabyte is wasted
            self.assertIn("inflated_from", report)
            print(f"peak: reported {report['peak_memory_bytes']}, cgroup {peak}")
            self.assertLess(abs(report["peak_memory_bytes"] / peak - 1), 0.05)

    @counts_own_memory
    def test_a_mixture_from_the_least_that_it_takes(self):
        if shutil.disk_usage(self.dir).free < 3 << 30:
            self.skipTest(f"needs 3 GB free in {self.dir}")
        big = self.dir / "big"
        made = run("inflate", "-m", SMOLLM2, "-o", big, "--experts", 12, "--active", 2)
        self.assertEqual(made.returncode, 0, made.stderr)
        small = run_json("generate", "-m", f"{big}-small", "-p", PROMPT, "-n", 12, "--ignore-eos")
        hits = math.inf
        for limit in (1 << 30, 700 << 20, 400 << 20, None):  # the first measures the machine, which takes memory, too
            if limit is None:
                refused = run("generate", "-m", big, "-p", PROMPT, "-n", 12, "--memory", "50M")
                self.assertEqual(refused.returncode, 1)
                self.assertIn("the experts of a token", refused.stderr)
                least, = re.findall(r"at least ([\d.]+) MiB are needed", refused.stderr)
                limit = least = math.ceil(float(least)) + 2 << 20  # the process itself differs by pages
            report, peak = self.generate_in_cgroup("-m", big, "-n", 12, limit=limit)
            self.assertEqual(report["tokens"], small["tokens"])
            self.assertLessEqual(peak, limit)
            self.assertLessEqual(report["experts"]["hits"], hits)
            hits = report["experts"]["hits"]
            print(f"limit {limit >> 20} MiB: peak {peak >> 20} MiB, {report['experts']}")
        slot = 6 << 20  # of an expert, and more
        short = run("generate", "-m", big, "-p", PROMPT, "-n", 12, "--memory", least - slot)
        self.assertEqual(short.returncode, 1)
        self.assertRegex(short.stderr, r"at least [\d.]+ MiB are needed")


if __name__ == "__main__":
    main()
