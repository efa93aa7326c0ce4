"""The help, the documents and the program agree."""
import re
import unittest

from support import REPO, TempDirCase, bytes_model, main, run, run_json

COMMANDS = [["generate"], ["chat"], ["serve"], ["plan"], ["perplexity"], ["tokenize"], ["detokenize"], ["inspect"], ["doctor"], ["pull"],
            ["quantize"], ["pack"], ["unpack"], ["shard"], ["inflate"], ["collect"], ["calibrate", "acceptance"], ["calibrate", "hardware"],
            ["bench"], ["bench", "decode"], ["bench", "link"], ["bench", "offload"]]
DOCS = {path.name: path.read_text() for path in [REPO / "README.md", *(REPO / "docs").glob("*.md")]}
# Flags of other programs that the documents name.
OTHERS = {"--local-dir", "--install", "--prefix", "--build", "--preset", "--cflags", "--libs", "--variable", "--quick"}


def help_of(*words):
    return " ".join(run(*words, "--help").stdout.split())


def flags_of(text):
    return set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+[a-z])", text))


class Help(TempDirCase):
    def test_a_flag_that_a_document_names_is_a_flag(self):
        known = OTHERS | {"--help", "--version"}
        for words in COMMANDS:
            known |= flags_of(run(*words, "--help").stdout)
        for name, text in DOCS.items():
            for span in re.findall(r"`([^`]*)`", text):
                if not re.match(r"(canopy |--)", span):
                    continue  # another program's command
                self.assertLessEqual(flags_of(span), known, f"{name}: `{span}`")

    def test_a_default_that_a_document_gives_is_the_one_that_help_gives(self):
        pages = [help_of(*words) for words in COMMANDS]
        checked = 0
        for name, text in DOCS.items():
            for flag, value in re.findall(r"`(--[a-z-]+)` \((\d[\d.]*)\)", text):
                defaults = {match for page in pages for match in re.findall(rf"{flag} \S+ \(=([^)]*)\)", page)}
                if defaults:
                    self.assertIn(value, defaults, f"{name}: {flag}")
                    checked += 1
        self.assertGreater(checked, 1)

    def test_the_context_s_default_is_that_of_help_and_of_the_document(self):
        said = re.search(r"`-c` is the smaller of the model's length and (\d+)", DOCS["serve.md"])[1]
        for command in ("chat", "serve"):
            self.assertIn(f"context in tokens (default: what the model was made for, {said} at most;", help_of(command))
        model = bytes_model(self.dir / "tiny")
        config = (model / "config.json").read_text()
        (model / "config.json").write_text(re.sub(r'("max_position_embeddings": )\d+', rf"\g<1>{4 * int(said)}", config))
        self.assertEqual(run_json("plan", model, "--parallel", 1, "--memory", "2G")["context"], int(said))
        (model / "config.json").write_text(config)
        self.assertIn("context in tokens (default: 512, a window's)", help_of("perplexity"))
        self.assertIn("context in tokens (default: as much as the request needs)", help_of("generate"))
        self.assertIn("--ctx-size: the prompt alone has 2 tokens, and the context 2",
                      run("generate", model, "-p", "ab", "-n", 5, "-c", 2).stderr)

    def test_the_default_of_kv_memory_is_that_of_help_and_of_the_document(self):
        said = re.search(r"one text of full length and one of (\d+) tokens for each other place", DOCS["serve.md"])[1]
        self.assertIn(f"(default: one text as long as --ctx-size, and {said} tokens for each other)", help_of("serve"))
        self.assertIn("(default: every text that shares a sweep can be as long as --ctx-size)", help_of("generate"))

    def test_a_field_that_the_server_reads_is_in_the_document(self):
        folder, document = REPO / "src" / "server" / "request", DOCS["serve.md"]
        fields = set()
        for name in ("chat_fields", "completion_request", "sampling_fields", "tool_fields"):
            fields |= set(re.findall(r'fields\.(?:any|flag|text|integer|whole|number|list|object)\("([a-z_]+)"',
                                     (folder / f"{name}.cc").read_text()))
        self.assertLessEqual({"best_of", "modalities", "top_k"}, fields)
        self.assertEqual(sorted(field for field in fields if f"`{field}" not in document), [])


if __name__ == "__main__":
    main()
