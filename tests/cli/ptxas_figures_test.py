"""scripts/ptxas_figures with a compiler that is played by a script: what it says of kernels, and what fits a multiprocessor."""
import subprocess
import sys

from support import REPO, TempDirCase, main

KERNEL = "_ZN6canopy4cuda3runINS0_11AttendChunkINS_6format3F16ELi{columns}ELb{exact}ELi{rows}EEEEEvT_"
SWIGLU = "_ZN6canopy4cuda3runINS0_6SwigluEEEvT_"


class PtxasFigures(TempDirCase):
    def nvcc(self, *kernels):
        """Kernels: (symbol, registers, bytes spilled)."""
        log = "".join(f"ptxas info    : Compiling entry function '{name}' for 'sm_89'\n"
                      f"ptxas info    : Function properties for {name}\n"
                      f"    {spilled} bytes stack frame, {spilled} bytes spill stores, {spilled} bytes spill loads\n"
                      f"ptxas info    : Used {registers} registers, used 1 barriers, 416 bytes cmem[0]\n"
                      for name, registers, spilled in kernels)
        program = self.dir / "nvcc"
        program.write_text(f"#!/bin/sh\ncat >&2 <<'EOF'\n{log}EOF\n")
        program.chmod(0o755)
        return program

    def figures(self, nvcc, *words):
        return subprocess.run([sys.executable, REPO / "scripts" / "ptxas_figures", "--nvcc", nvcc, *words],
                              capture_output=True, text=True)

    def test_prints_what_a_kernel_takes_and_the_blocks_that_fit(self):
        attend = KERNEL.format(columns=128, exact=1, rows=32)
        result = self.figures(self.nvcc((attend, 168, 0), (SWIGLU, 17, 0)))
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = [line.split() for line in result.stdout.splitlines()]
        # By hand: 168 registers of 128 threads take 21504 of 65536; 43648 + 1024 bytes go twice into 100 KiB.
        self.assertIn(["128", "168", "0", "43648", "2", "AttendChunk<F16,", "128,", "true,", "32>"], lines)
        self.assertIn(["256", "17", "0", "0+", "6", "Swiglu"], lines)

    def test_a_larger_multiprocessor_takes_more(self):
        result = self.figures(self.nvcc((KERNEL.format(columns=128, exact=1, rows=32), 128, 0)), "--arch", "90")
        self.assertEqual(result.stdout.splitlines()[1].split()[4], "4")

    def test_spills_and_attention_alone_on_a_multiprocessor_are_failures(self):
        spilling = self.figures(self.nvcc((SWIGLU, 17, 8)))
        self.assertEqual(spilling.returncode, 1)
        self.assertIn("Swiglu", spilling.stderr)
        alone = self.figures(self.nvcc((KERNEL.format(columns=64, exact=1, rows=32), 255, 0), (SWIGLU, 17, 0)))
        self.assertEqual(alone.returncode, 0, alone.stderr)  # 255 registers still leave room for two
        wide = self.figures(self.nvcc((KERNEL.format(columns=128, exact=0, rows=64), 128, 0)))
        self.assertEqual(wide.returncode, 1)
        self.assertIn("AttendChunk<F16, 128, false, 64>", wide.stderr)

    def test_a_compiler_that_fails_says_why(self):
        program = self.dir / "nvcc"
        program.write_text("#!/bin/sh\necho 'no such architecture' >&2\nexit 2\n")
        program.chmod(0o755)
        result = self.figures(program)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no such architecture", result.stderr)
        self.assertIn("kernel has Nothing", self.figures(self.nvcc((SWIGLU, 17, 0)), "--only", "Nothing").stderr)


if __name__ == "__main__":
    main()
