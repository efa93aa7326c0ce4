"""canopy shard: a rank's rows of a model, in files with holes; ranks of their shards write the text of one process."""
import json
import re
import shutil
import unittest

from mpirun import HAS_MPIRUN, has_mpi, mpirun, random_model
from support import CANOPY, PROFILE, TOKENIZER, TempDirCase, main, run

WORDS = ["-p", "abc abd", "-n", 16, "--ignore-eos", "--resident", "none", "--profile", PROFILE, "--no-learn", "--memory", "300M"]
PAGE = 4096


def allocated(path):
    """Bytes that a file takes of the disk."""
    return path.stat().st_blocks * 512


class Shard(TempDirCase):
    def setUp(self):
        super().setUp()
        self.model = random_model(self.dir / "model", TOKENIZER)

    def shard(self, rank, ranks, *words, name=None, code=0):
        output = self.dir / (name or f"shard-{rank}-of-{ranks}")
        result = run("shard", "-m", self.model, "--ranks", ranks, "--rank", rank, "-o", output, *words)
        self.assertEqual(result.returncode, code, result.stderr)
        return output if code == 0 else result.stderr

    def test_has_the_bytes_of_its_rows_in_their_places(self):
        whole = (self.model / "model.safetensors").read_bytes()
        parts = [(self.shard(rank, 3, "--shares", "2:1:1") / "model.safetensors").read_bytes() for rank in range(3)]
        for part in parts:
            self.assertEqual(len(part), len(whole))
            self.assertTrue(all(b in (0, a) for a, b in zip(whole, part)))
        for at in range(0, len(whole), 61):  # each byte is somewhere
            self.assertIn(whole[at], [part[at] for part in parts])
        shard = self.dir / "shard-1-of-3"
        for name in "config.json", "tokenizer.json":
            self.assertEqual((shard / name).read_bytes(), (self.model / name).read_bytes())
        label = json.loads((shard / "canopy_shard.json").read_text())
        self.assertEqual((label["rank"], label["shares"], label["block"]), (1, [2, 1, 1], 128))

    def test_takes_its_share_of_the_disk(self):
        whole = self.model / "model.safetensors"
        sizes = [allocated(self.shard(rank, 2) / "model.safetensors") for rank in range(2)]
        if max(sizes) >= whole.stat().st_size:
            self.skipTest("this file system has no holes")
        # Embedding and head (97 rows each) are whole, or one rank's; each of 14 matrices has a hole in one of the two files.
        table = 97 * 384 * 2
        self.assertLess(sum(sizes), whole.stat().st_size + table + 14 * 2 * PAGE + 20 * PAGE)

    @unittest.skipUnless(HAS_MPIRUN and has_mpi(), "built without MPI, or there is no mpirun")
    def test_ranks_of_shards_write_the_text_of_one_process(self):
        alone = run("generate", "-m", self.model, *WORDS)
        self.assertEqual(alone.returncode, 0, alone.stderr)
        for ranks, shares in (2, []), (3, ["--shares", "1:2:1"]):
            shards = [self.shard(rank, ranks, *shares) for rank in range(ranks)]
            shared = mpirun(*[(CANOPY, "generate", "-m", one, *WORDS, *shares) for one in shards])
            self.assertEqual((shared.stdout, shared.returncode), (alone.stdout, 0), shared.stderr)

    @unittest.skipUnless(HAS_MPIRUN and has_mpi(), "built without MPI, or there is no mpirun")
    def test_another_shard_is_refused_by_name(self):
        first, second = self.shard(0, 2), self.shard(1, 2)
        def refused(models, *words):
            result = mpirun(*[(CANOPY, "generate", "-m", model, *WORDS, *words) for model in models])
            self.assertNotEqual(result.returncode, 0)
            self.assertEqual(result.stdout, "")
            return result.stderr
        self.assertRegex(refused([first, first]), r"rank 1 \(.+\): .*shard-0-of-2 has the rows of rank 0 of 2, with --shares 1:1, and "
                                                  r"this process wants the rows of rank 1 of 2")
        self.assertRegex(refused([second, second]), "shard-1-of-2 has the rows of rank 1 of 2")
        self.assertRegex(refused([first, second], "--shares", "2:1"), "wants the rows of rank [01] of 2, with --shares 2:1")
        self.assertRegex(refused([first, second, second]), "wants the rows of rank [012] of 3")
        other = random_model(self.dir / "other", TOKENIZER, seed=5)
        self.assertRegex(refused([first, other]), "the model's fingerprint is")
        # A label that lies is caught by what the files have.
        for name in "canopy_shard.json", "canopy_shard_rows.json":
            shutil.copy(second / name, first / name)
        file = first / "model.safetensors"
        if allocated(file) < file.stat().st_size:
            said = refused([self.model, first])
            self.assertRegex(said, r"rank 1 \(.+\): tensor '[\w.]+' lies in a hole: .*: copy the file again")
            self.assertIn(f"while looking for the rows of this rank in {file}", said)
        # So it is where a copy has zeros in place of holes, though no file system knows.
        whole = file.read_bytes()
        file.unlink()
        file.write_bytes(whole)
        self.assertRegex(refused([self.model, first]), rf"rank 1 \(.+\): .*{re.escape(str(file))} does not have the rows of tensor "
                                                       r"'[\w.]+' that canopy shard has written for this rank: copy the file again")

    def test_nothing_else_takes_a_shard(self):
        shard = self.shard(1, 2)
        for command in ("generate", "-m", shard, *WORDS), ("inspect", shard), ("pack", "-m", shard, "-o", self.dir / "packed"), \
                ("generate", "--allow-holes", "-m", shard, *WORDS), ("shard", "-m", shard, "--ranks", 2, "--rank", 0, "-o", self.dir / "x"):
            result = run(*command)
            self.assertEqual(result.returncode, 1, command)
            self.assertIn("has the rows of rank 1 of 2, with --shares 1:1 alone", result.stderr)
        self.assertFalse((self.dir / "x").exists())

    def test_labels_that_make_no_sense_are_refused(self):
        shard = self.shard(0, 2)
        good = json.loads((shard / "canopy_shard.json").read_text())
        for text in ("", "[]", "{", json.dumps(good | {"version": 2}), json.dumps(good | {"rank": 2}), json.dumps(good | {"rank": -1}),
                     json.dumps(good | {"rank": "0"}), json.dumps(good | {"shares": []}), json.dumps(good | {"shares": [0, 1]}),
                     json.dumps(good | {"shares": 3}), json.dumps(good | {"block": 0}), json.dumps(good | {"fingerprint": 1})):
            (shard / "canopy_shard.json").write_text(text)
            result = run("inspect", shard)
            self.assertEqual(result.returncode, 1, text)
            self.assertIn("canopy_shard.json", result.stderr)

    def test_wrong_words_write_nothing(self):
        for words, said in ((["--rank", 2, "--ranks", 2], "--rank: must be below --ranks, 2"), (["--rank", 0], "--ranks"),
                            (["--rank", 0, "--ranks", 2, "--shares", "1:1:1"], "--shares: names 3 ranks")):
            result = run("shard", "-m", self.model, "-o", self.dir / "none", *words)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(said, result.stderr)
        (self.dir / "full").mkdir()
        (self.dir / "full" / "file").write_text("mine")
        self.assertIn("exists and is not replaced", self.shard(0, 2, name="full", code=1))
        self.assertEqual([path.name for path in self.dir.iterdir() if path.name not in ("model", "full")], [])


if __name__ == "__main__":
    main()
