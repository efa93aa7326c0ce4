"""scripts/check_ptx, on PTX that a script writes in the compiler's place."""
import subprocess
import sys

from support import REPO, TempDirCase, main

SWIGLU = "_ZN6canopy4cuda3runINS0_6SwigluEEEvT_"
ROTATE = "_ZN6canopy4cuda3runINS0_11RotatePairsEEEvT_"
COPY = "_ZN6canopy4cuda3runINS0_9CopySmallEEEvT_"
WEIGH = "_ZN6canopy4cuda3runINS0_11WeighScoresINS_6format3F16EEEEEvT_"
FEW = "_ZN6canopy4cuda3runINS0_7FewRowsINS_6format4Q4_0EEEEEvT_"
LOADS = "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];\nld.shared.u8 %rs1, [%r5];"
A_BYTE, SIGNED = "ld.global.u8 %rs1, [%rd1];", "ld.global.nc.s8 %rs1, [%rd1];"
LOCAL = ".local .align 4 .b8 \t__local_depot51[28];"


class CheckPtx(TempDirCase):
    def check(self, *kernels):
        """Kernels: (symbol, body)."""
        ptx = "\n".join(f".visible .entry {name}(\n.param .align 8 .b8 p[8]\n)\n{{\n{body}\nret;\n}}" for name, body in kernels)
        (self.dir / "ptx").write_text(ptx)
        nvcc = self.dir / "nvcc"
        nvcc.write_text(f'#!/bin/sh\nfor to in "$@"; do :; done\ncat "{self.dir}/ptx" >"$to"\n')
        nvcc.chmod(0o755)
        return subprocess.run([sys.executable, REPO / "scripts" / "check_ptx", "--nvcc", nvcc], capture_output=True, text=True)

    def test_vectors_and_bytes_of_packed_formats_are_right(self):
        result = self.check((SWIGLU, LOADS), (WEIGH, LOADS), (FEW, A_BYTE), (COPY, A_BYTE), (ROTATE, LOCAL))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "5 kernels\n")

    def test_bytes_of_plain_formats_are_failures(self):
        for kernel, name in ((SWIGLU, "Swiglu"), (WEIGH, "WeighScores<F16>")):
            for load in (A_BYTE, SIGNED):
                result = self.check((FEW, A_BYTE), (kernel, LOADS + "\n" + load))
                self.assertEqual(result.returncode, 1)
                self.assertIn(f"{name}: 1 loads of a byte", result.stderr)
                self.assertNotIn("FewRows", result.stderr)

    def test_an_array_in_local_memory_is_a_failure(self):
        result = self.check((FEW, LOCAL), (SWIGLU, LOADS))
        self.assertEqual(result.returncode, 1)
        self.assertIn("FewRows<Q4_0>: an array in local memory (.local .align 4 .b8 __local_depot51[28])", result.stderr)

    def test_nothing_to_check_is_a_failure(self):
        self.assertEqual(self.check().returncode, 1)


if __name__ == "__main__":
    main()
