"""The kernels' PTX, where there is a CUDA compiler: scripts/check_ptx finds nothing in it."""
import shutil
import subprocess
import sys
import unittest

from support import REPO, main


@unittest.skipUnless(shutil.which("nvcc"), "there is no CUDA compiler")
class KernelsPtx(unittest.TestCase):
    def test_no_kernel_reads_plain_formats_byte_by_byte_or_has_arrays_in_local_memory(self):
        result = subprocess.run([sys.executable, REPO / "scripts" / "check_ptx"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    main()
