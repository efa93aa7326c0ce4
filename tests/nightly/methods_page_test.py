"""bench/report of what canopy bench decode prints: exact methods above a line, the others below it with what they change."""
import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import report_test

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests/cli"))
RUNS = REPO / "docs/results/compare/2026-11-22-xeon-avx512.jsonl"


def row(method, tokens, changes=None, **other):
    return {"method": method, "exact": changes is None, "changes": changes, "tree_size": 12, "tokens_per_step": tokens,
            "tokens_per_step_half_width": 0.25, "seconds_per_token": 0.5, "seconds_per_step": 1.2,
            "draft_seconds": 0.15, "compute_seconds": 0.8, "joules_per_token": None, "bytes_per_token": 3e9,
            "rows_per_token": 2.5, "draft_rows_per_token": 1.5, "drafted_share": 0.7, "perplexity": 1.7, "equal_to_plain": 1.0,
            **other}


RESULT = {"target": "T & T", "draft": "D", "sampling": "temperature 0", "prompts": 8, "new_tokens": 64, "energy_missing": ["no counter"],
          "rows": [row("none", 1, tokens_per_step_half_width=0.0), row("mtad", 6, "threshold 0.1: joint", equal_to_plain=0.044),
                   row("chain", 5), row("gsd", 5.5), row("bild", 2, "rollback 2: nats")]}


class MethodsPageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def report(self, *results, code=0):
        files = []
        for i, result in enumerate(results):
            files.append(result if isinstance(result, pathlib.Path) else self.folder / f"{i}.json")
            if not isinstance(result, pathlib.Path):
                files[-1].write_text(result if isinstance(result, str) else json.dumps(result, indent=2))
        done = subprocess.run([sys.executable, REPO / "bench/report", *files, "-o", self.folder / "out"], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        if code:
            return done.stderr
        return (self.folder / "out/index.html").read_text()

    def lines(self):
        """The cells of table.md, its head first."""
        text = (self.folder / "out/table.md").read_text()
        return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]

    def test_exact_methods_stand_above_the_line_and_each_part_has_the_most_tokens_first(self):
        page = self.report(RESULT)
        self.assertEqual([line[0] for line in self.lines()], ["", "gsd", "chain", "none", "not exact:", "~mtad", "~bild"])
        self.assertEqual(page.count('<tr class="line">'), 1)
        self.assertIn("~mtad is not exact: threshold 0.1: joint.", page)
        self.assertIn("~bild is not exact: rollback 2: nats.", page)
        drawn = re.findall("<!-- (~?[a-z]+), 12 -->", page)  # the text of the picture, which is outlines
        self.assertEqual(drawn, ["gsd", "chain", "none", "~mtad", "~bild"])

    def test_without_inexact_methods_there_is_no_line(self):
        self.assertNotIn('<tr class="line">', self.report({**RESULT, "rows": [r for r in RESULT["rows"] if r["exact"]]}))
        self.assertEqual(len(self.lines()), 4)

    def test_cells_hold_the_figures_and_an_interval_only_where_there_is_one(self):
        self.report(RESULT)
        head, gsd, _, none, *_ = self.lines()
        self.assertEqual(dict(zip(head, gsd)), {
            "": "gsd", "nodes": "12", "tokens per step": "5.50 (\u00b1 0.25)",
            "target rows per token": "2.5", "draft rows per token": "1.5",
            "drafted share": "0.700", "read per token, GB": "3.00", "s per token": "0.5",
            "ms per step": "150 + 800 + 250", "J per token": "-", "perplexity": "1.70",
            "equal": "1.000"})
        self.assertEqual(none[head.index("tokens per step")], "1.00")

    def test_columns_of_what_was_not_measured_are_left_out_but_for_energy_which_says_why(self):
        result = copy.deepcopy(RESULT)
        for r in result["rows"]:
            r.update(perplexity=None, equal_to_plain=None)
        page = self.report(result)
        for absent in ("perplexity", "equal", "ROUGE-1"):
            self.assertNotIn(absent, self.lines()[0])
        self.assertNotIn("ROUGE", page)
        self.assertIn("No energy: no counter.", page)
        result["rows"][2]["joules_per_token"] = 4.25
        self.assertNotIn("No energy", self.report(result))
        self.assertIn("4.2", [line[-1] for line in self.lines()])

    def test_a_result_that_was_kept_without_its_times_has_no_columns_of_them(self):
        times = dict.fromkeys(("seconds_per_token", "seconds_per_step", "draft_seconds", "compute_seconds"))
        self.report({**RESULT, "rows": [{**r, **times} for r in RESULT["rows"]]})
        head, gsd, *_ = self.lines()
        self.assertFalse({"s per token", "ms per step"} & set(head))
        self.assertEqual(gsd[head.index("tokens per step")], "5.50 (\u00b1 0.25)")

    def test_rouge_stands_beside_the_others_where_prompts_have_references(self):
        rouge = {"rouge_1": 0.25, "rouge_2": 0.09, "rouge_l": 0.19}
        page = self.report({**RESULT, "references": 3, "rows": [{**r, **rouge} for r in RESULT["rows"]]})
        head, first, *_ = self.lines()
        self.assertEqual((head[-3:], first[-3:]), (["ROUGE-1", "ROUGE-2", "ROUGE-L"], ["0.250", "0.090", "0.190"]))
        self.assertIn("8 prompts, 3 with a reference,", page)
        self.assertIn("<dt>ROUGE-1, -2, -L</dt>", page)

    def test_results_of_several_temperatures_have_a_part_each_also_beside_the_runs_of_other_systems(self):
        page = self.report(RESULT, {**RESULT, "sampling": "temperature 0.7"}, RUNS)
        for heading in ("<h3>Temperature 0</h3>", "<h3>Temperature 0.7</h3>", "<h1>Seconds per token of a model that does not fit</h1>"):
            self.assertEqual(page.count(heading), 1, heading)
        self.assertIn("T &amp; T with D as its draft", page)

    def test_nothing_but_what_scrolls_goes_beyond_a_phone_or_a_desk(self):
        page = self.report(RESULT)
        for width, scrolling in ((390, 1), (1280, 0)):
            seen = report_test.ask(self.folder, page, width)
            self.assertEqual((seen["width"], seen["beyond"], seen["scrolling"], seen["hints"]), (seen["window"], [], scrolling, scrolling))

    def test_what_is_neither_is_refused_by_name(self):
        for content in ("{}", "[1]", "", "words", json.dumps({**RESULT, "rows": []})):
            self.assertIn("0.json: ", self.report(content, code=2))

    def test_it_takes_what_the_program_prints(self):
        from support import bytes_model, run
        model = bytes_model(self.folder / "model")
        (self.folder / "prompts.txt").write_text("a b c\nd e f\n")
        done = run("bench", "decode", "-m", model, "-md", model, "--methods", "none,bild", "--prompts", self.folder / "prompts.txt",
                   "-n", "6", "--perplexity", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.report(done.stdout)
        head, none, line, bild = self.lines()
        self.assertEqual((none[0], line[0], bild[0]), ("none", "not exact:", "~bild"))
        self.assertTrue({"perplexity", "equal", "s per token"} < set(head))

    def test_one_call_makes_the_table_of_all_methods_and_of_drafts_without_a_model(self):
        from support import bytes_model
        model = bytes_model(self.folder / "model")
        (self.folder / "prompts.txt").write_text("a b c\nd e f\n")
        done = subprocess.run([sys.executable, REPO / "bench/methods.py", "all", "-m", model, "-md", model, "--prompts",
                               self.folder / "prompts.txt", "--out", self.folder, "--", "-n", "6"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        methods = [row["method"] for row in json.loads((self.folder / "all.json").read_text())["rows"]]
        self.assertTrue({"none", "hierarchy", "gsd", "mtad", "topk -md copy", "topk -md random"} < set(methods), methods)
        self.assertIn("| topk -md ngram:2 |", done.stdout)
        self.report(self.folder / "all.json")


if __name__ == "__main__":
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        report_test.BROWSER = None
    if report_test.BROWSER is None:
        print("needs chromium and matplotlib: scripts/test nightly installs them")
        sys.exit(report_test.SKIPPED)
    unittest.main(verbosity=2)
