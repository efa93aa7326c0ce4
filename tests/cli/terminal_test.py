"""The text on a terminal is the text, at every width; the progress line leaves no trace. The terminal is tmux's."""
import itertools
import json
import os
import random
import shlex
import shutil
import subprocess
import time
import unittest

from support import CANOPY, TempDirCase, main, run, tiny_model

DRIVER = os.environ["CANOPY_PROGRESS_LINE_DRIVER"]
SEED = random.randrange(2**32)
ENGLISH = "It is a fallacy, where one thing follows another, to think that it follows from it. "
MIXED = "日本語の文字は二桁を取る。é as one and é as two: e\u0301 o\u0308 ñ\u0303\u0301 한국어 naïve 🙂 x"


def squeezed(text):
    """Without what a terminal may show differently: where wide characters leave a column free, and tabs."""
    return "".join(text.split())


@unittest.skipUnless(shutil.which("tmux"), "needs tmux; scripts/setup installs it")
class Terminal(TempDirCase):
    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        self.addCleanup(self.tmux, "kill-server", check=False)
        self.environment = {**os.environ, "TMUX_TMPDIR": str(self.dir), "LC_ALL": "C.UTF-8"}
        self.environment.pop("TMUX", None)

    def tmux(self, *words, check=True):
        command = ["tmux", "-u", "-f", "/dev/null", *map(str, words)]
        return subprocess.run(command, env=self.environment, check=check, capture_output=True, text=True).stdout

    def open(self, terminals):
        """Terminals of 24 lines by their names: {name: (columns, command)}."""
        commands = [["new-session", "-d", "-s", name, "-x", columns, "-y", 24, shlex.join(map(str, command)), ";"]
                    for name, (columns, command) in terminals.items()]
        for first in range(0, len(commands), 32):  # a message to tmux holds 16 KiB
            self.tmux(*itertools.chain(*commands[first:first + 32]))

    def play(self, script, *widths):
        """The script in a terminal of each width, named by it."""
        file = self.dir / "script.json"
        file.write_text(json.dumps(script))
        self.open({f"at{width}": (width, [DRIVER, file]) for width in widths})

    def screen(self, name, until):
        """All that was ever shown, once `until` is; lines that were wrapped are whole."""
        deadline = time.monotonic() + 60
        while until not in (shown := self.tmux("capture-pane", "-p", "-J", "-S", "-", "-t", f"{name}:")):
            self.assertLess(time.monotonic(), deadline, f"{name} (seed {SEED}) never showed {until!r}:\n{shown}")
            time.sleep(0.01)
        return "\n".join(line.rstrip() for line in shown.split("\n"))

    def pieces(self, text):
        while text:
            length = self.random.randint(1, 9)
            piece, text = text[:length], text[length:]
            yield piece

    def steps(self, text):
        """Writes the text in pieces, as tokens come, with a progress line in between."""
        script = [["text"]]
        for number, piece in enumerate(self.pieces(text)):
            script += [["write", piece], ["show", f"step {number}: " + "of progress " * 20]]
        return script

    def test_shows_the_text_at_every_width(self):
        english = ENGLISH * 8
        text = english + "\n\nOne\ttwo\tthree. " + ENGLISH + "\n" + "*\tItem\n" * 3 + MIXED * 6 + "\n\nEnd."
        widths = range(20, 201)
        self.play(self.steps(text) + [["write", "\n"], ["end"]], *widths)
        for width in widths:
            with self.subTest(f"{width} columns, seed {SEED}"):
                found = self.screen(f"at{width}", "\n@").rpartition("\nstep ")[0]
                self.assertEqual(found.split("\n")[0], english.rstrip())
                self.assertEqual(squeezed(found), squeezed(text))

    def test_a_generated_text_stands_alone_on_the_screen(self):
        words = ["generate", "-m", tiny_model(self.dir), "--tokens", "1,2,3", "-n", 150, "--ignore-eos", "--seed", 0,
                 "--temp", 1]
        text = run(*words).stdout
        command = shlex.join([CANOPY, *map(str, words)]) + "; echo @; exec sleep 1000"
        widths = range(20, 201, 12)
        self.open({f"at{width}": (width, ["sh", "-c", command]) for width in widths})
        for width in widths:
            with self.subTest(f"{width} columns"):
                found = self.screen(f"at{width}", "\n@").rpartition("\nstep ")[0]
                self.assertEqual(squeezed(found), squeezed(text))

    def test_a_resized_terminal_keeps_the_text_and_no_old_progress(self):
        widths = [100, 61, 130, 45, 46, 200, 20, 80]
        parts = [ENGLISH * self.random.randint(1, 3) for _ in widths]
        script, progress = [["text"], ["write", "above\n" * 30]], "of progress " * 20
        for width, part in zip(widths, parts):
            script += [["columns", width], *self.steps(part)[1:], ["show", f"mark{width}: " + progress]]
        self.play(script + [["write", "\n"], ["end"]], widths[0])
        name = f"at{widths[0]}"
        for width, following in zip(widths, widths[1:]):
            shown = self.screen(name, f"mark{width}:")
            self.assertEqual(shown.count("of progress"), shown[shown.index(f"mark{width}:"):].count("of progress"))
            self.tmux("resize-window", "-t", f"{name}:", "-x", following)
        shown = self.screen(name, "\n@")
        text, progress, _ = shown.rpartition("\nmark")
        self.assertEqual(squeezed(text), squeezed("above" * 30 + "".join(parts)))

    def test_a_resized_line_without_text_leaves_nothing(self):
        progress = "of progress " * 20
        script = [["write", "above\n" * 3], ["show", "first " + progress], ["columns", 50], ["show", "second " + progress], ["columns", 90],
                  ["show", "third " + progress], ["end"]]
        self.play(script, 120)
        for shown, columns in (("first", 50), ("second", 90)):
            self.screen("at120", shown)
            self.tmux("resize-window", "-t", "at120:", "-x", columns)
        shown = self.screen("at120", "\n@")
        self.assertEqual([line.split()[0] for line in shown.split("\n") if line], ["above"] * 3 + ["third", "@"])


if __name__ == "__main__":
    main()
