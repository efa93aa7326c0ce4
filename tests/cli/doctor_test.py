"""canopy doctor finds what is there, in words and as JSON."""
import os
import pathlib
import re
import unittest

from support import DATA, SMOLLM2, TempDirCase, main, run, run_json

TINY = DATA / "model" / "llama2"


class Doctor(TempDirCase):
    def test_measures_the_machine(self):
        found = {f["name"]: f for f in run_json("doctor")["findings"]}
        self.assertEqual(found["kernel"]["value"], os.uname().release)
        self.assertGreater(found["memory"]["value"]["total"], found["memory"]["value"]["available"])
        self.assertGreater(found["RAM, read"]["value"], 1e8)
        self.assertGreater(found["products"]["value"], 1e8)
        self.assertGreaterEqual(found["NUMA nodes"]["value"], 1)
        self.assertNotIn("disk, read", found)
        for finding in found.values():
            self.assertEqual(finding["ok"], finding["fix"] is None)

    def test_says_plainly_that_there_is_no_gpu(self):
        line = next(line for line in run("doctor").stdout.splitlines() if line[2:].startswith("GPU"))
        if not line[2:].startswith("GPU  "):
            self.skipTest("there is a GPU")
        self.assertRegex(line, r"none \(.*\); all is computed on the CPU$")

    def test_names_the_versions_of_cuda_that_the_program_and_the_driver_have(self):
        cuda = [f["value"] for f in run_json("doctor")["findings"] if f["name"] == "CUDA"]
        if not re.search(r"\bcuda\b", run("--version").stdout):
            return self.assertEqual(cuda, [])
        self.assertRegex(cuda[0], r"the program has CUDA \d+\.\d+, the driver (is not installed|supports CUDA \d+\.\d+)")

    def test_names_the_filesystem_under_a_model(self):
        if not pathlib.Path("/dev/shm").is_dir():
            self.skipTest("no tmpfs at /dev/shm")
        model = pathlib.Path("/dev/shm") / self.dir.name
        self.addCleanup(lambda: (model / "model.safetensors").unlink() or (model / "config.json").unlink() or model.rmdir())
        model.mkdir()
        for name in ("config.json", "model.safetensors"):
            (model / name).write_bytes((TINY / name).read_bytes())
        found = {f["name"]: f for f in run_json("doctor", model)["findings"]}
        self.assertEqual(found["filesystem"]["value"]["type"], "tmpfs")
        self.assertIsNone(found["disk, NUMA node"]["value"])
        self.assertIsNone(found["disk, read"]["value"])  # too small to measure

    @unittest.skipUnless(SMOLLM2.exists(), "the model is not here; scripts/get_model fetches it")
    def test_measures_the_disk_under_a_model(self):
        found = {f["name"]: f for f in run_json("doctor", SMOLLM2)["findings"]}
        self.assertGreater(found["disk, read"]["value"]["bytes_per_second"], 1e6)

    def test_refuses_a_model_that_is_not_there(self):
        result = run("doctor", self.dir / "none")
        self.assertEqual(result.returncode, 1)
        self.assertIn("none", result.stderr)


if __name__ == "__main__":
    main()
