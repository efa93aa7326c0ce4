"""Kills at random moments and single faults: a few of what scripts/faults does a thousand times."""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import faults  # noqa: E402
from support import TempDirCase, main  # noqa: E402

KILLS = 30


class Faults(TempDirCase):
    def setUp(self):
        super().setUp()
        self.dir.chmod(0o755)  # some run as an ordinary user

    def test_kills(self):
        seed = time.time_ns() % 10 ** 6
        killing = faults.Killing(self.dir, seed)
        killing.run(KILLS)
        self.assertEqual(killing.wrong, [], f"seed {seed}")

    def test_single_faults(self):
        for number, (name, fault) in enumerate(faults.FAULTS.items()):
            with self.subTest(name):
                folder = self.dir / str(number)
                folder.mkdir()
                said = fault(folder)
                if said.startswith("skipped"):
                    print(f"{name}: {said}")
                else:
                    self.assertEqual(said, "")


if __name__ == "__main__":
    main()
