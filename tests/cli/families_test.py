"""OPT and BLOOM as users meet them: a directory that every command takes, or refuses by name."""
import json
import shutil
import unittest

from support import DATA, TOKENIZER, TempDirCase, main, run, run_json


TEMPLATES = DATA / "chat_templates"
# A family's model, and the template that the family's chats have.
CHATS = {"apertus": "Apertus-8B-Instruct", "cohere": "canopy-command_r", "exaone": "canopy-exaone",
         "gemma4": "google-gemma-4-31B-it", "glm4": "GLM-4.6", "granite": "ibm-granite-granite-3.3-2B-Instruct",
         "granite4": "ibm-granite-granite-4.0", "hunyuan": "canopy-hunyuan",
         "ministral3": "mistralai-Ministral-3-14B-Reasoning-2512", "mistral3": "Mistral-Small-3.2-24B-Instruct-2506",
         "phi3": "microsoft-Phi-3.5-mini-instruct", "phi3_longrope": "axolotl-phi_4", "qwen3": "Qwen-Qwen3-0.6B",
         "qwen3_5": "Qwen3.5-4B", "seed_oss": "ByteDance-Seed-OSS", "smollm3": "HuggingFaceTB-SmolLM3-3B"}


class Families(TempDirCase):
    def model(self, name):
        model = self.dir / name
        shutil.copytree(DATA / "model" / name, model)
        (model / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        return model

    def fails(self, *words, says):
        result = run(*words)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn(says, result.stderr)
        lines = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
        self.assertEqual(len(lines), 1, result.stderr)

    def test_text_is_the_same_by_a_tree_and_streamed(self):
        for name in ("opt", "opt_after", "bloom"):
            with self.subTest(name):
                model = self.model(name)
                words = ("-m", model, "-p", "The sea", "-n", "40", "--ignore-eos", "--temp", "0")
                plain = run_json("generate", *words)["tokens"]
                for more in (["--resident", "none"], ["-md", model, "--spec", "sequoia", "--tree", "3,2,1"],
                             ["-md", "copy", "--resident", "none"]):
                    self.assertEqual(run_json("generate", *words, *more)["tokens"], plain, more)

    def test_a_chat_of_two_turns_is_what_generate_writes_of_transformers_prompts(self):
        goldens = json.loads((TEMPLATES / "goldens.json").read_text())
        saved = self.dir / "saved.json"
        for name, template in CHATS.items():
            with self.subTest(name):
                model = self.model(name)
                (model / "tokenizer_config.json").write_text('{"eos_token": "~"}')
                shutil.copy(TEMPLATES / "templates" / f"{template}.jinja", model / "chat_template.jinja")
                words = ("-m", model, "-n", "12", "--temp", "0")
                chat = run("chat", *words, "-c", "4096", stdin=f"Hello.\nAnd then?\n/save {saved}\n")
                self.assertEqual(chat.returncode, 0, chat.stderr)
                turns = json.loads(saved.read_text())
                self.assertEqual([turn["role"] for turn in turns], ["user", "assistant"] * 2)
                answers = [turn.get("reasoning_content", "") + turn["content"] for turn in turns[1::2]]
                self.assertTrue(all(answers), turns)
                prompt = goldens[template][0]["text"].removeprefix("<s>").replace("Hello, Wörld 🌲!", "Hello.")
                if "2026" in prompt:  # the day on which the goldens were made
                    continue
                plain = run_json("generate", *words, "-p", prompt)["text"]
                self.assertEqual(answers[0].strip(), plain.strip())

    def test_commands_take_it(self):
        for name in ("opt", "opt_after", "bloom"):
            with self.subTest(name):
                model = self.model(name)
                self.assertEqual(run("inspect", model).returncode, 0)
                run_json("plan", "-m", model, "-n", "8", "--prompt-tokens", "20")
                (self.dir / "text").write_text("The sea was calm, and the boat lay still.")
                score = run_json("perplexity", "-m", model, "-f", self.dir / "text", "-c", "32")
                self.assertGreater(score["perplexity"], 1)
                packed = run("pack", "-m", model, "-o", self.dir / f"{name}-packed")
                self.assertEqual(packed.returncode, 0, packed.stderr)
                words = ("-p", "The sea", "-n", "8", "--ignore-eos")
                self.assertEqual(run_json("generate", "-m", self.dir / f"{name}-packed", *words)["tokens"],
                                 run_json("generate", "-m", model, *words)["tokens"])

    def test_what_heads_are_trained_on_is_as_wide_as_the_head(self):
        model = self.model("opt_after")
        (self.dir / "prompts").write_text("The sea\nThe boat\n")
        made = run("collect", "-m", model, "--prompts", self.dir / "prompts", "-o", self.dir / "rows", "-n", "16",
                   "--positions", "20")
        self.assertEqual(made.returncode, 0, made.stderr)
        about = json.loads((self.dir / "rows" / "collected.json").read_text())
        self.assertEqual(about["dim"], 24)
        self.assertEqual((self.dir / "rows" / "read.bf16").stat().st_size, about["positions"] * 24 * 2)
        self.assertEqual((self.dir / "rows" / "head.bf16").stat().st_size, about["vocab"] * 24 * 2)

    def test_what_cannot_be_made_of_it_is_refused_by_name(self):
        for name in ("opt", "opt_after", "bloom"):
            with self.subTest(name):
                model = self.model(name)
                self.fails("inflate", "-m", model, "-o", self.dir / "big", "--size", "4M", says="is not enlarged")
                self.fails("quantize", "-m", model, "-o", self.dir / "q.gguf", "--type", "q4_0",
                           says="cannot be a GGUF file")

    def test_a_context_behind_the_last_learned_position_is_refused(self):
        self.fails("generate", "-m", self.model("opt"), "-p", "The sea", "-n", "60",
                   says="beyond the 64 positions that the model has learned")
        self.assertEqual(run("generate", "-m", self.model("bloom"), "-p", "The sea", "-n", "300").returncode, 0)

    def test_recurrent_layers_are_told_apart_and_refused_where_they_cannot_be(self):
        for name, key_heads, value_heads in (("qwen3_next", 3, 6), ("qwen3_5", 2, 4)):
            with self.subTest(name):
                self.check_recurrent(name, key_heads, value_heads)

    def check_recurrent(self, name, key_heads, value_heads):
        model = self.model(name)
        words = ("-m", model, "-p", "The sea", "-n", "200", "--ignore-eos")
        plain = run_json("generate", *words)["tokens"]
        for more in (["--resident", "none"], ["-md", model, "--spec", "sequoia", "--tree-size", "64"], ["-md", "copy"]):
            self.assertEqual(run_json("generate", *words, *more)["tokens"], plain, more)
        self.assertEqual(run_json("inspect", model)["config"]["delta_net"],
                         {"key_heads": key_heads, "value_heads": value_heads, "key_dim": 8, "value_dim": 12, "layers": 6})
        packed = self.dir / f"{name}-packed"
        self.assertEqual(run("pack", "-m", model, "-o", packed).returncode, 0)
        self.assertEqual(run_json("generate", "-m", packed, *words[2:])["tokens"], plain)
        long = ("-m", model, "-p", "The sea is wide. " * 12, "-n", "40", "--ignore-eos")
        expected = run_json("generate", *long)["tokens"]
        for at_least in (0, 64):
            kept = run_json("generate", *long, "--prompt-cache", self.dir / f"{name}-prompts")
            self.assertEqual(kept["tokens"], expected)
            self.assertGreaterEqual(kept["cached_tokens"], at_least)
        self.fails("generate", *words, "--num-beams", "3", says="recurrent layers")
        self.fails("generate", *words, "-md", model, "--spec", "chain", "--tree-size", "66", says="65 levels")
        draft = self.dir / f"{name}.gguf"
        if name == "qwen3_next":  # whose layers are dense in part
            return self.fails("quantize", "-m", model, "--type", "Q8_0", "-o", draft, says="its layers differ in size")
        self.assertEqual(run("quantize", "-m", model, "--type", "Q8_0", "-o", draft).returncode, 0)
        tree = run_json("generate", *words, "-md", draft, "--spec", "sequoia", "--tree-size", "8")
        self.assertEqual(tree["tokens"], plain)
        self.assertGreater(tree["step"]["measured"]["tokens_per_step"], 1.5)  # a draft in another order has 1.0


if __name__ == "__main__":
    main()
