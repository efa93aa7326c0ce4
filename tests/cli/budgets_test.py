"""Budgets that cannot be meant: the unit that was forgotten."""
from support import TempDirCase, bytes_model, main, run


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


if __name__ == "__main__":
    main()
