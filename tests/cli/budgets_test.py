"""Budgets that cannot be meant, or cannot be had: the unit that was forgotten, what the machine has, layers on no GPU."""
import os
import pathlib
import re
import socket
import unittest

from support import SMOLLM2, TempDirCase, bytes_model, main, memory_cgroup, run, run_json


def notes(result, flag):
    return [line for line in result.stderr.splitlines() if line.startswith(f"note: {flag} ")]


class Budgets(TempDirCase):
    def setUp(self):
        super().setUp()
        self.model = bytes_model(self.dir / "tiny")
        self.generate = "generate", "-m", self.model, "-p", "once", "-n", 3

    def test_a_size_without_a_unit_is_refused_with_the_unit_that_was_forgotten(self):
        commands = [(*self.generate, flag) for flag in ("--memory", "--gpu-memory", "--kv-memory", "--resident")]
        commands += [("inflate", "-m", self.model, "-o", self.dir / "big", "--size"), ("bench", "link", self.model, "--ring"),
                     *(("bench", "offload", flag) for flag in ("--memory", "--host-memory", "--gpu-memory", "--resident"))]
        for command in commands:
            for given, meant in ("4", "4G"), ("1.5", "1.5G"), (".5", ".5G"), ("512", "512M"):
                result = run(*command, given)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(f"{command[-1]}: {given} bytes; did you mean {meant}?", result.stderr)

    def test_bytes_are_taken_where_they_are_enough_and_none_where_none_may_be(self):
        for flags in ("--memory", 64 << 20), ("--memory", "64M", "--resident", 0):
            self.assertEqual(run(*self.generate, *flags).returncode, 0)

    def test_a_budget_beyond_the_machine_is_named_by_every_command(self):
        template = self.dir / "template.jinja"
        template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        commands = [(self.generate, 0), (("plan", "-m", self.model), 0), (("bench", "-m", self.model, "-p", 4, "-n", 0, "-r", 1), 0),
                    (("chat", "-m", self.model, "--chat-template-file", template, "-c", 64), 0),
                    (("perplexity", "-m", self.model, "-f", template), 0)]
        with socket.create_server(("127.0.0.1", 0)) as taken:  # so that serve ends at once
            commands.append((("serve", "-m", self.model, "--port", taken.getsockname()[1]), 1))
            total = int(re.search(r"MemTotal: +(\d+) kB", pathlib.Path("/proc/meminfo").read_text())[1]) << 10
            for command, code in commands:
                for budget, shown in ("1T", "1.0 TiB"), ("1000T", "1000.0 TiB"):
                    result = run(*command, "--memory", budget, "--device", "cpu")
                    self.assertEqual(result.returncode, code, result.stderr)
                    note, = notes(result, "--memory")
                    self.assertRegex(note, rf"^note: --memory {shown}: .* has \d")
                    if "this machine" in note:
                        self.assertIn(f"this machine has {total / 2**30:.1f} GiB", note)
        self.assertEqual(notes(run(*self.generate, "--memory", "64M"), "--memory"), [])

    def test_a_budget_beyond_a_memory_cgroup_names_it(self):
        with memory_cgroup(256 << 20) as made:
            if made is None:
                self.skipTest("memory cgroups cannot be made here (needs root)")
            group, _ = made
            result = run(*self.generate, "--memory", "300M",
                         preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
        self.assertEqual(result.returncode, 0, result.stderr)
        note, = notes(result, "--memory")
        self.assertRegex(note, rf"the memory cgroup .*{group.name} has 256.0 MiB")

    def test_layers_for_a_gpu_that_is_not_there_are_a_note_and_change_nothing(self):
        for command in self.generate, ("plan", "-m", self.model):
            plain = run(*command, "--device", "cpu")
            asked = run(*command, "--device", "cpu", "-ngl", 99)
            self.assertEqual(asked.returncode, 0, asked.stderr)
            self.assertIn("no GPU is used", *notes(asked, "--n-gpu-layers"))
            if command is self.generate:
                self.assertEqual(asked.stdout, plain.stdout)
            for layers in 0, "auto":
                self.assertEqual(notes(run(*command, "--device", "cpu", "-ngl", layers), "--n-gpu-layers"), [])

    @unittest.skipUnless(SMOLLM2.exists(), "the model is not here; scripts/get_model fetches it")
    def test_layers_for_a_gpu_that_is_not_there_take_no_memory_from_a_small_budget(self):
        words = "generate", "-m", SMOLLM2, "-p", "x", "-n", 3, "--memory", "90M", "--device", "cpu"
        asked, plain = (run_json(*words, *gpu)["plan"]["ledger"] for gpu in (["-ngl", 99], []))
        # The process is larger by some pages in one run than in the next, and weights take the rest.
        process, weights = "the process as it stands: code, libraries, tokenizer", "target weights at rest"
        self.assertEqual(sum(asked.values()), sum(plain.values()))
        self.assertAlmostEqual(asked[process] + asked[weights], plain[process] + plain[weights], delta=2 << 20)
        for line in process, weights, "target ring":
            del asked[line], plain[line]
        self.assertEqual(asked, plain)


if __name__ == "__main__":
    main()
