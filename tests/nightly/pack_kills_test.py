"""`canopy pack` that is killed at random moments: nothing half-written is taken for a model, and the next run goes on.

CANOPY_PACK_KILLS: how often (200)."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from pack_kills import killed_until_done  # noqa: E402
from support import TempDirCase, bytes_model, main, run  # noqa: E402

COUNT = int(os.environ.get("CANOPY_PACK_KILLS", "200"))
SEED = int(os.environ.get("CANOPY_PACK_KILLS_SEED", "1"))


class PackKills(TempDirCase):
    def test_each_run_goes_on_where_it_was_cut(self):
        model = self.dir / "model"
        made = run("inflate", "-m", bytes_model(self.dir / "tiny"), "-o", model, "--size", "100M")
        self.assertEqual(made.returncode, 0, made.stderr)
        wrong, struck, taken = killed_until_done(self.dir, ["pack", "-m", model, "-t", "1"], COUNT, SEED)
        print(f"{struck} kills, {taken} runs went on")
        self.assertEqual(wrong, [], f"seed {SEED}")
        self.assertEqual(struck, COUNT)
        self.assertGreater(taken, COUNT // 2)


if __name__ == "__main__":
    main()
