"""The build with CUDA compilers of other versions, which a script plays."""
import subprocess

from support import REPO, TempDirCase, main

SCRIPT = """include("{repo}/cmake/cuda_compiler.cmake")
canopy_cuda_version("{nvcc}" version)
canopy_cuda_fault("${{version}}" fault)
canopy_cuda_code("${{version}}" code)
message("${{version}}|${{fault}}|${{code}}")
"""


class CudaCompiler(TempDirCase):
    def asked(self, says):
        nvcc, script = self.dir / "nvcc", self.dir / "ask.cmake"
        nvcc.write_text(f"#!/bin/sh\necho '{says}'\n")
        nvcc.chmod(0o755)
        script.write_text(SCRIPT.format(repo=REPO, nvcc=nvcc))
        done = subprocess.run(["cmake", "-P", script], capture_output=True, text=True, check=True)
        return done.stderr.strip().split("|")

    def test_one_without_cpp20_is_refused_by_its_version(self):
        version, fault, _ = self.asked("Cuda compilation tools, release 11.8, V11.8.89")
        self.assertEqual(version, "11.8")
        self.assertIn("nvcc 11.8 is too old", fault)
        self.assertIn("CUDA 12 or newer", fault)

    def test_newer_ones_compile_for_the_gpus_that_they_know(self):
        for release, cards in (("12.0", "sm_80,sm_89,sm_90"), ("12.6", "sm_80,sm_89,sm_90"), ("12.8", "sm_80,sm_89,sm_90,sm_120"),
                               ("13.0", "sm_80,sm_89,sm_90,sm_120")):
            self.assertEqual(self.asked(f"Cuda compilation tools, release {release}, V{release}.88"),
                             [release, "", f"--generate-code=arch=compute_80,code=[compute_80,{cards}]"])

    def test_one_that_does_not_say_is_tried(self):
        self.assertEqual(self.asked("clang version 18")[:2], ["", ""])


if __name__ == "__main__":
    main()
