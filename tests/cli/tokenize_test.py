"""canopy tokenize and detokenize."""
import json
import shutil
import unittest

from support import DATA, SMOLLM2, TempDirCase, main, run, run_json


class Tokenize(TempDirCase):
    def setUp(self):
        super().setUp()
        self.model = self.dir / "model"
        shutil.copytree(DATA / "model" / "llama3", self.model)
        shutil.copy(DATA / "text" / "llama3" / "tokenizer.json", self.model)

    def ids(self, text, *flags):
        return run_json("tokenize", "-m", self.model, *flags, stdin=text)["tokens"]

    def test_both_outputs_agree_and_turn_back_into_the_text(self):
        text = "<|im_start|>it's 2024: the café 👍🏽\n"
        ids = self.ids(text, "--no-special")
        self.assertEqual(ids[0], 1)
        plain = run("tokenize", "-m", self.model, "--no-special", stdin=text).stdout
        self.assertEqual(plain, " ".join(map(str, ids)) + "\n")
        for spelled in (plain, ",".join(map(str, ids)), json.dumps({"tokens": ids}), json.dumps(ids)):
            self.assertEqual(run("detokenize", "-m", self.model, stdin=spelled).stdout, text)

    def test_adds_the_models_special_tokens_unless_told_not_to(self):
        self.assertEqual(self.ids("a"), [1] + self.ids("a", "--no-special"))
        self.assertEqual(self.ids(""), [1])
        self.assertEqual(self.ids("", "--no-special"), [])

    def test_takes_the_text_from_a_flag_or_as_a_word(self):
        expected = run("tokenize", "-m", self.model, stdin="a b").stdout
        for words in (["-m", self.model, "-p", "a b"], [self.model, "a b"], ["-m", self.model, "a b"], ["a b", "-m", self.model],
                      [self.model, "--prompt", "a b"]):
            result = run("tokenize", *words, stdin="other")
            self.assertEqual((result.returncode, result.stdout), (0, expected), (words, result.stderr))
        self.assertEqual(run("tokenize", self.model, "-", stdin="a b").stdout, expected)
        self.assertEqual(run("tokenize", self.model, "-5").stderr.count("unknown flag"), 1)
        for words in ([self.model, "a", "b"], [self.model, "-p", "a", "b"]):
            result = run("tokenize", *words)
            self.assertEqual(result.returncode, 2)
            self.assertIn("needs quotes", result.stderr)

    def test_refuses_what_is_no_list_of_ids(self):
        for stdin, words in (("1 2 x", "'x' (byte 4"), ("1.5", "'1.5'"), ("-1", "outside the vocabulary"),
                             ("99999", "outside the vocabulary"), ("99999999999", "is not a token id"),
                             ('{"tokens":[1,-2]}', 'entry 1 of "tokens"'), ('{"tokens":[1e9]}', "entry 0"),
                             ('{"tokens":3}', 'no list of "tokens"'), ('{"ids":[1]}', 'no list of "tokens"'),
                             ('{"tokens":[1,', "not JSON")):
            with self.subTest(stdin):
                result = run("detokenize", "-m", self.model, stdin=stdin)
                self.assertEqual((result.returncode, result.stdout), (1, ""))
                self.assertIn(words, result.stderr)

    def test_refuses_a_model_without_a_tokenizer(self):
        (self.model / "tokenizer.json").unlink()
        result = run("tokenize", "-m", self.model)
        self.assertEqual(result.returncode, 1)
        self.assertIn("has neither tokenizer.json nor tekken.json nor vocab.json", result.stderr)

    def test_wrong_usage_is_exit_code_2(self):
        self.assertEqual(run("tokenize").returncode, 2)
        self.assertEqual(run("detokenize", "-m", self.model, "--json").returncode, 2)


@unittest.skipUnless(SMOLLM2.exists(), f"no {SMOLLM2}")
class RealModel(unittest.TestCase):
    def test_matches_the_reference_on_a_chat_prompt(self):
        for case in json.loads((DATA / "text" / "smollm2.json").read_text()):
            if case["text"].startswith("<|im_start|>"):
                self.assertEqual(run_json("tokenize", "-m", SMOLLM2, stdin=case["text"])["tokens"], case["ids"])


if __name__ == "__main__":
    main()
