"""Bad input gets one clear line, the right exit code, and leaves nothing half-written."""
import json
import os
import shutil
import subprocess
import unittest

from support import DATA, SMOLLM2, TempDirCase, main, run, tiny_model

TINY = DATA / "model" / "llama2"


class Errors(TempDirCase):
    def fails(self, code, *words, says=()):
        result = run(*words)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        first = next(line for line in result.stderr.splitlines() if not line.startswith("note: "))
        self.assertTrue(first.startswith(("canopy", "bench_collect")), first)
        for word in says:
            self.assertIn(str(word), first)

    def copy_of_tiny(self):
        model = self.dir / "model"
        shutil.copytree(TINY, model)
        return model

    def edit_config(self, **changes):
        model = self.copy_of_tiny()
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, **changes}))
        return model

    def test_usage(self):
        self.fails(2, "genrate", says=["'genrate'", "did you mean generate?"])
        self.fails(2, "frobnicate", says=["'frobnicate'", "there are bench,", "tokenize"])
        self.fails(2, "calibrate", "accept", says=["did you mean acceptance?"])
        self.fails(2, "bench", "decoed", says=["'bench decoed'", "did you mean decode?"])
        self.fails(2, "generate", "-m", TINY, "-p", "x", "--no-such-flag", says=["no-such-flag"])
        for flag, says in (("-cnv", "did you mean -ctv?"), ("-no-cnv", "unknown flag -no-cnv"), ("-fo", "did you mean -"), ("-sys", "unknown flag -sys"), ("-temp", "did you mean --temp?"),
                           ("--max-tokes", "did you mean --max-tokens?"), ("--n_predict=4", "did you mean --n-predict?"),
                           ("-n128", "did you mean -n 128?"), ("-nfoo", "unknown flag -nfoo")):
            self.fails(2, "generate", "-m", TINY, "-p", "x", flag, says=[f"unknown flag {flag.split('=')[0]}", says])
        self.fails(2, "generate", "-m", TINY, "-p", "once", "upon", says=["'upon'", "quotes"])
        self.fails(2, "generate", TINY, "-p", "once", "upon", says=["'upon'", "quotes"])
        self.fails(2, "generate", "-p", "x", says=["model"])
        self.fails(2, "generate", "-m", TINY, says=["prompt"])
        self.fails(2, "generate", "-m", TINY, "-p", "x", "-f", "y", says=["prompt"])
        for count in ("0", "-2", "10000001", "2147483647"):
            self.fails(2, "generate", "-m", TINY, "-p", "x", "-n", count, says=["n-predict"])
        for count in ("0", "2147483647"):
            self.fails(2, "generate", "-m", TINY, "-p", "x", "-c", count, says=["ctx-size"])
        self.fails(2, "generate", "-m", TINY, "-p", "x", "-n", "ten", says=["n-predict"])
        self.fails(2, "generate", "-m", TINY, "-p", "x", "--temp", "-1", says=["temp"])
        self.fails(2, "generate", "-m", TINY, "-p", "x", "--temp", "nan", says=["temp"])
        self.fails(2, "generate", "-m", TINY, "-p", "x", "--top-p", "0", says=["top-p"])
        self.fails(2, "generate", "-m", TINY, "-p", "x", "--memory", "lots", says=["--memory", "lots"])
        for flag in (["--gpu-memory", "1G"], ["--enforce-eager"]):
            self.fails(2, "generate", "-m", TINY, "-p", "x", "--device", "cpu", *flag, says=[flag[0], "no GPU"])
        self.fails(2, "generate", "-m", TINY, "-p", "x", "--spec", "magic", says=["magic"])
        self.fails(2, "generate", "-m", TINY, "-p", "x", "--spec", "sequoia", says=["-md"])
        self.fails(2, "generate", "-m", TINY, "-p", "x", "--tree-size", "8", says=["tree"])
        for spec in ("chain", "specinfer", "spectr", "naive", "topk"):
            self.fails(2, "generate", "-m", TINY, "-p", "x", "--spec", spec, says=[spec, "-md"])
        self.fails(2, "generate", "-m", TINY, "-p", "x", "--tree", "5x8", says=["--tree"])
        drafted = ("generate", "-m", TINY, "-md", TINY, "-p", "x")
        self.fails(2, *drafted, "--tree", "5x8", "--spec", "none", says=["--tree"])
        self.fails(2, *drafted, "--tree", "5x8", "--spec", "chain", says=["--tree-size"])
        self.fails(2, *drafted, "--tree", "5x8", "--tree-size", "8", says=["--tree-size"])
        self.fails(2, *drafted, "--tree-size", "8", "--spec", "specinfer", says=["--tree 5x8"])
        self.fails(2, *drafted, "--tree", "0x8", says=["--tree 0x8"])
        self.fails(2, *drafted, "--tree", "2-ary:4097", says=["--tree 2-ary:4097", "the most is 4096"])
        self.fails(2, *drafted, "--tree", self.dir / "nothing", says=["nothing", "No such file"])
        for text, says in (("[-1, 0", "JSON"), ("{}", "parents"), ("[-1]", "root alone"), ("[-1, 0, 1, 0]", "node 3")):
            (self.dir / "tree.json").write_text(text)
            self.fails(2, *drafted, "--tree", self.dir / "tree.json", says=["tree.json", says])
        self.fails(2, "generate", "-m", TINY, "-p", "x", "-ctk", "q8", says=["cache-type-k"])
        self.fails(2, "generate", "-m", TINY, "-p", "x", "-ctk", "f16", "-ctv", "bf16",
                   says=["--cache-type-k", "--cache-type-v"])
        tiny = tiny_model(self.dir)
        self.fails(2, "generate", "-m", tiny, "-md", tiny, "--tokens", "1,2", "--tree", "98,2",
                   says=["--tree 98,2", "node 0", "98 children", "97 tokens"])
        without_model = ("generate", "-m", tiny, "--tokens", "1,2", "-md")
        for draft in ("copy:0", "copy:17", "copy:x", "ngram:0", "ngram:3", "ngram:"):
            self.fails(2, *without_model, draft, says=["--model-draft", f"'{draft}'", "from 1 to"])
            self.fails(2, "calibrate", "acceptance", "-m", tiny, "-md", draft, says=["--model-draft", draft])
        for spec in ("sequoia", "specinfer", "spectr", "naive"):
            self.fails(2, *without_model, "copy", "--spec", spec, says=[f"--spec {spec}", "-md copy"])
            self.fails(2, "bench", "decode", "-m", tiny, "-md", "copy", "--methods", spec, says=["--methods", spec])
        self.fails(2, *without_model, "copy", "--spec", "chain", "--adaptive", says=["adaptive", "-md copy"])
        for spec in ("auto", "sequoia", "topk", "none"):
            self.fails(2, *drafted, "--adaptive", "--spec", spec, says=["--adaptive", "chain"])
        for value in ("-0.1", "1.1", "x", "", "nan", "0.5x"):
            self.fails(2, *drafted, f"--lenience={value}", says=["--lenience"])
        for spec in ("none", "topk", "naive", "specinfer", "spectr"):
            self.fails(2, *drafted, "--lenience", "0.5", "--spec", spec, says=["--lenience", "sequoia"])
        self.fails(2, "generate", "-m", TINY, "-p", "x", "--lenience", "0.5", says=["--lenience", "draft"])
        self.fails(2, *without_model, "copy", "--lenience", "0.5", says=["--lenience", "draft model"])
        for flag, values in (("gsd-children", ("0", "33", "x")), ("gsd-steps", ("0", "65")), ("gsd-tau", ("0", "9")),
                             ("gsd-prob", ("-0.1", "1.01", "x", "nan")), ("gsd-sibling", ("-1", "2"))):
            for value in values:
                self.fails(2, *drafted, "--spec", "gsd", f"--{flag}={value}", says=[flag])
        for method, flag, values in (("bild", "fallback", ("-0.1", "1.1", "x")), ("bild", "rollback", ("-1", "x", "1e9")),
                                     ("mtad", "beams", ("0", "65")), ("mtad", "gamma", ("0", "33")),
                                     ("mtad", "threshold", ("-0.1", "1.1", "nan"))):
            for value in values:
                self.fails(2, *drafted, "--spec", method, f"--{flag}={value}", says=[flag])
        for flag, value, methods in (("gsd-children", 2, ("ssd", "chain", "bild")), ("gsd-sibling", 0.1, ("ssd", "auto")),
                                     ("gsd-steps", 3, ("chain", "topk")), ("gsd-prob", 0.1, ("sequoia", "mtad")),
                                     ("gsd-tau", 1, ("tsd", "ssd", "topk")), ("fallback", 0.5, ("chain", "mtad", "auto")),
                                     ("rollback", 1, ("gsd", "adaptive")), ("beams", 2, ("bild", "gsd")),
                                     ("gamma", 2, ("chain", "bild")), ("threshold", 0.1, ("bild", "sequoia"))):
            for method in methods:
                self.fails(2, *drafted, "--spec", method, f"--{flag}", value, says=[f"--{flag}", "--spec"])
        for method in ("gsd", "gsd-sequoia", "tsd", "ssd", "gsd-ratio", "bild", "mtad"):
            self.fails(2, "generate", "-m", TINY, "-p", "x", "--spec", method, says=[method, "-md"])
            self.fails(2, *without_model, "copy", "--spec", method, says=[method, "-md copy"])
            self.fails(2, *drafted, "--spec", method, "--lenience", "0.5", says=["--lenience"])
            self.fails(2, *drafted, "--spec", method, "--adaptive", says=["--adaptive"])
            self.fails(2, *drafted, "--spec", method, "--tree", "2,2", says=["--tree"])
            if method not in ("tsd", "ssd"):
                self.fails(2, "plan", TINY, "-md", TINY, "--spec", method, says=[method, "bench decode"])
        self.fails(2, *drafted, "--spec", "self-ssd", says=["self-ssd", "-md"])
        self.fails(2, "plan", TINY, "--spec", "self-ssd", says=["self-ssd", "bench decode"])
        for inner in ("ngram:3", "copy:0"):
            self.fails(2, *drafted, "--spec", "chain", "-mdd", inner, says=["--model-draft-draft", inner])
        self.fails(2, "plan", TINY, "-md", TINY, "--spec", "chain", "-mdd", "llama-2-7b", says=["--model-draft-draft", "shape"])
        self.fails(2, *drafted, "--spec", "chain", "--adaptive", "-mdd", "copy", says=["--adaptive"])
        for spec in ("auto", "sequoia", "gsd", "none"):
            self.fails(2, *drafted, "--spec", spec, "-mdd", "copy", says=["--model-draft-draft", "chain"])
        self.fails(2, *drafted, "--spec", "hierarchy", says=["hierarchy", "-mdd"])
        self.fails(2, "bench", "decode", "-m", tiny, "-md", tiny, "--methods", "hierarchy", says=["hierarchy", "-mdd"])
        self.fails(2, *without_model, "copy", "--spec", "chain", "-mdd", "copy", says=["hierarchy", "-md copy"])
        self.fails(2, *drafted, "--spec", "gsd", "--tree-depth", 4, says=["--tree-depth", "--gsd-steps"])
        self.fails(2, *drafted, "--spec", "mtad", "--tree-size", 4, says=["--tree-size", "--gamma"])
        self.fails(2, "calibrate", "acceptance", "-m", tiny, "-md", "copy", says=["--output", "-md copy"])
        (self.dir / "corpus").write_text("a text")
        for draft in (("-md", "random"), ("-md", tiny), ()):
            self.fails(2, "generate", "-m", tiny, "--tokens", "1,2", *draft, "--draft-corpus", self.dir / "corpus",
                       says=["--draft-corpus", "-md copy"])
        for text, says in ((b"", "empty"), (b"\xff\xfe", "UTF-8")):
            (self.dir / "corpus").write_bytes(text)
            self.fails(1, *without_model, "copy", "--draft-corpus", self.dir / "corpus", says=["--draft-corpus", says])
        self.fails(1, *without_model, "copy", "--draft-corpus", self.dir / "none", says=["none", "No such file"])
        for count in ("0", "-2", "2147483647"):
            self.fails(2, "plan", tiny, "-n", count, says=["n-predict"])
        self.fails(2, "generate", "-m", TINY, "-p", "x", "--logprobs", "3", says=["--logprobs"])
        sampled = ("generate", "-m", TINY, "-p", "x", "--temp", "1", "--num-samples")
        for count in ("0", "-3", "100001"):
            self.fails(2, *sampled, count, says=["--num-samples"])
        self.fails(2, *sampled, "2", "--json", says=["--json", "--report"])
        self.fails(2, "generate", "-m", TINY, "-p", "x", "--num-samples", "2", says=["--num-samples", "--temp"])
        for cpus in ("", "x", "0-", "3-1", "0,,0", "0:0", "-1", "0 ", "99999999999"):
            self.fails(2, "generate", "-m", TINY, "-p", "x", "--cpu-list", cpus, says=["--cpu-list", f"'{cpus}'"])
        mine = max(os.sched_getaffinity(0))
        for cpus in (f"{mine + 1}", f"{mine}-2000000000", f"{mine},{mine + 1}-{mine + 9}:4"):
            self.fails(2, "generate", "-m", TINY, "-p", "x", "--cpu-list", cpus, says=["--cpu-list", f"CPU {mine + 1}"])
        if len(os.sched_getaffinity(0)) > 1:  # else a note says that 2 threads are one
            self.fails(2, "generate", "-m", TINY, "-p", "x", "--cpu-list", mine, "-t", 2, says=["--threads", "--cpu-list"])
        self.fails(2, "calibrate", "everything", says=["everything"])
        acceptance = ("calibrate", "acceptance", "-m", TINY)
        self.fails(2, *acceptance, says=["-md"])
        for flag, value in (("temp", -1), ("top-p", 0), ("top-k", -1), ("examples", 1), ("prompt-tokens", 0),
                            ("n-predict", 0), ("ctx-size", 255)):
            self.fails(2, *acceptance, "-md", TINY, f"--{flag}", value, says=[flag])
        for command in (("bench", "decode"), ("calibrate", "acceptance"), ("collect", "-o", self.dir / "out")):
            words = *command, "-m", TINY, *(() if command[0] == "collect" else ("-md", TINY))
            for flag in ("n-predict", "prompt-tokens"):
                self.fails(2, *words, f"--{flag}", "2147483647", says=[flag, "at most 10000000"])
        self.fails(2, "bench", "offload", "--prompt-tokens", "2147483647", says=["prompt-tokens", "at most 10000000"])
        self.fails(2, "inspect", says=["model"])
        self.fails(2, "inspect", TINY, TINY, says=["model is given already"])
        self.assertEqual(run().returncode, 2)

    def test_help_by_word(self):
        for words, flag in ((["generate"], ["generate"]), (["bench"], ["bench"]), (["bench", "decode"], ["bench", "decode"]),
                            (["inspect"], ["inspect"]), (["calibrate", "hardware"], ["calibrate", "hardware"])):
            expected = run(*flag, "--help").stdout
            self.assertIn("usage: canopy " + words[0], expected)
            for asked in (["help", *words], [*words, "help"]):
                result = run(*asked)
                self.assertEqual((result.returncode, result.stdout), (0, expected), asked)
        self.assertEqual(run("calibrate", "help").stdout, run("calibrate", "--help").stdout)
        self.assertEqual(run("help").stdout, run("--help").stdout)
        self.fails(2, "help", "genrate", says=["did you mean generate?"])

    def test_help(self):
        for words in (["--help"], ["generate", "--help"], ["tokenize", "--help"], ["detokenize", "--help"],
                      ["inspect", "--help"], ["perplexity", "--help"], ["inflate", "--help"], ["quantize", "--help"],
                      ["pack", "--help"], ["unpack", "--help"], ["shard", "--help"],
                      ["calibrate", "--help"], ["calibrate", "acceptance", "--help"]):
            result = run(*words)
            self.assertEqual(result.returncode, 0)
            self.assertIn("usage: canopy", result.stdout)

    def test_missing_file(self):
        missing = self.dir / "nothing.gguf"
        for command in (["inspect", missing], ["calibrate", "acceptance", "-m", missing, "-md", missing], ["generate", "-m", missing, "-p", "x"], ["tokenize", "-m", missing],
                        ["inflate", "-m", missing, "-o", self.dir / "out", "--size", "1G"],
                        ["quantize", "-m", missing, "-o", self.dir / "out.gguf", "--type", "q4_0"],
                        ["shard", "-m", missing, "--ranks", 2, "--rank", 1, "-o", self.dir / "out"],
                        ["pack", "-m", missing, "-o", self.dir / "out"], ["unpack", "-m", missing, "-o", self.dir / "out"]):
            self.fails(1, *command, says=[missing])
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_sizes_are_said_as_they_were_asked_for(self):
        self.fails(1, "inflate", TINY, "-o", self.dir / "big", "--size", "5K", says=["KiB; 5.0 KiB were asked for"])

    def test_experts_or_a_size(self):
        for words, says in ((["--size", "5M", "--experts", "4", "--active", "2"], "give either --size, or --experts"),
                            ([], "give either --size, or --experts"), (["--experts", "4"], "go together"),
                            (["--experts", "4", "--active", "5"], "--active: 1 to the 4")):
            self.fails(2, "inflate", TINY, "-o", self.dir / "big", *words, says=[says])

    def test_directory_without_config(self):
        self.fails(1, "inspect", self.dir, says=["config.json"])

    def test_truncated_shard(self):
        model = self.copy_of_tiny()
        weights = model / "model.safetensors"
        os.truncate(weights, weights.stat().st_size - 100)
        self.fails(1, "inspect", model, says=["model.safetensors"])

    def test_flipped_header_byte(self):
        model = self.copy_of_tiny()
        data = bytearray((model / "model.safetensors").read_bytes())
        data[7] ^= 0x80  # the header's length
        (model / "model.safetensors").write_bytes(data)
        self.fails(1, "inspect", model, says=["model.safetensors"])

    def test_unknown_architecture(self):
        model = self.edit_config(architectures=["MambaForCausalLM"], model_type="mamba")
        self.fails(1, "inspect", model, says=["mamba"])

    def test_unwritable_output(self):
        for output in ("/proc/nowhere/out", self.dir / "no" / "such" / "folder"):
            self.fails(1, "inflate", "-m", TINY, "-o", output, "--size", "10M", says=[output])
            self.fails(1, "quantize", "-m", TINY, "-o", output, "--type", "q8_0", says=[output])
        self.assertEqual(list(self.dir.iterdir()), [])

    @unittest.skipUnless(SMOLLM2.exists(), "the model is not here; scripts/get_model fetches it")
    def test_budget_too_small(self):
        self.fails(1, "generate", "-m", SMOLLM2, "-p", "x", "--memory", "20M", says=["20.0 MiB", "at least"])

    @unittest.skipUnless(SMOLLM2.exists(), "the model is not here; scripts/get_model fetches it")
    def test_a_context_that_nobody_asked_for_gives_way_and_one_that_was_is_refused(self):
        words = ("-m", SMOLLM2, "-n", -1, "--memory", "200M")
        for command in ("generate", "-p", "x"), ("plan", "--prompt-tokens", 4):
            self.fails(1, *command, *words, "-c", 8192, says=["200.0 MiB", "at least"])
        plan = run("plan", "--prompt-tokens", 4, *words)
        self.assertEqual(plan.returncode, 0, plan.stderr)
        self.assertRegex(plan.stdout, r"note: the context is \d+ tokens, not 8192, for which at least [\d.]+ MiB would")

    @unittest.skipUnless(SMOLLM2.exists(), "the model is not here; scripts/get_model fetches it")
    def test_draft_with_another_vocabulary(self):
        draft = self.copy_of_tiny()
        tokenizer = next((DATA / "text").rglob("tokenizer.json"))
        shutil.copy(tokenizer, draft)
        self.fails(1, "generate", "-m", SMOLLM2, "-md", draft, "-p", "x", says=["vocabular"])
        for inner, says in ((draft, "vocabular"), ("no-such-model", "no-such-model")):
            self.fails(1, "generate", "-m", SMOLLM2, "-md", SMOLLM2, "-mdd", inner, "--spec", "chain", "-p", "x",
                       says=[says, str(inner)])

    @unittest.skipUnless(SMOLLM2.exists(), "the model is not here; scripts/get_model fetches it")
    @unittest.skipUnless(os.geteuid() == 0, "mounting a small file system takes root")
    def test_full_disk(self):
        disk = self.dir / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", disk]).returncode != 0:
            self.skipTest("file systems cannot be mounted here")
        self.addCleanup(subprocess.run, ["umount", disk])
        self.fails(1, "inflate", "-m", SMOLLM2, "-o", disk / "big", "--size", "1G", says=[disk])
        self.assertEqual(list(disk.iterdir()), [])


if __name__ == "__main__":
    main()
