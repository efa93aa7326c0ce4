"""Models whose embedding has more rows than their tokenizer names tokens (Qwen2.5, most fine-tunes) run like any other:
such a token has no text, is reported by its id, and a draft that lacks it never proposes it."""
import json
import shutil
import struct
import unittest

from support import DATA, TempDirCase, main, run, run_json

TINY = DATA / "model" / "llama2"  # random weights: any of its 97 tokens is generated
ROWS, NAMED = 97, 37


def write_tokenizer(directory):
    """A byte-level BPE without merges: two special tokens, and letters."""
    letters = [chr(c) for c in range(ord("a"), ord("a") + NAMED - 4)] + ["Ġ"]
    tokens = ["<unk>", "<s>", "</s>", *letters]
    assert len(tokens) == NAMED
    added = [dict(id=i, content=tokens[i], single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
             for i in range(3)]
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    (directory / "tokenizer.json").write_text(json.dumps(dict(
        version="1.0", added_tokens=added, normalizer=None, pre_tokenizer=byte_level, post_processor=None,
        decoder=byte_level, model=dict(type="BPE", vocab={t: i for i, t in enumerate(tokens)}, merges=[]))))


def cut_rows(directory, rows):
    """Leaves the first `rows` of the embedding and of the head."""
    file = directory / "model.safetensors"
    data = file.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + size]), data[8 + size:]
    header.pop("__metadata__", None)
    out, tensors = b"", {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        shape, part = entry["shape"], body[begin:end]
        if shape[0] == ROWS:
            part, shape = part[:len(part) // ROWS * rows], [rows, *shape[1:]]
        tensors[name] = dict(dtype=entry["dtype"], shape=shape, data_offsets=[len(out), len(out) + len(part)])
        out += part
    header = json.dumps(tensors).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header + out)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(dict(config, vocab_size=rows)))


class PaddedVocabulary(TempDirCase):
    def setUp(self):
        super().setUp()
        self.model, self.short = self.dir / "padded", self.dir / "short"
        for directory in (self.model, self.short):
            shutil.copytree(TINY, directory)
            write_tokenizer(directory)
        cut_rows(self.short, NAMED + 3)  # knows some ids of the tail

    def words(self, *more):
        return ("-m", self.model, "-p", "abc def", "--ignore-eos", "--memory", "200M", *more)

    def test_text_tokens_and_logprobs_are_those_of_plain_decoding_whatever_the_draft(self):
        plain = run_json("generate", *self.words("-n", 48, "--logprobs", 5))
        ids = {t for t in plain["tokens"] if t >= NAMED}
        self.assertTrue(any(t >= NAMED + 3 for t in ids), "the model never left its tokenizer's ids")
        self.assertEqual([t["id"] for t in plain["logprobs"]], plain["tokens"])
        self.assertTrue(any(top["id"] >= NAMED for t in plain["logprobs"] for top in t["top_logprobs"]))
        for how in (("--spec", "sequoia", "--tree", "4,2,1"), ("--spec", "chain", "--tree-size", 4), ("--spec", "auto")):
            for draft in (self.model, self.short):
                drafted = run_json("generate", *self.words("-n", 48, "-md", draft, *how))
                self.assertEqual(drafted["tokens"], plain["tokens"], (how, draft))
                self.assertEqual(drafted["text"], plain["text"])

    def test_sampled_texts_leave_the_tokenizers_ids_too(self):
        for draft in ((), ("-md", self.model), ("-md", self.short)):
            spec = ("--tree", "3,2") if draft else ()
            report = run_json("generate", *self.words("-n", 64, "--temp", 1, *draft, *spec))
            self.assertEqual(len(report["tokens"]), 64)
            self.assertTrue(any(t >= NAMED for t in report["tokens"]))
        lines = run("generate", *self.words("-n", 16, "--temp", 1, "--num-samples", 3, "-md", self.short))
        self.assertEqual(lines.returncode, 0, lines.stderr)
        self.assertEqual(len(lines.stdout.splitlines()), 3)

    def test_every_other_command_takes_them(self):
        tail = ROWS - 1
        text = run("detokenize", "-m", self.model, stdin=f"3 {tail} 4")
        self.assertEqual((text.returncode, text.stdout), (0, "ab"), text.stderr)
        prompted = run_json("generate", "-m", self.model, "-md", self.short, "--tokens", f"3,{tail}", "-n", 4)
        self.assertEqual(prompted["prompt_tokens"], 2)
        short = self.dir / "text.txt"
        short.write_text("abc def ghi " * 20 + "\n" + "jkl mno " * 20)
        gguf = self.dir / "draft.gguf"
        for words in (("inspect", self.model), ("plan", "-m", self.model, "-md", self.short),
                      ("perplexity", "-m", self.model, "-f", short),
                      ("calibrate", "acceptance", "-m", self.model, "-md", self.short, "-o", self.dir / "a.json",
                       "--prompts", short),
                      ("bench", "decode", "-m", self.model, "-md", self.short, "-n", 4, "--examples", 1,
                       "--prompts", short, "--methods", "none,sequoia,specinfer"),
                      ("quantize", "-m", self.model, "-o", gguf, "--type", "q8_0"),
                      ("generate", "-m", gguf, "-p", "abc", "-n", 24, "--ignore-eos"),
                      ("bench", self.model, "-p", 4, "-n", 8, "-r", 1), ("pack", self.model, "-o", self.dir / "packed"),
                      ("collect", "-m", self.model, "-o", self.dir / "read", "--prompts", short, "--positions", 100, "-n", 50),
                      ("inflate", "-m", self.model, "-o", self.dir / "big", "--size", "2M"),
                      ("generate", "-m", self.dir / "big", "-p", "abc", "-n", 24, "--ignore-eos")):
            result = run(*words)
            self.assertEqual(result.returncode, 0, f"{words}: {result.stderr}")
        (self.dir / "template").write_text("{{ messages[0].content }}")
        said = run("chat", "-m", self.model, "--chat-template-file", self.dir / "template", "-n", 24, stdin="abc\n")
        self.assertEqual((said.returncode, said.stdout != ""), (0, True), said.stderr)


if __name__ == "__main__":
    main()
