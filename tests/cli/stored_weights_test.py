"""Messages on weights that are stored otherwise than a model's config says, and of those that were never written."""
import json
import os
import struct

from support import TempDirCase, bytes_model, main, run, run_json

PROMPT = ("--tokens", "5,9,33", "-n", 4, "--ignore-eos")


def read_safetensors(file):
    data = file.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return header, data[8 + size:]


def write_safetensors(file, header, data):
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


class StoredHead(TempDirCase):
    """A model whose config ties the head, with a head of its own all the same."""

    def setUp(self):
        super().setUp()
        self.own = bytes_model(self.dir / "own")
        self.config = json.loads((self.own / "config.json").read_text())
        self.model = bytes_model(self.dir / "model")
        for folder, tied in ((self.own, False), (self.model, True)):
            header, data = read_safetensors(folder / "model.safetensors")
            if "lm_head.weight" not in header:
                at, embedding = len(data), header["model.embed_tokens.weight"]
                begin, end = embedding["data_offsets"]
                header["lm_head.weight"] = {**embedding, "data_offsets": [at, at + end - begin]}
                data += data[begin:end][::-1]  # of the same values, in other places
            write_safetensors(folder / "model.safetensors", header, data)
            (folder / "config.json").write_text(json.dumps({**self.config, "tie_word_embeddings": tied}))

    def text(self, model):
        return run_json("generate", model, *PROMPT)["tokens"]

    def test_is_the_head_and_each_command_says_so(self):
        self.assertEqual(self.text(self.model), self.text(self.own))
        for words in (["generate", self.model, *PROMPT], ["inspect", self.model], ["doctor", self.model]):
            result = run(*words)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"note: {self.model}: config.json ties the head to the embedding, but lm_head.weight is stored and differs",
                          result.stderr)
        self.assertIn("ties the head", run("plan", self.model, "--memory", "200M").stdout)
        self.assertFalse(run_json("inspect", self.model)["config"]["tied_head"])

    def test_is_the_head_of_what_is_made_of_the_model(self):
        for words, made in ((["quantize", "--type", "q8_0"], "made.gguf"), (["pack"], "packed"), (["inflate", "--size", "2M"], "big")):
            result = run(words[0], "-m", self.model, "-o", self.dir / made, *words[1:])
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertFalse(run_json("inspect", self.dir / made)["config"]["tied_head"], made)
            self.assertNotIn("note: ", run("inspect", self.dir / made).stderr)
        for made in ("packed", "big", "big-small"):
            self.assertIs(json.loads((self.dir / made / "config.json").read_text())["tie_word_embeddings"], False)
            self.assertEqual(self.text(self.dir / made), self.text(self.own), made)


class Holes(TempDirCase):
    def setUp(self):
        super().setUp()
        self.model = bytes_model(self.dir / "model")
        file = self.model / "model.safetensors"
        size = file.stat().st_size
        with open(file, "r+b") as weights:  # its second half is never written
            weights.truncate(size // 2)
            weights.truncate(size)
        with open(file, "rb") as weights:
            if os.lseek(weights.fileno(), 0, os.SEEK_HOLE) == size:
                self.skipTest("the file system has no holes")

    def test_are_refused_by_every_command_that_opens_a_model(self):
        for words in (["generate", self.model, *PROMPT], ["inspect", self.model], ["doctor", self.model],
                      ["plan", self.model, "--memory", "200M"], ["perplexity", self.model, "-f", os.devnull],
                      ["quantize", self.model, "-o", self.dir / "x", "--type", "q8_0"], ["pack", self.model, "-o", self.dir / "y"],
                      ["inflate", self.model, "-o", self.dir / "z", "--size", "2M"]):
            result = run(*words)
            self.assertEqual((result.returncode, result.stdout), (1, ""), words)
            self.assertRegex(result.stderr, r"tensor '[\w.]+' lies in a hole: bytes \d+ to \d+ of the file were never written")
        self.assertEqual(run("tokenize", self.model, "a").returncode, 0)

    def test_are_taken_on_request(self):
        for words in (["generate", self.model, *PROMPT], ["inspect", self.model], ["plan", self.model, "--memory", "200M"]):
            result = run(*words, "--allow-holes")
            self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    main()
