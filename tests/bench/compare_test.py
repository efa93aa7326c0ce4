"""bench/compare/compare.py: what it runs, with which settings, and on what it refuses to run."""
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/compare"))
import compare  # noqa: E402


def arguments(**changed):
    usual = {"prompts": compare.HERE / "prompts.jsonl", "systems": None, "tokens": 96, "rounds": 1, "temp": [0], "limit": 15,
             "settings": {}, "quick": False, "full": False, "mixture": False}
    return types.SimpleNamespace(**{**usual, **changed})


class CompareTest(unittest.TestCase):
    def test_settings_are_tried_first_and_the_fastest_are_measured(self):
        done, measured = [], {}
        for system, _, work in compare.plan(arguments(), done):
            if work["group"] == "tuning":
                self.assertEqual(measured, {})
                seconds = 1 if work["settings"] == compare.TRIED[system][-1] else 2
                done.append({"group": "tuning", "system": system, "failed": None, "asked": work["settings"], "seconds_per_token": seconds})
            else:
                measured[system] = work["settings"]
        self.assertEqual(set(measured), set(compare.SYSTEMS))
        for system, settings in measured.items():
            self.assertEqual(settings, compare.TRIED.get(system, [{}])[-1])

    def test_settings_that_failed_are_not_taken(self):
        tried = [{"group": "tuning", "system": "airllm", "failed": None, "asked": {}, "seconds_per_token": 9},
                 {"group": "tuning", "system": "airllm", "failed": "killed", "asked": {"prefetching": False}}]
        self.assertEqual(compare.best_settings(tried, "airllm"), {})
        self.assertEqual(compare.best_settings([], "airllm"), {})

    def test_what_is_tried_is_not_tried_on_what_is_measured(self):
        measured = {line for line in (compare.HERE / "prompts.jsonl").read_text().splitlines()}
        for prompt in compare.TUNING_PROMPTS:
            text = prompt.get("question") or prompt["text"]
            self.assertFalse([line for line in measured if text in line])

    def test_settings_that_are_given_are_not_tuned(self):
        runs = list(compare.plan(arguments(settings={"resident": 0.1}, systems=["accelerate"]), []))
        self.assertEqual([(work["group"], work["settings"]) for _, _, work in runs], [("headline", {"resident": 0.1})])

    def test_a_mixture_is_measured_in_both_budgets_and_nothing_is_tuned(self):
        runs = list(compare.plan(arguments(mixture=True), []))
        self.assertEqual({work["group"] for _, _, work in runs}, {"mixture"})
        self.assertEqual({work["memory_bytes"] for _, _, work in runs}, set(compare.MIXTURE_MEMORY))
        self.assertEqual([system for system, _, _ in runs], 2 * compare.MIXTURE_SYSTEMS)

    def test_a_tree_with_changes_is_refused_and_named(self):
        with tempfile.TemporaryDirectory() as folder:
            git = lambda *words: subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True,
                                                capture_output=True)
            git("init")
            git("commit", "--allow-empty", "-m", "empty")
            before, compare.REPO = compare.REPO, pathlib.Path(folder)
            self.addCleanup(setattr, compare, "REPO", before)
            self.assertRegex(compare.clean_commit(), "^[0-9a-f]+$")
            (compare.REPO / "new.cc").write_text("")
            with self.assertRaisesRegex(SystemExit, "new.cc"):
                compare.clean_commit()


if __name__ == "__main__":
    unittest.main(verbosity=2)
