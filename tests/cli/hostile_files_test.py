"""Every file that is read, of a model or named by a flag, may be anything: one line names it, and little is spent on it."""
import contextlib
import json
import os
import shutil
import subprocess
import tempfile

from support import CANOPY, DATA, PROFILE, SANITIZED, TINY, TempDirCase, bytes_model, command, main

GGUF = DATA / "model" / "llama.gguf"
MILLION = 1_000_000
DEEP = {"a million arrays": b"[" * MILLION, "a million objects": b'{"a":' * MILLION,
        "closed arrays": b"[" * MILLION + b"]" * MILLION}
BYTES = {"invalid UTF-8": b'{"text": "\xff\xfe"}', "nothing": b"", "half": b'{"text": "x', "zeros": bytes(1000),
         "a long key": b'{"' + b"k" * MILLION + b'\x00": 1}'}


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def directory(path):
    path.mkdir()


def sparse(path):  # 10 GB of zeros
    with open(path, "wb") as file:
        file.truncate(10 << 30)


def holding(data):
    return lambda path: path.write_bytes(data)


NO_FILE = {"a pipe": pipe, "a device": device, "a directory": directory, "10 GB of zeros": sparse}
DEEP_FILES = {kind: holding(data) for kind, data in DEEP.items()}
NO_JSON = {**NO_FILE, **DEEP_FILES, **{kind: holding(data) for kind, data in BYTES.items()}}
NO_TEMPLATE = {**NO_FILE, "invalid UTF-8": NO_JSON["invalid UTF-8"], "nothing": NO_JSON["nothing"]}


