"""The example of docs/library.md, built against an installed tree, writes what the command writes."""
import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from support import REPO, TempDirCase, bytes_model, main, run_json

BUILD, SANITIZE = os.environ["CANOPY_BUILD"], os.environ.get("CANOPY_SANITIZE", "")
DOCUMENT = (REPO / "docs" / "library.md").read_text()
PROMPTS = "Once upon a time", "The capital of France is"
MOST_LINES = 40


def example(name):
    return re.search(rf"<!-- example: {re.escape(name)} -->\n```\w+\n(.*?)^```$", DOCUMENT, re.S | re.M)[1]


def checked(*words, **options):
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300, **options)
    if result.returncode != 0:
        raise AssertionError(f"{words}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
    return result


class Library(TempDirCase):
    def setUp(self):
        super().setUp()
        self.prefix = self.dir / "prefix"
        checked("cmake", "--install", BUILD, "--prefix", self.prefix)
        self.source = self.dir / "source"
        self.source.mkdir()
        for name in ("library.cc", "CMakeLists.txt"):
            (self.source / name).write_text(example(name))

    def flags(self):
        return [f"-fsanitize={SANITIZE}"] if SANITIZE else []

    def library(self):
        return next(self.prefix.glob("lib*/**/libcanopy.so"))

    def writes_what_the_command_writes(self, program, **options):
        model = bytes_model(self.dir / "model") if not (self.dir / "model").exists() else self.dir / "model"
        done = checked(program, model, **options)
        plan, second = done.stderr.split(" predicted\n")
        self.assertIn("2 texts a sweep", plan)
        for prompt, text in zip(PROMPTS, (done.stdout, second)):
            expected = run_json("generate", "-m", model, "-p", prompt, "-n", 32)
            self.assertGreater(len(expected["tokens"]), 10)
            self.assertEqual(text, expected["text"] + "\n", prompt)
        missing = subprocess.run([str(program), str(self.dir / "nothing")], capture_output=True, text=True, **options)
        self.assertEqual(missing.returncode, 1)
        self.assertIn(str(self.dir / "nothing"), missing.stderr)

    def test_the_example_is_short_and_runs_with_cmake_and_with_pkg_config(self):
        self.assertLessEqual(len(example("library.cc").splitlines()), MOST_LINES)
        checked("cmake", "-S", self.source, "-B", self.dir / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                f"-DCMAKE_CXX_FLAGS={' '.join(['-Wall -Wextra -Werror', *self.flags()])}")
        checked("cmake", "--build", self.dir / "build")
        self.writes_what_the_command_writes(self.dir / "build" / "library")

        where = {**os.environ, "PKG_CONFIG_PATH": str(self.library().parent / "pkgconfig")}
        line = next(line for line in (REPO / "docs" / "library.md").read_text().splitlines() if line.startswith("    g++ library.cc "))
        checked("sh", "-c", " ".join([line, *self.flags()]), env=where, cwd=self.source)
        where.pop("LD_LIBRARY_PATH", None)
        self.writes_what_the_command_writes(self.source / "library", env=where)

    def test_its_headers_need_the_standard_library_alone_and_its_symbols_are_theirs(self):
        for header in (self.prefix / "include" / "canopy").iterdir():
            for included in re.findall(r'#include "(.*)"', header.read_text()):
                self.assertTrue((header.parent / included).exists(), included)
            for included in re.findall(r"#include <(.*)>", header.read_text()):
                self.assertNotIn("/", included)
        symbols = checked("nm", "--demangle", "--dynamic", "--defined-only", self.library()).stdout.splitlines()
        names = [line.split(maxsplit=2)[2] for line in symbols]
        self.assertIn("canopy::api::Session::run(std::stop_token)", names)
        ours = re.compile(r"((typeinfo|typeinfo name|vtable) for )?canopy::(api::|Error|BudgetError|Stopped)")
        self.assertEqual([name for name in names if not ours.match(name)], [])


if __name__ == "__main__":
    main()
