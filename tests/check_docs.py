#!/usr/bin/env python3
"""Documents and comments name only files and symbols that exist, comments keep to the house's words, and no file is kept by mistake.
Usage: check_docs.py ROOT"""
import ast
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
CODE = (".h", ".cc", ".cu", ".cuh", ".py")
# Where a path may begin: at the root, or in one of these, as C++ includes and the shell have it.
BASES = ("", "src", "tests", "docs", "docs/results", "include")
# The files next to the rooms; all else there was left by a command and added unseen.
AT_ROOT = {".clang-format", ".clang-tidy", ".dockerignore", ".gitignore", "CHANGELOG.md", "CMakeLists.txt", "CMakePresets.json",
           "CONTRIBUTING.md", "Containerfile", "LICENSE", "README.md", "SECURITY.md", "THIRD_PARTY.md", "mkdocs.yml",
           "pyproject.toml"}
OTHERS = ("highway.h", "hwy/", "build/")  # of libraries, and made
PATH = re.compile(r"(?:[\w.-]+/)*[\w-]+\.(?:h|cc|cu|cuh|py|md|txt|json|in|map)\b")
# A path without its extension, or of a folder: only those that begin with a room are surely paths.
IN_ROOM = re.compile(r"(?<![\w/.-])(?:src|tests|kernels|offload|planner|bench|scripts|docs)/[\w./-]*\w")
SYMBOL = re.compile(r"^(?:[a-z_]\w*|[A-Z]\w+)(?:::~?\w+)*(?:\(\))?$")

# ---- The house's words: no comment of C++ or docstring begins with these, or has one that has a plainer one.
OPENER = re.compile(r"\W*(What|How|Which|Whether|Where|Who|Those|Of|For|From|About)\b")
PLAINER = re.compile(r"\b(behind|beside|tells?|told|taught|likewise|so many(?! that))\b", re.IGNORECASE)
INSTEAD = "begin with a verb or a noun; write after, next to, besides, reports, given, or the name of the number"
QUOTED = re.compile(r"`[^`]*`")
# Strings first, so that a comment's marks inside of one are none; then numbers, whose marks are no quotes.
CPP = re.compile(r'''(?:u8|[uUL])?R"(?P<d>[^()\\\s]{0,16})\((?s:.*?)\)(?P=d)"|"(?:\\.|[^"\\\n])*"|\b\d(?:[\w.]|'(?=\w))*'''
                 r"""|'(?:\\.|[^'\\\n])*'|(?P<comment>//[^\n]*|/\*(?s:.*?)\*/)""")


def cpp_comments(text):
    """Yields the line and the words of each block of comments: lines of // that stand in one column, one after the other, are one."""
    block, last, column = None, 0, 0
    for match in CPP.finditer(text):
        if match["comment"]:
            line, at = text.count("\n", 0, match.start()) + 1, match.start() - text.rfind("\n", 0, match.start()) - 1
            words = re.sub(r"^///?<?|^/\*+|\*/$", "", match["comment"]).strip()
            alone = not text[match.start() - at:match.start()].strip()
            if block and alone and line == last + 1 and at == column:
                block = (block[0], f"{block[1]} {words}")
            else:
                if block:
                    yield block
                block = (line, words)
            last, column = line + match["comment"].count("\n"), at
    if block:
        yield block


def docstrings(text):
    """Yields the line and the words of each docstring."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            yield node.body[0].lineno, ast.get_docstring(node)


def check_words(code):
    """Returns what is wrong with the words of comments."""
    bad = []
    for file in code:
        path = file.relative_to(root)
        comments = docstrings if file.suffix == ".py" else cpp_comments
        for line, comment in comments(file.read_text()):
            if opener := OPENER.match(comment):
                bad.append(f"{path}:{line}: a comment begins with {opener[1]}: {INSTEAD}")
            bad += [f"{path}:{line}: {word} in a comment: {INSTEAD}" for word in PLAINER.findall(QUOTED.sub("", comment))]
    return bad


def tracked():
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=True).stdout
    return [root / line for line in listed.splitlines()]


def path_exists(path, beside):
    return any((root / base / path).exists() for base in BASES) or (beside / path).exists()


def missing_in_room(text):
    return [path for path in IN_ROOM.findall(text)
            if not (root / path).exists() and not any((root / path).parent.glob(f"{(root / path).name}*"))]


def methods():
    """Returns what --spec takes: the names in the table of methods."""
    return re.findall(r'Method\{SpeculationMethod::\w+,\s*"([\w-]+)"', (root / "src/speculation/method.h").read_text())


def main():
    files = tracked()
    names = {file.name for file in files}
    code = [file for file in files if file.suffix in CODE and file.is_file()]
    words = set()
    for file in code:
        words.update(re.findall(r"\w+", file.read_text()))
    bad = [f"{file.name} is no file of the project: remove it, or name it in {pathlib.Path(__file__).name}"
           for file in files if file.parent == root and file.name not in AT_ROOT]
    named = set(re.findall(r"[\w-]+", (root / "docs/generate.md").read_text()))
    bad += [f"docs/generate.md: --spec {method} is not named" for method in methods() if method not in named]
    bad += check_words(code)
    words_of_readme = len((root / "README.md").read_text().split())
    if words_of_readme > 900:
        bad.append(f"README.md: {words_of_readme} words, more than 900: move some to a page of docs")
    for file in files:
        if file.suffix == ".md":
            for number, line in enumerate(file.read_text().splitlines(), 1):
                for quoted in re.findall(r"`([^`]+)`", line):
                    for path in PATH.findall(quoted):
                        # One of a model, such as config.json, or of a user's, is not ours: those have no folder.
                        if "/" in path and path.split("/")[0] in ("src", "tests", "kernels", "offload", "planner", "bench",
                                                                  "docs", "include", "scripts", "checkpoint", "convert"):
                            if not path_exists(path, file.parent):
                                bad.append(f"{file.relative_to(root)}:{number}: there is no {path}")
                    if SYMBOL.match(quoted) and ("::" in quoted or "()" in quoted):
                        for part in re.findall(r"\w+", quoted):
                            if part not in words and part != "std":
                                bad.append(f"{file.relative_to(root)}:{number}: {quoted}: there is no {part}")
        elif file.suffix in (".h", ".cc", ".cu", ".cuh"):
            for number, line in enumerate(file.read_text().splitlines(), 1):
                comment = line.partition("//")[2]
                bad += [f"{file.relative_to(root)}:{number}: there is no {path}" for path in missing_in_room(comment)]
                for path in PATH.findall(comment):
                    if not path.startswith(OTHERS) and path.endswith((".h", ".cc", ".cu", ".cuh", ".py", ".md")):
                        known = path_exists(path, file.parent) if "/" in path else path in names
                        if not known:
                            bad.append(f"{file.relative_to(root)}:{number}: there is no {path}")
    print("\n".join(bad) if bad else "docs: ok")
    return len(bad) > 0


sys.exit(main())