class HostileFiles(TempDirCase):
    def setUp(self):
        super().setUp()
        self.model = bytes_model(self.dir / "model")

    def spend(self, *words, stdin=subprocess.DEVNULL):
        """Runs a command: its exit code, the lines of its stderr, CPU seconds, peak bytes."""
        with tempfile.TemporaryFile() as err:
            process = subprocess.Popen(command(*words), stdin=stdin, stdout=subprocess.DEVNULL, stderr=err)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            err.seek(0)
            return process.returncode, err.read().decode().splitlines(), used.ru_utime + used.ru_stime, used.ru_maxrss << 10

    def assert_cheap(self, seconds, peak, usual):
        if not SANITIZED:
            self.assertLess(seconds, 1, "CPU seconds")
            self.assertLess(peak, usual + (64 << 20))

    def refuses(self, path, kinds, *words, says=None, allowed=(1, 2)):
        """The command fails in one line that names the file, whatever is in the file's place."""
        _, _, _, usual = self.spend("tokenize", "-m", TINY)  # of a process that reads a model's config
        kept = path.with_suffix(".kept")
        if path.exists():
            path.rename(kept)
        for kind, make in kinds.items():
            with self.subTest(file=path.name, kind=kind, command=words[0]):
                make(path)
                try:
                    code, lines, seconds, peak = self.spend(*words)
                    for _ in range(2):  # the least of three runs: others may have taken the caches
                        if seconds >= 1:
                            seconds = min(seconds, self.spend(*words)[2])
                    size = path.stat().st_size
                finally:  # the next kind is not written into it
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                self.assertIn(code, allowed, lines)
                lines = [line for line in lines if not line.startswith(("note: ", "Try "))]
                self.assertEqual(len(lines), 1, lines)
                self.assertIn(says or str(path), lines[0])
                self.assertLess(len(lines[0]), 1000)
                self.assert_cheap(seconds, peak, usual + min(size, 2 * MILLION))
        if kept.exists():
            kept.rename(path)

    def test_files_of_a_model(self):
        self.assertEqual(self.spend("tokenize", "-m", self.model)[0], 0)
        tokenize = "tokenize", "-m", self.model
        quantize = "quantize", "-m", self.model, "-o", self.dir / "out.gguf", "--type", "q8_0"
        inflate = "inflate", "-m", self.model, "-o", self.dir / "big", "--size", "1M"
        for name in ("config.json", "generation_config.json"):
            self.refuses(self.model / name, {**NO_JSON, "nothing": NO_JSON["half"]}, "inspect", self.model)
        for command in (tokenize, quantize):
            self.refuses(self.model / "tokenizer.json", NO_JSON, *command)
        self.refuses(self.model / "tokenizer_config.json", NO_JSON, *tokenize)
        self.refuses(self.model / "tokenizer_config.json", NO_JSON, *quantize, says=str(self.model))
        self.refuses(self.model / "chat_template.jinja", NO_FILE, *quantize)
        chat = "chat", "-m", self.model
        for name in ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json"):
            self.refuses(self.model / name, NO_JSON, *chat)
        self.refuses(self.model / "chat_template.jinja", NO_TEMPLATE, *chat)
        (self.model / "additional_chat_templates").mkdir()
        self.refuses(self.model / "additional_chat_templates" / "tool_use.jinja", NO_FILE, *chat)
        (self.model / "additional_chat_templates").rmdir()
        for name in ("tokenizer_config.json", "vocab.json", "merges.txt", "chat_template.jinja"):
            self.refuses(self.model / name, NO_FILE, *inflate)
        self.assertFalse((self.dir / "big").exists() or (self.dir / "out.gguf").exists())

    def test_headers(self):
        size = (len(DEEP["closed arrays"])).to_bytes(8, "little")
        in_header = {kind: holding(size + b'{"a":' + data) for kind, data in DEEP.items()}
        self.refuses(self.model / "model.safetensors", {**NO_JSON, **in_header}, "inspect", self.model)
        (self.model / "model.safetensors").unlink()
        self.refuses(self.model / "model.safetensors.index.json", NO_JSON, "inspect", self.model)
        self.refuses(self.dir / "x.gguf", {kind: make for kind, make in NO_JSON.items() if kind != "a directory"},
                     "inspect", self.dir / "x.gguf")

    def test_files_that_flags_name(self):
        file = self.dir / "named"
        drafted = "-m", self.model, "-md", self.model
        self.refuses(file, NO_JSON, "generate", *drafted, "-p", "x", "--tree", file)
        self.refuses(file, NO_JSON, "generate", *drafted, "-p", "x", "--profile", file)
        self.refuses(file, NO_JSON, "plan", *drafted, "--profile", file)
        self.refuses(file, {kind: make for kind, make in NO_JSON.items() if kind not in ("zeros", *DEEP)} |
                     {"a million objects": NO_JSON["a million objects"]},
                     "calibrate", "acceptance", *drafted, "--prompts", file)
        offload = "bench", "offload", "--device", "cpu", "--dir", self.dir
        self.refuses(file, NO_JSON, *offload, "--acceptance", file)
        self.refuses(file, NO_JSON, *offload, "-m", file, "-md", file)
        self.refuses(file, NO_FILE, "generate", "-m", self.model, "-f", file)
        self.refuses(file, NO_FILE, "perplexity", "-m", self.model, "-f", file)
        for command in (["bench", "decode", *drafted], ["collect", "-m", self.model, "-o", self.dir / "collected"]):
            self.refuses(file, {**NO_FILE, "zeros": NO_JSON["zeros"], "nothing": NO_JSON["nothing"]}, *command, "--prompts", file)
        generate = "generate", "-m", self.model, "-p", "x"
        self.refuses(file, NO_JSON, *generate, "-md", self.model, "--acceptance", file)
        self.refuses(file, NO_JSON, *offload, "--profile", file)
        self.refuses(file, {**NO_FILE, **{kind: NO_JSON[kind] for kind in ("invalid UTF-8", "nothing")}},
                     *generate, "-md", "copy", "--draft-corpus", file)
        for flag in ("-m", "-md", "--medusa", "--prompt-cache"):
            self.refuses(file, NO_JSON, *(generate[:1] + generate[3:] if flag == "-m" else generate), flag, file)
        self.refuses(file, NO_JSON, *generate, "-md", self.model, "--spec", "chain", "-mdd", file)
        self.refuses(file, {**NO_TEMPLATE, **DEEP_FILES}, "chat", "-m", self.model, "--chat-template-file", file)
        no_key = {kind: make for kind, make in NO_JSON.items() if kind != "half"}
        self.refuses(file, no_key, "serve", "-m", self.model, "--port", 0, "--api-key-file", file)

    def test_a_conversation_that_chat_loads(self):
        file, commands, template = self.dir / "named", self.dir / "commands", self.dir / "template"
        commands.write_text(f"/load {file}\n")
        template.write_text("{{ messages[0].content }}")
        _, _, _, usual = self.spend("tokenize", "-m", TINY)
        members = holding(b"{%s}" % b",".join(b'"%d": 1' % i for i in range(200_000)))
        for kind, make in {**NO_JSON, "members that take long to search": members}.items():
            with self.subTest(kind=kind), open(commands, "rb") as stdin:
                make(file)
                try:
                    code, lines, seconds, peak = self.spend("chat", "-m", self.model, "--chat-template-file", template,
                                                            "--profile", PROFILE, stdin=stdin)  # else it may measure one first
                    size = file.stat().st_size
                finally:  # a pipe that the next kind is written into would never be read
                    shutil.rmtree(file) if file.is_dir() else file.unlink()
                self.assertEqual((code, len([line for line in lines if str(file) in line])), (1, 1), lines)
                self.assert_cheap(seconds, peak, usual + (4 << 20) + 2 * min(size, 32 << 20))

    def test_standard_input(self):
        with contextlib.ExitStack() as files:
            zeros = files.enter_context(open("/dev/zero", "rb"))
            sparse(self.dir / "sparse")
            large = files.enter_context(open(self.dir / "sparse", "rb"))
            _, _, _, usual = self.spend("tokenize", "-m", TINY)
            for command in (["tokenize"], ["detokenize"], ["generate", "-p", "-"], ["generate", "-f", "-"],
                            ["perplexity", "-f", "-"]):
                for stdin in (zeros, large):
                    with self.subTest(command=command, stdin=stdin.name):
                        code, lines, seconds, peak = self.spend(*command, "-m", self.model, stdin=stdin)
                        self.assertEqual(code, 1)
                        self.assertEqual(len(lines), 1, lines)
                        self.assertIn("standard input", lines[0])
                        self.assert_cheap(seconds, peak, usual)

    def test_invalid_text_of_gguf(self):
        """A GGUF's name of itself may be any bytes; a token may not, where JSON is to hold it."""
        data, bad, big = GGUF.read_bytes(), self.dir / "bad.gguf", self.dir / "big"
        bad.write_bytes(data.replace(b"tiny random llama", b"tiny \xff\xfe\x80\x00\n  llama"))
        code, lines, _, _ = self.spend("inflate", "-m", bad, "-o", big, "--size", "1M")
        self.assertEqual(code, 0, lines)
        self.assertEqual(json.loads((big / "config.json").read_text())["canopy_inflated"]["from"][:5], "tiny ")

    def test_pipes_that_flags_name_are_read(self):
        """As in -f <(command), slow writers too; a signal ends the wait for one."""
        fifo = self.dir / "prompt"
        os.mkfifo(fifo)
        with open(self.dir / "ids", "wb") as out:
            reader = subprocess.Popen([CANOPY, "perplexity", "-m", str(self.model), "-f", str(fifo), "--json"], stdout=out,
                                      stderr=subprocess.PIPE)
            with open(fifo, "wb") as writer:
                writer.write(b"some ")
                writer.flush()
                writer.write(b"text")
            self.assertEqual(reader.wait(), 0, reader.stderr.read())
            reader.stderr.close()
        self.assertEqual(json.loads((self.dir / "ids").read_text())["tokens"], 8)
        for words in (("perplexity", "-f"), ("chat", "--chat-template-file"), ("serve", "--port", "0", "--chat-template-file"),
                      ("generate", "-p", "some", "-md", "copy", "--draft-corpus")):
            for signal, code in ((2, 130), (15, 143)):
                reader = subprocess.Popen([CANOPY, *words, str(fifo), "-m", str(self.model)], stdin=subprocess.DEVNULL,
                                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                with open(fifo, "wb"):
                    # The writer's open returns when the reader has opened, after which signals are stop requests.
                    reader.send_signal(signal)
                    self.assertEqual(reader.wait(), 0 if words[0] == "serve" else code, words)  # so a server ends
                reader.stderr.close()

    def test_git_lfs_pointers(self):
        pointer = holding(b"version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 1234\n" % 0)
        for name in ("model.safetensors", "tokenizer.json", "config.json"):
            self.refuses(self.model / name, {"a pointer": pointer}, "tokenize", "-m", self.model)
            path = self.model / name
            path.rename(path.with_suffix(".good"))
            pointer(path)
            self.assertIn("git lfs pull", self.spend("tokenize", "-m", self.model)[1][0])
            path.unlink()
            path.with_suffix(".good").rename(path)
        pointer(self.dir / "x.gguf")
        self.assertIn("git lfs pull", self.spend("inspect", self.dir / "x.gguf")[1][0])

    def test_a_model_that_is_not_here(self):
        self.assertIn("canopy pull Qwen/Qwen2.5-7B", self.spend("inspect", "Qwen/Qwen2.5-7B")[1][0])
        self.assertNotIn("canopy pull", self.spend("inspect", self.dir / "nothing")[1][0])

    def test_a_number_too_large_for_a_float_names_its_key(self):
        config = json.loads((self.model / "config.json").read_text())
        (self.model / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e39}))
        self.assertIn("'rms_norm_eps'", self.spend("inspect", self.model)[1][0])


if __name__ == "__main__":
    main()
