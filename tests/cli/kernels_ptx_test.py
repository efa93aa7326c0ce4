"""The kernels' PTX, where a CUDA compiler was there to make it: scripts/check_ptx finds nothing in it."""
import os
import pathlib
import subprocess
import sys
import unittest

from support import REPO, main

PTX = pathlib.Path(os.environ["CANOPY_BUILD"]) / "tests/ptx/kernels.ptx"


@unittest.skipUnless(PTX.exists(), "there is no CUDA compiler")
class KernelsPtx(unittest.TestCase):
    def test_no_kernel_reads_plain_formats_byte_by_byte_or_has_arrays_in_local_memory(self):
        result = subprocess.run([sys.executable, REPO / "scripts" / "check_ptx", PTX], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    main()
