"""llama.cpp's flags: taken where they mean something here, else accepted with a note that says why they change nothing."""
import os
import pty
import subprocess
import unittest

from support import CANOPY, TempDirCase, bytes_model, main, run, run_json

TEXT = ("-p", "ab", "-n", 3, "--ignore-eos")
OF_MODELS = (["-fa"], ["-fa", "on"], ["--flash-attn", "off"], ["--flash-attn=auto"], ["-b", 2048], ["--batch-size", 1], ["-ub", 512],
             ["--no-mmap"], ["--mlock"], ["--no-warmup"])
NAMES = {"-fa": "--flash-attn", "--flash-attn=auto": "--flash-attn", "-b": "--batch-size", "-ub": "--ubatch-size",
         "-np": "--parallel", "-v": "--verbose"}


class LlamaFlags(TempDirCase):
    def setUp(self):
        super().setUp()
        self.model = bytes_model(self.dir / "tiny")

    def changes_nothing(self, flags, *words, **options):
        plain = run(*words, **options)
        given = run(*words, *flags, **options)
        self.assertEqual((given.returncode, given.stdout), (0, plain.stdout), given.stderr)
        self.assertIn(f"note: {NAMES.get(flags[0], flags[0])} changes nothing here: ", given.stderr)
        self.assertNotIn("changes nothing", plain.stderr)

    def test_those_of_the_machine_change_nothing_and_a_note_says_so(self):
        for flags in OF_MODELS:
            self.changes_nothing(flags, "generate", self.model, *TEXT)

    def test_a_word_after_a_switch_is_its_value_only_if_it_is_one(self):
        for words in (["-fa", self.model], ["-fa", "on", self.model], ["--flash-attn", self.model]):
            result = run("generate", *words, *TEXT)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_those_of_a_prompt_change_nothing_of_generate(self):
        for flags in (["-np", 4], ["--jinja"], ["--chat-template", "chatml"], ["--verbose"], ["-v"]):
            self.changes_nothing(flags, "generate", self.model, *TEXT)

    def test_those_of_chat_change_nothing_but_its_template(self):
        template = "{% for m in messages %}{{ m.content }}{% endfor %}"
        file = self.dir / "template"
        file.write_text(template)
        words = ("chat", self.model, "-n", 4, "-c", 100)
        for flags in (["-np", 4], ["--jinja"], ["--verbose"]):
            self.changes_nothing(flags, *words, "--chat-template-file", file, stdin="one\n")
        by_file = run(*words, "--chat-template-file", file, stdin="one\n")
        by_text = run(*words, "--chat-template", template, stdin="one\n")
        self.assertEqual((by_text.returncode, by_text.stdout), (0, by_file.stdout), by_text.stderr)

    def test_a_template_of_llama_cpp_s_by_name_is_refused(self):
        for command in ("chat", "serve"):
            result = run(command, self.model, "--chat-template", "chatml", stdin="")
            self.assertEqual(result.returncode, 2, result.stderr)
            for said in ("'chatml' is no template of Jinja", "--chat-template-file"):
                self.assertIn(said, result.stderr)
        both = run("chat", self.model, "--chat-template", "{{ x }}", "--chat-template-file", "x", stdin="")
        self.assertEqual(both.returncode, 2)

    def test_a_file_that_holds_no_template_is_refused(self):
        file = self.dir / "template"
        for text, said in (("", "it is empty"), (" \n", "it is empty"), ("You are helpful.\n", "there is no template in it"),
                           ('{"a": 1}', "there is no template in it")):
            file.write_text(text)
            for command in ("chat", "serve"):
                result = run(command, self.model, "--chat-template-file", file, "--memory", "200M", stdin="")
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn(said, result.stderr)
                self.assertIn(str(file), result.stderr)

    def test_those_of_a_server_are_taken_by_plan(self):
        for flags in (["--metrics"], ["--slots"], ["--jinja"]):
            result = run("plan", self.model, "--memory", "200M", *flags)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"note: {flags[0]} changes nothing here: ", result.stderr)
        for flag in ("-np", "--parallel"):
            self.assertEqual(run_json("plan", self.model, "--memory", "200M", flag, 3, "-c", 64)["places"], 3)


class Quiet(TempDirCase):
    def setUp(self):
        super().setUp()
        self.model = bytes_model(self.dir / "tiny")

    def test_says_nothing_but_errors(self):
        words = ("generate", self.model, *TEXT, "--mlock", "--progress")
        loud, quiet = run(*words), run(*words, "--quiet")
        self.assertIn("note: ", loud.stderr)
        self.assertEqual((quiet.returncode, quiet.stdout, quiet.stderr), (0, loud.stdout, ""))
        wrong = run("generate", self.model, "--quiet", "--tokens", "5000")
        self.assertIn("outside the vocabulary", wrong.stderr)
        self.assertNotEqual(wrong.returncode, 0)

    def test_answers_to_what_is_asked_in_chat_come_all_the_same(self):
        file = self.dir / "template"
        file.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        shown = run("chat", self.model, "--quiet", "--chat-template-file", file, "-c", 100, stdin="/help\n").stderr
        self.assertIn("/regen", shown)
        self.assertNotIn("sampling:", shown)


class DumbTerminal(TempDirCase):
    def shown(self, words, typed="", **environment):
        """Returns what a program shows on a terminal, standard output and error alike."""
        main_end, terminal = pty.openpty()
        process = subprocess.Popen([CANOPY, *map(str, words)], stdin=terminal, stdout=terminal, stderr=terminal,
                                   env={**os.environ, **environment}, start_new_session=True)
        os.close(terminal)
        os.write(main_end, typed.encode())
        text = b""
        while True:
            try:
                part = os.read(main_end, 4096)
            except OSError:
                break
            if not part:
                break
            text += part
        os.close(main_end)
        self.assertEqual(process.wait(timeout=60), 0, text)
        return text.decode()

    def test_gets_no_escapes(self):
        model = bytes_model(self.dir / "tiny")
        file = self.dir / "template"
        file.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        for words, typed in ((["generate", model, *TEXT], ""),
                             (["chat", model, "--chat-template-file", file, "-n", 4, "-c", 100], "one\n/quit\n")):
            self.assertIn("\x1b", self.shown(words, typed, TERM="xterm"), words)
            self.assertNotIn("\x1b", self.shown(words, typed, TERM="dumb"), words)


class Version(unittest.TestCase):
    def test_has_three_names(self):
        expected = run("--version")
        self.assertRegex(expected.stdout, r"^canopy \d+\.\d+\.\d+")
        for words in (["-V"], ["version"]):
            result = run(*words)
            self.assertEqual((result.returncode, result.stdout), (0, expected.stdout))
        self.assertIn("canopy version", run("--help").stdout)


if __name__ == "__main__":
    main()
