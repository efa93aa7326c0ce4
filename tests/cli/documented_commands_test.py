"""The commands that documents show, in blocks and in lines: their flags exist, and those that the guides show in blocks run as
they stand, on tiny models.

A command that the machine of a test cannot run is marked above its block: <!-- only parsed: why -->. Pages of results say how
something was measured on models of their own; their commands are only parsed, too."""
import importlib.machinery
import importlib.util
import os
import re
import shlex
import signal
import subprocess
import time
import unittest

from support import CANOPY, REPO, TempDirCase, bytes_model, main

PAGES = sorted([*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md")])
PROGRAM = re.compile(r"(?:build/release/)?canopy ")
INLINE = re.compile(r"`([^`]+)`")
SCRIPT = re.compile(r"(?:[A-Z_]+=\S+ )*(?P<python>\S*python3? )?(?P<words>(?:bench|scripts|tests)/\S+.*)")


def manual():
    """scripts/manual as a module."""
    loader = importlib.machinery.SourceFileLoader("manual", str(REPO / "scripts" / "manual"))
    spec = importlib.util.spec_from_loader("manual", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def code_of(page):
    """(line number, line, whether it can run) of each line of a block of the page, and with False of what stands in a line."""
    runs = "results" not in page.relative_to(REPO).parts
    marked = fenced = False
    prose = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        prose.append("")
        if line.startswith("<!-- only parsed: "):
            marked = True
        elif line.startswith("```"):
            fenced = not fenced
            marked = marked and fenced
        elif line.startswith("    ") or fenced:
            yield number, line.strip(), runs and not marked
        elif line.strip():
            marked = False
            prose[-1] = line
    for number, words in spans_of(prose):
        yield number, words, False


def spans_of(lines):
    """(line number, words) of what stands between backticks, which may begin in one line and end in the next."""
    text = "\n".join(lines)
    for paragraph in re.finditer(r"(?:.+\n?)+", text):
        for found in INLINE.finditer(paragraph[0]):
            yield text.count("\n", 0, paragraph.start() + found.start()) + 1, " ".join(found[1].split())


def commands_of(page):
    """(line number, command, whether it can run) of each command of the program."""
    return [(number, line, runs) for number, line, runs in code_of(page) if PROGRAM.match(line)]


def words_of(command):
    """Returns the words before a pipe, a redirection or another command; brackets stand around what may be left out."""
    words = shlex.split(command.replace("[", " ").replace("]", " "), comments=True)
    cut = next((i for i, word in enumerate(words) if word in ("|", ">", "2>", "<") or word.endswith(";")), len(words))
    return words[:cut] + [word.rstrip(";") for word in words[cut:cut + 1] if word.endswith(";")]


def flags_of(words):
    return [word.split("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)]


def told_flags(words):
    """The help of the program of these words; its source, where a module that it needs is not installed."""
    flags = flags_of(words)
    told = subprocess.run([REPO / words[0], *(["--device", "cuda"] if "--device" in flags else []), "--help"], cwd=REPO,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    if "ModuleNotFoundError" in told.stderr:
        return (REPO / words[0]).read_text()
    return told.stdout


class Documented(TempDirCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pages = {tuple(page.words): page for page in manual().read_pages(CANOPY)}

    def words(self, command):
        return words_of(PROGRAM.sub("", command, count=1))

    def test_all_flags_exist(self):
        count = 0
        for page in PAGES:
            for number, command, _ in commands_of(page):
                words = self.words(command)
                where = f"{page.name}:{number}: {command}"
                if words[0] in ("--help", "--version"):
                    continue
                depth = 2 if tuple(words[:2]) in self.pages else 1
                self.assertIn(tuple(words[:depth]), self.pages, where)
                known = {name for flag in self.pages[tuple(words[:depth])].flags() for name in flag.names}
                known |= {"--version", "--help", "--max-tokens", "--temperature", "--host-memory"}
                for flag in flags_of(words[depth:]):
                    self.assertIn(flag, known, where)
                count += 1
        self.assertGreater(count, 40)

    def test_the_table_of_the_demo_has_its_rows_and_a_share_says_that_it_is_of_the_probe(self):
        rows = re.findall(r'^    \("(.+)", lambda r:', (REPO / "scripts/demo").read_text(), re.MULTILINE)
        shown = (REPO / "README.md").read_text()
        table = shown[shown.index("    seconds per token"):].split("\n\n")[0]
        self.assertEqual([line[4:].split("  ")[0] for line in table.splitlines()], rows)
        self.assertEqual([line for line in table.splitlines() if "%" in line and "of the probe" not in line], [])

    def test_scripts_are_there_and_know_their_flags(self):
        count = 0
        for page in PAGES:
            for number, line, _ in code_of(page):
                if not (found := SCRIPT.fullmatch(line)) or " " not in line:
                    continue
                words, where = words_of(found["words"]), f"{page.name}:{number}: {line}"
                script = REPO / words[0]
                self.assertTrue(script.is_file(), where)
                self.assertTrue(found["python"] or os.access(script, os.X_OK), f"{where}: is not executable")
                own, passed_on = (words[:words.index("--")], words[words.index("--"):]) if "--" in words else (words, [])
                known = {name for flag in self.pages["bench", "decode"].flags() for name in flag.names}
                self.assertLessEqual(set(flags_of(passed_on)), known, where)  # bench/methods.py calls it
                told = told_flags(own) if flags_of(own) else ""
                for flag in flags_of(own):
                    self.assertRegex(told, rf"(?<![\w-]){flag}\b", where)
                count += 1
        self.assertGreater(count, 30)

    def run_as_documented(self, words, where):
        if words[0] == "serve":
            return self.serve(words, where)
        result = subprocess.run([CANOPY, *words], cwd=self.dir, input="Hello\n", capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, 0, f"{where}: {result.stderr}")
        return None

    def serve(self, words, where):
        with subprocess.Popen([CANOPY, *words, "--port", "0"], cwd=self.dir, stderr=subprocess.PIPE, text=True) as server:
            until = time.monotonic() + 60
            lines = []
            while time.monotonic() < until:
                lines.append(server.stderr.readline())
                if "http://" in lines[-1] or not lines[-1]:
                    break
            server.send_signal(signal.SIGTERM)
            lines += server.stderr.readlines()
        self.assertTrue(any("http://" in line for line in lines), f"{where}: {lines}")
        self.assertEqual(server.returncode, 0, where)

    def test_those_of_the_guides_run(self):
        """One page after another, each in a fresh folder with models by the names that pages give them."""
        count = 0
        for page in PAGES:
            commands = [(number, command) for number, command, runs in commands_of(page) if runs]
            if not commands:
                continue
            for made in self.dir.iterdir():
                subprocess.run(["rm", "-r", made], check=True)
            for name in ("BIG", "SMALL", "MODEL", "DRAFT"):
                self.model(name)
            if any("MIXTURE" in command for _, command in commands):
                subprocess.run([CANOPY, "inflate", "-m", "BIG", "-o", "MIXTURE", "--experts", "4", "--active", "2"], check=True,
                               cwd=self.dir, stderr=subprocess.DEVNULL)
            for number, command in commands:
                self.run_as_documented(self.words(command), f"{page.name}:{number}: {command}")
                count += 1
        self.assertGreater(count, 10)

    def model(self, name):
        folder = bytes_model(self.dir / name)
        template = "{% for m in messages %}{{ m.content }}{% endfor %}"
        (folder / "chat_template.jinja").write_text(template)


if __name__ == "__main__":
    main()
