"""A written file is whole or not there, links and devices stay, and what cannot be written is said before the work."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import time

from support import CANOPY, TempDirCase, bytes_model, counts_own_memory, main, run


class Outputs(TempDirCase):
    def setUp(self):
        super().setUp()
        self.model = bytes_model(self.dir / "model")
        self.generate = "generate", "-m", self.model, "-p", "x", "-n", "3", "--ignore-eos"

    def fails(self, code, *words, says, **options):
        result = run(*words, **options)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        lines = [line for line in result.stderr.splitlines() if not line.startswith(("note: ", "Try "))]
        self.assertEqual(len(lines), 1, result.stderr)
        for word in says:
            self.assertIn(str(word), lines[0])

    def test_a_report_that_cannot_be_written_is_said_before_the_run(self):
        for flag in ("--report", "--trace"):
            for bad in (self.dir / "no" / "such", self.dir):
                self.fails(1, *self.generate, flag, bad, says=[bad])
        bad = self.dir / "no" / "such"
        self.fails(1, "bench", "decode", "-m", self.model, "-md", self.model, "--csv", bad, says=[bad])

    def test_a_report_to_standard_output_comes_after_the_text(self):
        plain = run(*self.generate)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        result = run(*self.generate, "--report", "-", cwd=self.dir)
        self.assertTrue(result.stdout.startswith(plain.stdout))
        self.assertEqual(len(json.loads(result.stdout[len(plain.stdout):])["tokens"]), 3)
        self.assertFalse((self.dir / "-").exists())
        self.fails(2, *self.generate, "--json", "--report", "-", says=["--report -"])
        self.fails(2, *self.generate, "--trace", "-", says=["--trace -"])

    def test_links_and_devices_stay(self):
        (self.dir / "link").symlink_to("report.json")
        (self.dir / "full").symlink_to("/dev/full")
        for _ in range(2):
            self.assertEqual(run(*self.generate, "--report", self.dir / "link").returncode, 0)
            self.assertTrue((self.dir / "link").is_symlink())
            self.assertEqual(len(json.loads((self.dir / "report.json").read_text())["tokens"]), 3)
        result = run(*self.generate, "--report", self.dir / "full")
        self.assertEqual(result.returncode, 1)
        self.assertIn("No space left", result.stderr)
        self.assertTrue(pathlib.Path("/dev/full").is_char_device() and (self.dir / "full").is_symlink())

    def test_a_file_that_may_not_grow_leaves_nothing_behind(self):
        before = sorted(self.dir.iterdir())
        tight = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # after the profile is kept
        run(*self.generate)
        for flag in ("--report", "--trace"):
            result = run(*self.generate, flag, self.dir / "out", preexec_fn=tight)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn("File too large", result.stderr)
        result = run("quantize", "-m", self.model, "-o", self.dir / "out.gguf", "--type", "q8_0", preexec_fn=tight)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(sorted(self.dir.iterdir()), before)

    def test_what_a_killed_inflate_left_is_replaced(self):
        inflate = [CANOPY, "inflate", "-m", str(self.model), "-o", str(self.dir / "big"), "--size", "400M"]
        killed = subprocess.Popen(inflate, stderr=subprocess.DEVNULL)
        partial = self.dir / "big.canopy-partial" / "model.safetensors"
        while not partial.exists():
            self.assertIsNone(killed.poll())
            time.sleep(0.001)
        second = run(*inflate[1:])
        self.assertEqual(second.returncode, 1)
        self.assertIn("being written by another run", second.stderr)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        self.assertTrue((self.dir / "big.canopy-partial").exists() and (self.dir / "big-small.canopy-partial").exists())
        inflate[-1] = "2M"
        self.assertEqual(run(*inflate[1:]).returncode, 0)
        self.assertEqual(sorted(path.name for path in self.dir.iterdir()), ["big", "big-small", "model"])

    def test_a_run_without_a_writable_folder_gives_its_text(self):
        text = run(*self.generate).stdout
        environment = {key: value for key, value in os.environ.items() if key not in ("HOME", "XDG_CACHE_HOME")}
        for extra, says in (({}, "set XDG_CACHE_HOME or HOME"), ({"HOME": "/proc/nowhere"}, "not kept"),
                            ({"HOME": "/proc/nowhere", "XDG_CACHE_HOME": "relative"}, "'relative'"),
                            ({"XDG_CACHE_HOME": "/dev/null"}, "not kept")):
            for draft in ((), ("-md", self.model)):
                result = run(*self.generate, *draft, env={**environment, **extra})
                self.assertEqual((result.returncode, result.stdout), (0, text), result.stderr)
                self.assertIn(says, result.stderr)

    def test_flags_are_bounded_by_what_a_plan_can_have(self):
        drafted = *self.generate, "-md", self.model
        self.fails(2, *drafted, "--tree-size", "4000000", says=["--tree-size", "4096"])
        self.fails(2, *drafted, "--tree-depth", "4000000", says=["--tree-depth", "4096"])
        self.fails(2, *drafted, "--tree", "2-ary:5000", says=["--tree", "5000", "4096"])
        self.fails(2, *drafted, "--tree", "98,1", says=["--tree", "98 children", "97 tokens"])
        (self.dir / "tree.json").write_text(json.dumps([-1] + [0] * 5000))
        self.fails(2, *drafted, "--tree", self.dir / "tree.json", says=["tree.json", "5001", "4096"])
        self.fails(2, *self.generate, "-ctk", "f16", "-ctv", "bf16", says=["--cache-type-k", "one type"])

    def test_weights_that_are_no_numbers_fail(self):
        path = self.model / "model.safetensors"
        data = bytearray(path.read_bytes())
        header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
        at = 8 + int.from_bytes(data[:8], "little") + header["model.layers.1.mlp.down_proj.weight"]["data_offsets"][0]
        data[at:at + 2] = b"\xc0\x7f"  # a NaN in BF16
        path.write_bytes(data)
        (self.dir / "text").write_text("some text to score")
        for words in (self.generate, (*self.generate, "--temp", "1"),
                      ("perplexity", "-m", self.model, "-f", self.dir / "text")):
            result = run(*words)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn("MLP of layer 1", result.stderr)

    @counts_own_memory
    def test_limits_on_memory_are_named(self):
        run_in = lambda space, *words: run(*words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (space, space)))
        space = os.stat(CANOPY).st_size  # for the program; its libraries, and little more, come to it
        while run_in(space, "--version").returncode != 0:
            space += 4 << 20
        result = run_in(space + (4 << 20), *self.generate)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stderr, "memory")


if __name__ == "__main__":
    main()
