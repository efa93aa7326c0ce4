"""The commands that documents show: their flags exist, and those of the guides run as they stand, on tiny models.

A command that the machine of a test cannot run is marked above its block: <!-- only parsed: why -->. Pages of results tell how
something was measured on models of their own; their commands are only parsed, too."""
import importlib.machinery
import importlib.util
import re
import shlex
import signal
import subprocess
import time
import unittest

from support import CANOPY, REPO, TempDirCase, bytes_model, main

PAGES = sorted([*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md")])
PROGRAM = re.compile(r"(?:build/release/)?canopy ")


def manual():
    """scripts/manual as a module."""
    loader = importlib.machinery.SourceFileLoader("manual", str(REPO / "scripts" / "manual"))
    spec = importlib.util.spec_from_loader("manual", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def commands_of(page):
    """(line number, command, whether it can run) of each command of the program in a block of the page."""
    runs = "results" not in page.relative_to(REPO).parts
    marked = fenced = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("<!-- only parsed: "):
            marked = True
        elif line.startswith("```"):
            fenced = not fenced
            marked = marked and fenced
        elif line.startswith("    ") or fenced:
            if PROGRAM.match(line.strip()):
                yield number, line.strip(), runs and not marked
        elif line.strip() and not fenced:
            marked = False


class Documented(TempDirCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pages = {tuple(page.words): page for page in manual().read_pages(CANOPY)}

    def words(self, command):
        words = shlex.split(PROGRAM.sub("", command, count=1), comments=True)
        cut = next((i for i, word in enumerate(words) if word in ("|", ">", "2>", "<")), len(words))
        return words[:cut]

    def test_all_flags_exist(self):
        count = 0
        for page in PAGES:
            for number, command, _ in commands_of(page):
                words = self.words(command)
                where = f"{page.name}:{number}: {command}"
                depth = 2 if tuple(words[:2]) in self.pages else 1
                self.assertIn(tuple(words[:depth]), self.pages, where)
                known = {name for flag in self.pages[tuple(words[:depth])].flags() for name in flag.names}
                known |= {"--version", "--help", "--max-tokens", "--temperature", "--host-memory"}
                for word in words[depth:]:
                    if re.match(r"--?[a-zA-Z]", word):
                        self.assertIn(word.split("=")[0], known, where)
                count += 1
        self.assertGreater(count, 15)

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
        self.assertIn(server.returncode, (0, 143), where)

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
