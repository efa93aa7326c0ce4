"""Packed models as users meet them: made, run, given back, and refused where they are damaged."""
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import time
import unittest

from pack_kills import killed_until_done
from support import CANOPY, DATA, PATIENCE, PROFILE, TINY, TOKENIZER, TempDirCase, bytes_model, main, run, run_json


def header_of(model):
    """The bytes of a safetensors file, its header and where its data begin."""
    data = (model / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return data, json.loads(data[8:8 + length]), 8 + length


def tensors(model):
    data, header, begin = header_of(model)
    return {name: (entry["dtype"], entry["shape"], hashlib.sha256(
        data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]]).hexdigest())
        for name, entry in header.items() if name != "__metadata__"}


class Pack(TempDirCase):
    def setUp(self):
        super().setUp()
        inflated = run("inflate", "-m", bytes_model(self.dir / "tiny"), "-o", self.dir / "model", "--size", "2M")
        self.assertEqual(inflated.returncode, 0, inflated.stderr)
        self.model = self.dir / "model"
        (self.dir / "packed").mkdir()
        self.packed = self.dir / "packed" / "model"  # what is made of it is called by its name

    def pack(self):
        result = run("pack", "-m", self.model, "-o", self.packed)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def fails(self, *words, says, **options):
        result = run(*words, **options)
        self.assertEqual(result.returncode, 1, result.stderr)
        lines = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
        self.assertEqual(len(lines), 1, result.stderr)
        for word in says:
            self.assertIn(str(word), lines[0])

    def test_gives_back_what_it_took(self):
        self.assertIn("matrices packed", self.pack().stdout)
        result = run("unpack", "-m", self.packed, "-o", self.dir / "back")
        self.assertEqual(result.returncode, 0, result.stderr)
        count = len(tensors(self.model))
        self.assertIn(f"{count} of {count} tensors have the checksum", result.stdout)
        self.assertEqual(tensors(self.dir / "back"), tensors(self.model))
        for name in ("config.json", "tokenizer.json"):
            self.assertEqual((self.dir / "back" / name).read_bytes(), (self.model / name).read_bytes())

    def test_a_codec_is_named_and_another_is_refused(self):
        levels = self.dir / "levels"
        self.pack()
        result = run("pack", "-m", self.model, "-o", levels, "--codec", "bf16-levels-512")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("matrices packed by bf16-levels-512", result.stdout)
        self.assertNotEqual((levels / "model.safetensors").stat().st_size, (self.packed / "model.safetensors").stat().st_size)
        self.assertIn("packed BF16 in levels", run_json("inspect", levels)["dtypes"])
        words = "-p", "The sea", "-n", "12", "--ignore-eos", "--temp", "0.7", "--seed", "5"
        plain, packed = (run_json("generate", "-m", m, *words) for m in (self.model, levels))
        self.assertEqual(plain["tokens"], packed["tokens"])
        back = run("unpack", "-m", levels, "-o", self.dir / "back")
        self.assertEqual(back.returncode, 0, back.stderr)
        self.assertEqual(tensors(self.dir / "back"), tensors(self.model))
        refused = run("pack", "-m", self.model, "-o", self.dir / "none", "--codec", "zip")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("no codec is called 'zip'; there are bf16-window-512, bf16-levels-512", refused.stderr)
        self.assertFalse((self.dir / "none").exists())

    def test_plan_says_what_each_codec_would_take_and_which_pays(self):
        words = "--memory", "1G", "--spec", "none"
        plan = run_json("plan", "-m", self.model, *words)
        forms, weights = plan["packing"]["forms"], 0
        self.assertEqual(set(forms), {"BF16", "bf16-window-512", "bf16-levels-512"})
        self.assertEqual(forms["BF16"]["seconds_per_token"], plan["plan"]["seconds_per_token"])
        self.assertEqual(forms["BF16"]["bits"], 16)
        self.assertLess(forms["bf16-levels-512"]["bits"], .97 * forms["bf16-window-512"]["bits"])
        # Everything is in memory, so that the codecs differ by the work of unpacking alone.
        for name, (dtype, shape, _) in tensors(self.model).items():
            if len(shape) == 2 and "embed" not in name:
                weights += shape[0] * shape[1]
        window, levels = forms["bf16-window-512"], forms["bf16-levels-512"]
        more = weights * (1 / levels["weights_per_second"] - 1 / window["weights_per_second"])
        self.assertAlmostEqual(levels["seconds_per_token"] - window["seconds_per_token"], more, delta=.05 * abs(more))
        fastest = min(forms, key=lambda name: forms[name]["seconds_per_token"])
        faster = forms[fastest]["seconds_per_token"] < .95 * forms["BF16"]["seconds_per_token"]
        self.assertEqual(plan["packing"]["pays"], fastest if faster else "BF16")
        said = run("plan", "-m", self.model, *words).stdout
        self.assertRegex(said, r"packing: products of one row, unpacking included, take BF16 \(16.00 bits a weight\) at [\d.]+ GB/s")
        self.pack()
        packed = run_json("plan", "-m", self.packed, *words)
        self.assertEqual(packed["packing"]["forms"]["bf16-window-512"]["seconds_per_token"], packed["plan"]["seconds_per_token"])
        elsewhere = run_json("plan", "-m", self.model, *words, "--profile", PROFILE)
        self.assertNotIn("packing", elsewhere)  # how fast that machine unpacks is not known here

    def test_what_a_run_of_another_codec_left_is_not_taken_over(self):
        model = self.dir / "larger"
        self.assertEqual(run("inflate", "-m", self.dir / "tiny", "-o", model, "--size", "60M").returncode, 0)
        words = "pack", "-m", model, "-t", "1", "-o", self.packed
        self.interrupted(*words, output=self.packed)
        levels = run(*words, "--codec", "bf16-levels-512")
        self.assertEqual(levels.returncode, 0, levels.stderr)
        self.assertIn("is replaced, and the work begins anew", levels.stderr)
        self.assertIn("packed BF16 in levels", run_json("inspect", self.packed)["dtypes"])

    def test_every_command_takes_it(self):
        self.pack()
        words = "-p", "The sea", "-n", "12", "--ignore-eos", "--temp", "0.7", "--seed", "5"
        plain, packed = (run_json("generate", "-m", m, *words) for m in (self.model, self.packed))
        self.assertEqual(plain["tokens"], packed["tokens"])
        self.assertLess(packed["plan"]["resident_bytes"], 0.85 * plain["plan"]["resident_bytes"])
        inspected = run_json("inspect", self.packed)
        self.assertIn("packed BF16", inspected["dtypes"])
        for words in (("plan", "-m", self.packed), ("bench", "link", "-m", self.packed, "-r", "1"),
                      ("quantize", "-m", self.packed, "-o", self.dir / "q.gguf", "--type", "q8_0")):
            with self.subTest(words[:2]):
                result = run(*words)
                self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(run("quantize", "-m", self.model, "-o", self.dir / "p.gguf", "--type", "q8_0").returncode, 0)
        self.assertEqual((self.dir / "p.gguf").read_bytes(), (self.dir / "q.gguf").read_bytes())

    def test_a_damaged_one_is_refused_in_one_line(self):
        self.pack()
        file = self.packed / "model.safetensors"
        data, header, begin = header_of(self.packed)
        name = "model.layers.0.mlp.gate_proj.weight"

        def with_byte(tensor, at, flip):
            damaged = bytearray(data)
            damaged[begin + header[tensor]["data_offsets"][0] + at] ^= flip
            file.write_bytes(damaged)

        with_byte(name + ".row_offsets", 4, 0x40)
        self.fails("inspect", self.packed, says=[name, "row 0"])
        file.write_bytes(data[:-1])
        self.fails("inspect", self.packed, says=[file, "truncated"])
        with_byte(name + ".packed", 1, 1)  # a byte of zero: the block contradicts itself
        fresh = dict(os.environ, XDG_CACHE_HOME=str(self.dir / "cache"))  # so that it is measured first
        self.fails("generate", "-m", self.packed, "-p", "x", "-n", "4", says=["the MLP of layer 0"], env=fresh)
        self.fails("unpack", "-m", self.packed, "-o", self.dir / "back", says=[name, "damaged"])
        with_byte(name + ".packed", 40, 1)  # another weight: only the checksum shows it
        self.fails("unpack", "-m", self.packed, "-o", self.dir / "back", says=[name, "damaged"])
        self.assertFalse((self.dir / "back").exists())

    def test_refuses_what_it_is_not_for(self):
        self.pack()
        self.fails("pack", "-m", self.packed, "-o", self.dir / "again", says=["is packed already"])
        self.fails("pack", "-m", self.model, "-o", self.packed, says=[self.packed, "exists"])
        self.fails("unpack", "-m", self.model, "-o", self.dir / "back", says=["is not packed"])
        run("quantize", "-m", TINY, "-o", self.dir / "q.gguf", "--type", "q4_0")
        self.fails("pack", "-m", self.dir / "q.gguf", "-o", self.dir / "again", says=["small already"])
        self.assertEqual(run("pack", "-m", self.model).returncode, 2)

    def test_a_directory_that_does_not_lie_by_rows_is_written_once_and_then_taken(self):
        model, rows = self.dir / "nf4", self.dir / "rows"
        shutil.copytree(DATA / "model" / "llama_nf4", model)
        (model / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        words = "-p", "The sea", "-n", "12", "--ignore-eos"
        self.fails("generate", "-m", model, *words, says=["canopy pack -m", "--repack DIR"])
        self.assertEqual(run("pack", "-m", model, "-o", self.dir / "packed").returncode, 0)
        expected = run_json("generate", "-m", self.dir / "packed", *words)["tokens"]
        first = run("generate", "-m", model, "--repack", rows, *words, "--json")
        self.assertIn(f"{rows} has the weights of {model} by rows now", first.stderr)
        self.assertEqual(json.loads(first.stdout)["tokens"], expected)
        self.assertEqual(tensors(rows), tensors(self.dir / "packed"))
        written = (rows / "model.safetensors").stat().st_ino
        again = run("generate", "-m", model, "--repack", rows, *words, "--json")
        self.assertNotIn("by rows now", again.stderr)
        self.assertEqual(json.loads(again.stdout)["tokens"], expected)
        self.assertEqual((rows / "model.safetensors").stat().st_ino, written)
        self.assertEqual([path for path in self.dir.iterdir() if path.name.startswith("rows")], [rows])

    def test_a_run_that_is_killed_goes_on_where_it_was_cut(self):
        model = self.dir / "larger"
        self.assertEqual(run("inflate", "-m", self.dir / "tiny", "-o", model, "--size", "30M").returncode, 0)
        wrong, kills, _ = killed_until_done(self.dir, ["pack", "-m", model, "-t", "1"], kills=5, seed=1)
        self.assertEqual(wrong, [])
        self.assertEqual(kills, 5)

    def interrupted(self, *words, output):
        """Ctrl-C once some units are done: what the run says."""
        journal = output.with_name(output.name + ".canopy-partial") / "pack.journal"
        for _ in range(10):
            process = subprocess.Popen([CANOPY, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, text=True)
            while process.poll() is None and not (journal.exists() and journal.read_bytes().count(b"\n") > 2):
                time.sleep(0.001)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60 * PATIENCE)[1]
            if process.returncode != 0:
                self.assertEqual(process.returncode, 130, said)
                return said
            shutil.rmtree(output)  # it was faster
        self.fail("every run was over before Ctrl-C came")

    def test_a_run_that_is_interrupted_says_how_it_goes_on_and_does(self):
        model = self.dir / "larger"
        self.assertEqual(run("inflate", "-m", self.dir / "tiny", "-o", model, "--size", "60M").returncode, 0)
        words = "pack", "-m", model, "-t", "1"
        self.assertEqual(run(*words, "-o", self.dir / "whole").returncode, 0)
        said = self.interrupted(*words, "-o", self.packed, output=self.packed)
        partial = self.dir / "packed" / "model.canopy-partial"
        self.assertFalse(self.packed.exists())
        self.assertIn(f"{partial} keeps what is done: the same command goes on with it; or remove it", said)
        self.fails("inspect", partial, says=[partial])
        again = run(*words, "-o", self.packed)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertRegex(again.stderr, rf"note: goes on with {partial}, .*: [1-9]\d+ bytes \(.*\) are taken over\n")
        self.assertEqual(sorted(path.name for path in self.packed.iterdir()), sorted(path.name for path in (self.dir / "whole").iterdir()))
        for path in self.packed.iterdir():
            self.assertEqual(path.read_bytes(), (self.dir / "whole" / path.name).read_bytes(), path.name)
        self.assertFalse(partial.exists())

    def test_what_is_repacked_is_not_taken_for_another_model(self):
        self.assertEqual(run("pack", "-m", DATA / "model" / "llama_nf4", "-o", self.dir / "rows").returncode, 0)
        model = self.dir / "fp4"
        shutil.copytree(DATA / "model" / "qwen2_fp4", model)
        (model / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        words = "-p", "The sea", "-n", "4"
        self.fails("generate", "-m", model, "--repack", self.dir / "rows", *words, says=["it is not made of", model])
        (self.dir / "other").mkdir()
        (self.dir / "other" / "file").write_text("mine")
        self.fails("generate", "-m", model, "--repack", self.dir / "other", *words, says=["other", "has no config.json"])
        plain = run("generate", "-m", self.model, "--repack", self.dir / "none", *words)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.assertIn("lies by rows, and is taken as it is", plain.stderr)
        self.assertFalse((self.dir / "none").exists())


if __name__ == "__main__":
    main()
