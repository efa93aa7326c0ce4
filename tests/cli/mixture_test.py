"""A mixture from a cache of experts: the same text whatever stays, and the hits that a simulation of its routes gives."""
import json
import os
import sys
import unittest

from support import REPO, TempDirCase, bytes_model, main, run, run_json

sys.path.insert(0, str(REPO / "bench"))
import routes  # noqa: E402


class Mixture(TempDirCase):
    def setUp(self):
        super().setUp()
        dense = bytes_model(self.dir / "dense")
        self.model = self.dir / "mixture"
        made = run("inflate", "-m", dense, "-o", self.model, "--experts", 9, "--active", 2)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.words = "-m", self.model, "-p", "once upon a time", "-n", 40, "--ignore-eos"
        self.whole = run_json("generate", *self.words)

    def layers(self):
        return range(json.loads((self.model / "config.json").read_text())["num_hidden_layers"])

    def test_texts_and_hits(self):
        self.assertNotIn("experts", self.whole)
        seen = set()
        for resident in ("none", "100K", "180K", "260K"):
            trace = self.dir / "routes.jsonl"
            report = run_json("generate", *self.words, "--resident", resident, "--route-trace", trace)
            self.assertEqual(report["tokens"], self.whole["tokens"])
            recorded = routes.Trace(trace)
            stay = report["experts"]["stay"]
            self.assertEqual(sum(recorded.stay), stay)
            self.assertEqual(report["experts"]["of"], 9 * len(self.layers()))
            requests = [len(counts) for _, counts in recorded.requests()]
            prompt = sum(requests[:len(self.layers())])  # finds nothing; the report counts what comes then
            hits = routes.policy_hits(recorded, recorded.stay)
            self.assertEqual(report["experts"]["hits"], hits)
            self.assertEqual(report["experts"]["misses"], sum(requests) - prompt - hits)
            seen.add(stay)
        self.assertEqual(len(seen), 4, seen)

    def test_a_note_below_a_tokens_experts(self):
        report = run_json("generate", *self.words, "--resident", "none")
        token = 2 * len(self.layers())
        self.assertTrue(any(f"where a token asks for {token}" in note for note in report["notes"]), report["notes"])

    def test_plans_learn_what_texts_read(self):
        of_this_test = dict(os.environ, XDG_CACHE_HOME=str(self.dir / "cache"))
        a_text = "-n", 200, "--ignore-eos", "--resident"
        plan = lambda resident: run_json("plan", "-m", self.model, "--resident", resident, env=of_this_test)["experts"]
        generate = lambda *words: run_json("generate", "-m", self.model, *words, env=of_this_test)

        self.assertIn("another model", plan("180K")["expected_by"])
        generate("-p", "once upon a time", *a_text, "180K", "--no-learn")
        self.assertIn("another model", plan("180K")["expected_by"])
        generate("-p", "once upon a time", *a_text, "180K")
        for resident, within in (("180K", 0.15), ("260K", 0.25)):  # what was learned in one budget holds in another
            experts = plan(resident)
            self.assertIn("sweeps of earlier texts", experts["expected_by"])
            report = generate("-p", "the other day", *a_text, resident, "--no-learn")
            measured = report["experts"]["misses"] / (len(report["tokens"]) - 1)
            self.assertLess(abs(experts["misses_per_token"] / measured - 1), within, (experts, measured))

    def test_routes_are_refused_where_there_are_none(self):
        for words, says in ((self.words, "all of it is in memory"),
                            (("-m", f"{self.model}-small", "-p", "x", "-n", 2), "is no mixture of experts")):
            result = run("generate", *words, "--route-trace", self.dir / "routes.jsonl")
            self.assertEqual(result.returncode, 1)
            self.assertIn(says, result.stderr)
            self.assertFalse((self.dir / "routes.jsonl").exists())
        self.assertEqual(run("generate", *self.words, "--route-trace", "-").returncode, 2)

    def test_self_drafts_are_refused(self):
        result = run("generate", *self.words, "--spec", "self-ssd", "--resident", "none")
        self.assertEqual(result.returncode, 1)
        self.assertIn("this model is a mixture of experts", result.stderr)


if __name__ == "__main__":
    main()
