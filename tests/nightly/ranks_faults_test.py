"""Ranks that are killed or stopped at random moments: all end in time, with a message, and no process is left.

CANOPY_RANK_FAULTS: how often (20). Each takes some 4 s, and ctest ends a test after 900: 200 are two runs of 100, of other
CANOPY_RANK_FAULTS_SEEDs (1)."""
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from mpirun import HAS_MPIRUN, MPIRUN, ROOT, has_mpi, processes, random_model, rank_of  # noqa: E402
from support import CANOPY, PATIENCE, PROFILE, TOKENIZER, TempDirCase, main  # noqa: E402

COUNT = int(os.environ.get("CANOPY_RANK_FAULTS", "20"))
SEED = int(os.environ.get("CANOPY_RANK_FAULTS_SEED", "1"))
RANKS, TIMEOUT, SPARE = 3, 2, 5 * PATIENCE  # seconds


@unittest.skipUnless(HAS_MPIRUN and has_mpi(), "built without MPI, or there is no mpirun")
class RanksFaults(TempDirCase):
    def setUp(self):
        super().setUp()
        self.model = random_model(self.dir / "model", TOKENIZER)

    def launch(self):
        words = [*MPIRUN, "-n", RANKS, CANOPY, "generate", "-m", self.model, "-p", "abc", "-n", 400, "--ignore-eos", "--resident", "none",
                 "--memory", "300M", "--profile", PROFILE, "--rank-timeout", TIMEOUT]
        return subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=os.environ | ROOT)

    def test_all_end_in_time_whoever_is_killed_or_stopped(self):
        before = processes(CANOPY)
        whole = time.monotonic()
        text, errors = (launched := self.launch()).communicate(timeout=120)
        whole = time.monotonic() - whole
        self.assertEqual(launched.returncode, 0, errors)
        rng, struck, late = random.Random(SEED), 0, 0
        for turn in range(COUNT):
            sent, which, after = rng.choice((signal.SIGKILL, signal.SIGSTOP)), rng.randrange(RANKS), rng.uniform(0, whole)
            with self.subTest(seed=SEED, turn=turn, sent=sent.name, rank=which, after=after):
                launched = self.launch()
                time.sleep(after)
                victim = [one for one in processes(CANOPY) - before if rank_of(one) == which]
                begun = time.monotonic()
                for one in victim:
                    os.kill(one, sent)
                try:
                    try:
                        out, errors = launched.communicate(timeout=TIMEOUT + SPARE + 5)
                    except subprocess.TimeoutExpired:
                        if sent != signal.SIGSTOP:
                            raise
                        # All had left, and mpirun waits for the one that is stopped on its way out. It goes on when it may.
                        for one in victim:
                            os.kill(one, signal.SIGCONT)
                        out, errors = launched.communicate(timeout=10)
                        self.assertEqual((out, launched.returncode), (text, 0), errors)
                        late += 1
                finally:
                    took = time.monotonic() - begun
                    # mpirun sends ranks their last signal and does not wait for their end.
                    while (left := processes(CANOPY) - before) and time.monotonic() - begun < TIMEOUT + SPARE:
                        time.sleep(0.05)
                    for one in left:
                        os.kill(one, signal.SIGKILL)
                    launched.kill()
                self.assertEqual(left, set(), "a process was left")
                if out == text and launched.returncode == 0:
                    continue  # it was done
                struck += 1
                self.assertTrue(victim, errors)
                self.assertLess(took, TIMEOUT + SPARE, errors)
                self.assertNotEqual(launched.returncode, 0)
                # While ranks join, nobody knows yet who is missing, and mpirun may end them without a word.
                joined = out != "" or "rank" in errors
                if not joined and sent == signal.SIGKILL and launched.returncode == 128 + signal.SIGKILL:
                    continue
                self.assertRegex(errors, rf"rank {which}\b|(joining|ending with) the other ranks has taken longer")
        print(f"{struck} of {COUNT} runs were struck before their end, {late} on their way out; a whole one took {whole:.1f} s")
        self.assertGreater(struck, COUNT // 2)


if __name__ == "__main__":
    main()
