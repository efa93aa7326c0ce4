"""Medusa heads and what they are trained on, as users meet them."""
import json
import random
import struct
import unittest

from support import TempDirCase, bytes_model, main, run, run_json


def write_heads(file, heads=3, dim=32, source=None):
    """Heads of random values, without matrices of their own."""
    numbers = random.Random(1)
    header, data = {}, b""
    if source is not None:
        header["__metadata__"] = {"canopy.source": source}
    for head in range(heads):
        for name, count, shape in (("weight", dim * dim, [dim, dim]), ("bias", dim, [dim])):
            values = struct.pack(f"<{count}f", *(numbers.gauss(0, 0.3) for _ in range(count)))
            header[f"{head}.0.linear.{name}"] = {"dtype": "F32", "shape": shape,
                                                 "data_offsets": [len(data), len(data) + len(values)]}
            data += values
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return file


class Medusa(TempDirCase):
    def setUp(self):
        super().setUp()
        self.model = bytes_model(self.dir / "model")
        self.heads = write_heads(self.dir / "heads.safetensors")
        self.words = ("-m", self.model, "-p", "The sea", "-n", "40", "--ignore-eos")

    def test_text_is_plain_decodings_at_any_temperature(self):
        for temperature in ("0", "0.8"):
            words = (*self.words, "--temp", temperature, "--seed", "3")
            plain = run_json("generate", *words)
            for more in ([], ["--tree", "3,2,1"], ["--spec", "chain", "--tree-size", "4"], ["--spec", "none"]):
                with self.subTest(temperature=temperature, more=more):
                    report = run_json("generate", *words, "--medusa", self.heads, *more)
                    self.assertEqual(report["tokens"], plain["tokens"])
                    self.assertTrue(report["exact"])
        report = run_json("generate", *self.words, "--medusa", self.heads, "--tree", "3,2,1")
        self.assertEqual(report["plan"]["medusa_heads"], 3)
        self.assertIn("heads", report["plan"]["ledger"])

    def test_heads_of_another_model_are_refused(self):
        for source, code in (("0123456789abcdef", 1), (None, 0)):
            heads = write_heads(self.dir / "other.safetensors", source=source)
            result = run("generate", *self.words, "--medusa", heads, "--tree", "2,1")
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn("fingerprint" if source else "does not say which model", result.stderr)
        result = run("generate", *self.words, "--medusa", write_heads(self.dir / "wide.safetensors", dim=48),
                     "--tree", "2,1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("has shape [48, 48]", result.stderr)

    def test_flags_that_contradict_each_other_are_refused(self):
        for more, says in ((["-md", "copy"], "--medusa, --model-draft"), (["--spec", "sequoia"], "heads have none"),
                           (["--spec", "bild"], "heads have none"), (["--lenience", "0.5"], "--lenience"),
                           (["--draft-corpus", self.heads], "--draft-corpus"),
                           (["--posterior-alpha", "0.3"], "--typical-acceptance"),
                           (["--spec", "none", "--typical-acceptance"], "--typical-acceptance"),
                           (["--typical-acceptance", "--posterior-threshold", "2"], "--posterior-threshold")):
            with self.subTest(more):
                result = run("generate", *self.words, "--medusa", self.heads, *more)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(says, result.stderr)
        result = run("generate", *self.words, "--typical-acceptance")
        self.assertEqual(result.returncode, 2)
        result = run("generate", *self.words, "--medusa", self.heads, "--tree", "1,1,1,1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("there are 3 heads", result.stderr)

    def test_typical_acceptance_says_that_it_is_not_exact(self):
        report = run_json("generate", *self.words, "--medusa", self.heads, "--tree", "3,2,1", "--typical-acceptance",
                          "--posterior-threshold", "0", "--posterior-alpha", "0")
        self.assertFalse(report["exact"])
        self.assertIn("typical acceptance", report["changes"])
        self.assertGreater(report["tokens_per_step"], 3)


if __name__ == "__main__":
    main()
