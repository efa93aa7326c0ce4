"""scripts/gpu_check, every call of it, on a machine without a GPU: what it runs exists here, or is played by a small script."""
import contextlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

from support import CANOPY, REPO, TempDirCase, main

SCRIPT = REPO / "scripts" / "gpu_check"
NCU = """while [ "${1%canopy}" = "$1" ]; do shift; done
"$@" || exit 1
cat <<'EOF'
"ID","Kernel Name","Block Size","Grid Size","Metric Name","Metric Unit","Metric Value"
"0","linear","(256, 1, 1)","(8, 1, 1)","gpu__time_duration.sum","ns","1,500"
"1","linear","(256, 1, 1)","(8, 1, 1)","gpu__time_duration.sum","us","2.5"
"2","attend","(128, 1, 1)","(8, 1, 1)","gpu__time_duration.sum","usecond","9"
EOF
"""


TESTS = """case $* in
*--gtest_list_tests*) printf 'Devices/RowOps.\\n  Adds/emulated  # GetParam() = "emulated"\\nDevices/SamplingOps.\\n  Draws/emulated\\n';;
*) echo "[  PASSED  ] 3 tests.";;
esac"""


class GpuCheck(TempDirCase):
    def setUp(self):
        super().setUp()
        self.folder, self.out, self.tools = (self.dir / name for name in ("gpu", "out", "tools"))
        for folder in (self.folder / "lib", self.out, self.tools):
            folder.mkdir(parents=True)
        (self.folder / "canopy").symlink_to(CANOPY)
        sys.dont_write_bytecode = True
        loader = SourceFileLoader("gpu_check", str(SCRIPT))
        self.gpu_check = module_from_spec(spec_from_loader("gpu_check", loader))
        loader.exec_module(self.gpu_check)
        for test in self.gpu_check.TESTS:
            self.program(self.folder / test, TESTS)
        self.program(self.folder / "gpu_probe", 'echo "h2d 1 MiB chunks: 1.00 GB/s"; echo "$@"')
        self.program(self.tools / "nvidia-smi", "echo 'NVIDIA H200, 143771 MiB'")
        self.program(self.tools / "ncu", NCU)
        self.program(self.tools / "compute-sanitizer", '[ "$1" = --tool ] && exec "${@:5}"')
        (self.folder / "lib" / "libcublas.so.13").touch()

    def program(self, path, text):
        path.write_text("#!/bin/bash\n" + text + "\n")
        path.chmod(0o755)

    def call(self, number):
        environment = {**os.environ, "OUT": str(self.out), "PATH": f"{self.tools}:{os.environ['PATH']}",
                       "LD_LIBRARY_PATH": str(self.folder / "lib")}
        done = subprocess.run([SCRIPT, str(number), self.folder, "--dry-run"], capture_output=True, text=True, env=environment)
        self.assertNotIn("Traceback", done.stderr)
        return done

    def archived(self, number):
        with tarfile.open(self.out / f"gpu_check-{number}.tar.gz") as tar:
            return {pathlib.Path(name).name for name in tar.getnames()}

    def test_the_first_call_tells_of_the_machine_runs_each_suite_alone_and_probes(self):
        done = self.call(1)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for line in ("NVIDIA H200", "MemAvailable", "driver and runtime: ok", "cublas: ", "kernels_tests Devices/RowOps: ok",
                     "engine_tests Devices/SamplingOps: ok", "h2d 1 MiB chunks", "rounding", "0 failed"):
            self.assertIn(line, done.stdout)
        self.assertEqual(done.stdout.count("[  PASSED  ] 3 tests."), 8)
        self.assertLessEqual({"summary.txt", "doctor.txt", "probe.txt", "kernels_tests-Devices-RowOps.txt"}, self.archived(1))

    def test_every_program_with_tests_of_a_gpu_is_packed(self):
        """Suites are found by asking the programs; this holds that no program is left out."""
        folders = {file.relative_to(REPO / "tests").parts[0] for file in (REPO / "tests").rglob("*_test.cc")
                   if re.search(r'"cuda"|CANOPY_ON_EACH_DEVICE|OnCuda', file.read_text())}
        self.assertLessEqual({f"{folder}_tests" for folder in folders}, set(self.gpu_check.TESTS))

    def test_the_second_call_sets_steps_beside_what_h2d_and_the_data_sheet_say(self):
        done = self.call(2)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count(" s per token; link from disk "), 7, done.stdout)
        self.assertRegex(done.stdout, r"1 nodes: .* [\d.]+% of h2d")
        parts = ", ".join(rf"{part} \d+\.\d{{3}}/\d+\.\d{{3}}" for part in ("step", "link", "compute", "draft"))
        self.assertEqual(len(re.findall(f"measured/predicted s: {parts}\n", done.stdout)), 5, done.stdout)
        self.assertIn("h2d, measured/predicted GB/s: 1.0/55.0", done.stdout)
        for name in ("768 nodes, eager", "plain, layers share bytes", "plain, layers have own bytes", "h2d out of much memory"):
            self.assertIn(f"{name}: ok", done.stdout)
        self.assertLessEqual({"profile-llama-2-70b.json", "profile-llama-2-70b-packed.json"}, self.archived(2))

    def test_the_third_call_runs_the_checkers_sums_kernel_times_and_has_the_long_probes(self):
        done = self.call(3)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("4.0 us in    2 runs,       2.5 at most: linear", done.stdout)
        self.assertLess(done.stdout.index("attend"), done.stdout.index("linear"))
        self.assertEqual(done.stdout.count("check "), 2 * len(self.gpu_check.CHECKED))
        for line in ("1 GiB touched", "chosen-gpu", "filled-card-64"):
            self.assertIn(line, done.stdout)

    def test_the_fourth_call_has_a_process_per_row(self):
        done = self.call(4)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count(" s per token; link from disk "), 7, done.stdout)
        self.assertIn("1024 nodes: ok", done.stdout)

    def test_the_fifth_call_runs_the_other_systems_and_says_which_are_missing(self):
        done = self.call(5)
        self.assertIn("  canopy: ", done.stdout)
        self.assertIn("  accelerate-cpu: ", done.stdout)
        self.assertIn("compare.jsonl", self.archived(5))

    def test_a_failure_is_a_line_and_the_rest_runs(self):
        self.program(self.folder / "kernels_tests", '[[ "$*" != */Attention.* ]] || { echo wrong; exit 3; }')
        done = self.call(3)
        self.assertEqual(done.returncode, 1)
        self.assertIn("memcheck Attention: FAILED, exit code 3", done.stdout)
        self.assertIn("    wrong", done.stdout)
        self.assertIn("racecheck SamplingOps: ok", done.stdout)
        self.assertIn("memcheck-Attention.txt", self.archived(3))

    def test_who_hangs_is_ended_and_who_has_no_time_is_not_begun(self):
        self.program(self.folder / "kernels_tests", TESTS.replace("3 tests", "0 tests"))
        call = self.gpu_check.Call(9, self.folder, True)
        self.addCleanup(call.summary.close)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertIsNone(call.run("hangs", ["sleep", "60"], 1))
            self.gpu_check.run_tests(call)
            call.deadline = 0
            self.assertIsNone(call.run("late", ["true"], 10))
        self.assertEqual(call.failed, 4)
        for line in ("hangs: FAILED, stopped after 1 s", "kernels_tests Devices/RowOps: FAILED: none of its tests ran",
                     "late: SKIPPED, no time is left"):
            self.assertIn(line, out.getvalue())
        self.assertEqual((call.results / "summary.txt").read_text(), out.getvalue())

    def test_what_was_packed_is_unpacked_beside_its_archive(self):
        archive = self.gpu_check.archive_of(self.folder)
        (self.folder / "canopy").unlink()
        self.program(self.folder / "canopy", f'exec "{CANOPY}" "$@"')  # the program itself takes a minute to pack
        with tarfile.open(archive, "w:xz", dereference=True) as tar:
            tar.add(self.folder, arcname=self.folder.name)
        shutil.rmtree(self.folder)
        done = self.call(1)
        self.assertIn("engine_tests Devices/SamplingOps: ok", done.stdout, done.stderr)

    def test_without_programs_it_says_what_to_do(self):
        done = subprocess.run([SCRIPT, "1", self.dir / "none"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("run scripts/gpu_check pack first", done.stderr)
        self.assertEqual(subprocess.run([SCRIPT, "9"], capture_output=True).returncode, 2)


if __name__ == "__main__":
    main()
