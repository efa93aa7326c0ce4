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
        self.assertIn("draft 3 heads: weights", report["plan"]["ledger"])

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


class Collect(TempDirCase):
    def test_writes_what_the_head_read_and_what_it_chose(self):
        model = bytes_model(self.dir / "model")
        (self.dir / "prompts").write_text("The sea was calm that day\nA boat lay on the shore\n")
        words = ("-m", model, "--prompts", self.dir / "prompts", "--positions", "20", "-n", "10", "--prompt-tokens", "6")
        result = run("collect", *words, "-o", self.dir / "out")
        self.assertEqual(result.returncode, 0, result.stderr)
        about = json.loads((self.dir / "out" / "collected.json").read_text())
        self.assertEqual((about["dim"], about["vocab"], sum(about["texts"])), (32, 97, about["positions"]))
        read, head = ((self.dir / "out" / name).read_bytes() for name in ("read.bf16", "head.bf16"))
        self.assertEqual((len(read), len(head)), (about["positions"] * 64, 97 * 64))
        tokens = struct.unpack(f"<{about['positions']}i", (self.dir / "out" / "tokens.i32").read_bytes())
        floats = lambda data: [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
        rows, matrix = floats(read), floats(head)
        right = 0
        for position, token in enumerate(tokens):
            h = rows[32 * position:32 * position + 32]
            logits = [sum(a * b for a, b in zip(h, matrix[32 * t:32 * t + 32])) for t in range(97)]
            right += max(range(97), key=logits.__getitem__) == token
        self.assertGreater(right, 0.9 * len(tokens))  # rows are rounded to bf16
        again = run("collect", *words, "-o", self.dir / "out")
        self.assertEqual(again.returncode, 1, "nothing is overwritten")
        # Texts that share sweeps are what they are alone; which ends first may differ.
        run("collect", *words, "-o", self.dir / "alone", "--parallel", "1")
        self.assertEqual(self.texts("alone"), self.texts("out"))

    def test_more_texts_are_written_where_some_end_early(self):
        model = bytes_model(self.dir / "model")
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"eos_token_id": list(range(0, 97, 3))}))
        (self.dir / "prompts").write_text("The sea was calm that day\nA boat lay on the shore\n")
        result = run("collect", "-m", model, "--prompts", self.dir / "prompts", "--positions", "40", "-n", "10", "--prompt-tokens", "3",
                     "-o", self.dir / "out")
        self.assertEqual(result.returncode, 0, result.stderr)
        about = json.loads((self.dir / "out" / "collected.json").read_text())
        self.assertLess(min(about["texts"]), 10)
        self.assertEqual(len(about["texts"]), 5, "four would do if none ended early")

    def texts(self, folder):
        """Each text's rows and tokens, as bytes, in an order of their own."""
        counts = json.loads((self.dir / folder / "collected.json").read_text())["texts"]
        rows, tokens = ((self.dir / folder / name).read_bytes() for name in ("read.bf16", "tokens.i32"))
        found, at = [], 0
        for count in counts:
            found.append((rows[64 * at:64 * (at + count)], tokens[4 * at:4 * (at + count)]))
            at += count
        self.assertEqual((len(rows), len(tokens)), (64 * at, 4 * at))
        return sorted(found)


if __name__ == "__main__":
    main()
