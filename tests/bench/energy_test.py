"""bench/energy.py has the rules of src/machine/energy.h: the same machines as tests/machine/energy_test.cc."""
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from energy import EnergyMeter  # noqa: E402

NO_NVML = "no such library"


class EnergyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def domain(self, place, name, microjoules, size=262143328850):
        folder = self.root / "sys/class/powercap" / place
        folder.mkdir(parents=True, exist_ok=True)
        for file, value in (("name", name), ("max_energy_range_uj", size), ("energy_uj", microjoules)):
            (folder / file).write_text(f"{value}\n")

    def two_sockets(self, base):
        for place, name, own in (("intel-rapl:0", "package-0", 1e6), ("intel-rapl:0:0", "core", 9e5), ("intel-rapl:0:1", "dram", 3e5),
                                 ("intel-rapl:1", "package-1", 2e6), ("intel-rapl:1:0", "dram", 4e5), ("intel-rapl:2", "psys", 9e6),
                                 ("intel-rapl-mmio:0", "package-0", 1e6)):
            self.domain(place, name, base + int(own))

    def test_packages_and_their_memory_count_once(self):
        self.two_sockets(0)
        meter = EnergyMeter(self.root, NO_NVML)
        self.assertEqual(meter.counters, ["RAPL package-0", "RAPL dram-0", "RAPL package-1", "RAPL dram-1"])
        self.two_sockets(5_000_000)
        self.assertEqual(meter.joules(), 20)

    def test_the_platform_counts_without_packages(self):
        self.domain("intel-rapl:0", "psys", 7)
        self.assertEqual(EnergyMeter(self.root, NO_NVML).counters, ["RAPL psys"])

    def test_a_counter_that_begins_again_went_to_its_range_before(self):
        self.domain("intel-rapl:0", "package-0", 90, 100)
        meter = EnergyMeter(self.root, NO_NVML)
        self.domain("intel-rapl:0", "package-0", 20, 100)
        self.assertAlmostEqual(meter.joules(), 30e-6)

    def test_no_counter_is_none_with_reasons(self):
        meter = EnergyMeter(self.root, NO_NVML)
        self.assertIsNone(meter.joules())
        self.assertIn("no intel-rapl domain", meter.missing[0])
        self.assertIn("NVML", meter.missing[1])

    def test_a_counter_lost_midway_is_none_from_then_on(self):
        self.two_sockets(0)
        meter = EnergyMeter(self.root, NO_NVML)
        (self.root / "sys/class/powercap/intel-rapl:0/energy_uj").unlink()
        self.assertIsNone(meter.joules())
        self.assertIsNone(meter.joules())
        self.assertEqual(len(meter.missing), 2)

    def test_gpus_that_count_do(self):
        meter = EnergyMeter(self.root, os.environ["CANOPY_FAKE_NVML"])
        self.assertEqual(meter.counters, ["GPU 0, Fake H100"])
        before = meter.joules()
        self.assertAlmostEqual(meter.joules() - before, 2)
        self.assertEqual(meter.missing[-1], "GPU 1, Fake K80: Not Supported")


if __name__ == "__main__":
    unittest.main(verbosity=2)
