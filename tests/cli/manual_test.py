"""scripts/manual: pages, completions and the reference hold every flag that --help prints."""
import re
import shutil
import subprocess
import sys

from support import CANOPY, REPO, TempDirCase, main, run


class Manual(TempDirCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.commands = re.findall(r"^  (\w+) {2,}", run("--help").stdout, flags=re.MULTILINE)

    def setUp(self):
        super().setUp()
        subprocess.run([sys.executable, REPO / "scripts" / "manual", CANOPY, self.dir], check=True)

    def flags(self, *words):
        return re.findall(r"^  (?:-\w \[ )?(--[\w-]+)", run(*words, "--help").stdout, flags=re.MULTILINE)

    def test_each_command_has_a_page_with_all_its_flags(self):
        self.assertIn("generate", self.commands)
        groups = [("bench", word) for word in ("decode", "link", "offload")]
        groups += [("calibrate", word) for word in ("acceptance", "hardware")]
        for words in [(), *((command,) for command in self.commands), *groups]:
            page = (self.dir / "man" / ("-".join(["canopy", *words]) + ".1")).read_text()
            for flag in self.flags(*words):
                self.assertIn("\\fB" + flag.replace("-", "\\-") + "\\fR", page, words)
        self.assertEqual(len(list((self.dir / "man").iterdir())), 1 + len(self.commands) + len(groups))

    def test_a_flag_of_one_dash_and_several_letters_is_a_name_not_a_text(self):
        page = (self.dir / "man" / "canopy-generate.1").read_text()
        self.assertIn("\\fB\\-md\\fR, \\fB\\-\\-model\\-draft\\fR \\fIPATH|SOURCE\\fR\nthe draft model", page)

    def test_pages_are_sound(self):
        if shutil.which("man") is None:
            self.skipTest("needs man")
        for page in (self.dir / "man").iterdir():
            result = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True, check=True)
            self.assertEqual(result.stderr, "", page.name)

    def complete(self, *words):
        """Returns the words that bash offers after these."""
        script = self.dir / "completions" / "canopy.bash"
        ask = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _canopy 2>/dev/null; printf "%s\\n" "${COMPREPLY[@]}"'
        result = subprocess.run(["bash", "-c", ask, script, "canopy", *words], capture_output=True, text=True, check=True,
                                cwd=self.dir)
        return result.stdout.split()

    def test_bash_offers_commands_flags_and_files(self):
        self.assertEqual(self.complete(""), self.commands)
        self.assertEqual(self.complete("gen"), ["generate"])
        self.assertEqual(self.complete("bench", "dec"), ["decode"])
        self.assertEqual(self.complete("generate", "--top"), ["--top-k", "--top-p"])
        self.assertEqual(self.complete("bench", "decode", "--exam"), ["--examples"])
        self.assertEqual(self.complete("generate", "-md", "comm"), ["commands.md"])
        self.assertEqual(self.complete("inspect", "comm"), ["commands.md"])
        self.assertEqual(self.complete("generate", "--temp", ""), [])  # a number

    def test_fish_and_zsh_can_read_theirs(self):
        for shell, name in (("zsh", "_canopy"), ("fish", "canopy.fish")):
            if shutil.which(shell) is None:
                print(f"{shell} is not installed")
                continue
            subprocess.run([shell, "-n", self.dir / "completions" / name], check=True)
        if shutil.which("fish"):
            ask = f"source {self.dir}/completions/canopy.fish; complete -C 'canopy bench de'"
            offered = subprocess.run(["fish", "-c", ask], capture_output=True, text=True, check=True).stdout
            self.assertIn("decode\tall methods of speculation", offered)

    def test_the_reference_has_all_flags(self):
        reference = (self.dir / "commands.md").read_text()
        for command in self.commands:
            part = reference.split(f"\n## canopy {command}\n")[1].split("\n## ")[0]
            for flag in self.flags(command):
                self.assertIn(flag, part, command)

    def test_a_page_that_cannot_be_read_is_named(self):
        odd = self.dir / "odd"
        odd.write_text("#!/bin/sh\nprintf 'usage: odd\\n\\nText.\\n\\n  -x\\nnobody knows\\n'\n")
        odd.chmod(0o755)
        result = subprocess.run([sys.executable, REPO / "scripts" / "manual", odd, self.dir], capture_output=True, text=True)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("nobody knows", result.stderr)


class Version(TempDirCase):
    def test_names_the_commit_of_sources_without_their_history_where_it_is_given(self):
        for commit in "0123456789ab", "":
            out = self.dir / "build_description.inc"
            subprocess.run(["cmake", f"-DROOT={self.dir}", "-DCOMPILER=GNU 12", "-DDEVICES=cpu", f"-DCOMMIT={commit}", f"-DOUT={out}",
                            "-P", REPO / "cmake" / "describe_build.cmake"], check=True)
            self.assertIn(f'kCommit = "{commit}";', out.read_text())

    def test_says_what_was_built(self):
        lines = run("--version").stdout.splitlines()
        self.assertRegex(lines[0], r"^canopy \d+\.\d+\.\d+( \(commit [0-9a-f]+(-dirty)?\))?$")
        self.assertRegex(lines[1], r"^built with: \w+ [\d.]+, \w+")
        self.assertRegex(lines[2], r"^devices: cpu(, cuda)?$")


if __name__ == "__main__":
    main()
