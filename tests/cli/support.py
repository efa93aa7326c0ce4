"""Parts that the command-line tests share: the program, models to run it on, and a way to run it."""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CANOPY = os.environ["CANOPY"]
REPO = pathlib.Path(__file__).resolve().parents[2]
DATA = REPO / "tests" / "data"
PROFILE = DATA / "engine" / "profile.json"  # of a machine that was measured once: plans are the same everywhere
SMOLLM2 = pathlib.Path(os.environ.get("CANOPY_SMOLLM2", REPO / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"))
# Measurements of these models on this machine are made once, and not among the user's own.
os.environ["XDG_CACHE_HOME"] = str(pathlib.Path(tempfile.gettempdir()) / f"canopy_test_cache_{os.getuid()}")
TINY = DATA / "model" / "llama2"
# A byte-level tokenizer of as many tokens as that model has, the least that all commands take.
TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True},
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
              "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "merges": [],
              "vocab": {chr(c): i for i, c in enumerate([0x120, *range(0x21, 0x7f), 0x10a, 0x109])}}}
SANITIZED = bool(os.environ.get("CANOPY_SANITIZE"))  # the program's memory and time are not its own alone
counts_own_memory = unittest.skipIf(SANITIZED, "the sanitizer's memory is beside the program's own")
PATIENCE = 10 if SANITIZED else 1  # times the seconds that tests wait for the program before they fail
SKIPPED = 77  # CTest shows a program that returns this as skipped


def command(*words):
    """The words with their program in front: "collect" is a program of its own."""
    return [os.environ["CANOPY_COLLECT"], *map(str, words[1:])] if words[:1] == ("collect",) else [CANOPY, *map(str, words)]


def run(*words, stdin="", timeout=300 * PATIENCE, program=None, **options):
    return subprocess.run([program, *map(str, words)] if program else command(*words), input=stdin, capture_output=True, text=True,
                          timeout=timeout, **options)


def bytes_model(to):
    """A copy of a random model of two layers, with a tokenizer."""
    shutil.copytree(TINY, to)
    (to / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return to


def run_json(*words, **options):
    result = run(*words, "--json", **options)
    if result.returncode != 0:
        raise AssertionError(f"exit code {result.returncode}: {result.stderr}")
    return json.loads(result.stdout)


def tiny_model(folder):
    """A directory in there with a model that runs in no time. Its text is noise; prompts are ids below 97."""
    model = folder / "tiny"
    shutil.copytree(DATA / "model" / "llama3", model)
    shutil.copy(DATA / "text" / "llama3" / "tokenizer.json", model)
    return model


@contextlib.contextmanager
def memory_cgroup(limit):
    """A cgroup (v1 or v2) with this limit: yields its folder, and its processes' peak as a function. None if refused."""
    v1 = pathlib.Path("/sys/fs/cgroup/memory")
    root, limit_file, peak_file = (v1, "memory.limit_in_bytes", "memory.max_usage_in_bytes") if v1.exists() else (
        pathlib.Path("/sys/fs/cgroup"), "memory.max", "memory.peak")
    group = root / f"canopy_test_{os.getpid()}"
    try:
        group.mkdir()
        (group / limit_file).write_text(str(limit))
        (group / peak_file).read_text()
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        yield None
        return
    try:
        yield group, lambda: int((group / peak_file).read_text())
    finally:
        group.rmdir()


def machine_with_a_gpu_that_counts(test):
    """An environment in which NVML is that of tests/machine/fake_nvml.cc: 2 J at each reading."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="canopy_test_"))
    test.addCleanup(shutil.rmtree, folder, ignore_errors=True)
    shutil.copy(os.environ["CANOPY_FAKE_NVML"], folder / "libnvidia-ml.so.1")
    return {**os.environ, "LD_LIBRARY_PATH": str(folder)}


class TempDirCase(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="canopy_test_"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)


def main():
    """Runs the tests of the calling program; all of them skipped counts as skipped."""
    result = unittest.main(exit=False, verbosity=2).result
    if result.wasSuccessful() and result.testsRun == len(result.skipped):
        sys.exit(SKIPPED)
    sys.exit(not result.wasSuccessful())
