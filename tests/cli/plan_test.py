"""canopy calibrate hardware and canopy plan: what is measured is kept, and what is planned is explained."""
import json
import os

import support
from support import SMOLLM2, main, run, run_json


class Plan(support.TempDirCase):
    @classmethod
    def setUpClass(cls):
        if not SMOLLM2.exists():
            raise support.unittest.SkipTest(f"{SMOLLM2} is missing: run scripts/get_model")

    def setUp(self):
        super().setUp()
        self.draft = self.dir / "draft.gguf"
        self.assertEqual(run("quantize", "-m", SMOLLM2, "-o", self.draft, "--type", "q4_0").returncode, 0)
        self.models = ["-m", SMOLLM2, "-md", self.draft]

    def test_a_machine_is_measured_once_and_kept(self):
        home = dict(os.environ, XDG_CACHE_HOME=str(self.dir / "cache"))
        first = run("plan", *self.models, env=home)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("have not run on this machine before", first.stderr)
        self.assertEqual(len(list((self.dir / "cache" / "canopy").glob("hardware-*.json"))), 1)
        second = run("plan", *self.models, env=home)
        self.assertNotIn("before", second.stderr)
        self.assertEqual(first.stdout.splitlines()[0], second.stdout.splitlines()[0])

    def test_it_says_what_was_considered_and_what_would_help(self):
        plan = run_json("plan", *self.models, "--memory", "700M")
        kinds = {candidate["kind"] for candidate in plan["candidates"]}
        self.assertEqual(kinds, {"plain", "chain", "tree"})
        least = min(candidate["seconds_per_token"] for candidate in plan["candidates"])
        self.assertLessEqual(plan["plan"]["seconds_per_token"], 1.002 * least)
        self.assertEqual(set(plan["with"]),
                         {"1 GiB more memory", "a link twice as fast", "a draft refused half as often"})
        for better in plan["with"].values():
            self.assertLessEqual(better["seconds_per_token"], 1.002 * plan["plan"]["seconds_per_token"])
        self.assertLessEqual(plan["planned_bytes"], 700 << 20)

    def test_the_tree_that_it_prints_is_one_that_tree_takes(self):
        tree = run_json("plan", *self.models, "--tree", "3,2")["plan"]["parents"]
        self.assertEqual(tree, [-1, 0, 0, 0, 1, 1, 2, 2, 3, 3])
        file = self.dir / "tree.json"
        file.write_text(json.dumps(tree))
        self.assertEqual(run_json("plan", *self.models, "--tree", file)["plan"]["parents"], tree)

    def test_it_plans_for_another_machine(self):
        here = self.dir / "here.json"
        made = run("calibrate", "hardware", *self.models, "-o", here)
        self.assertEqual(made.returncode, 0, made.stderr)
        profile = json.loads(here.read_text())
        there = self.dir / "there.json"

        def spec_with(**changes):
            there.write_text(json.dumps(profile | changes))
            return run_json("plan", *self.models, "--memory", "300M", "--resident", "none", "--profile", there)

        slow = spec_with(link_bytes_per_second=1e6)
        self.assertEqual(slow["plan"]["kind"], "tree")
        self.assertEqual(slow["plan"]["bottleneck"], "link")
        self.assertGreater(slow["plan"]["tree_size"], 100)
        costly = {k: [[x, 100.0] for x, _ in v] for k, v in profile["drafting"].items() if k != "context"}
        useless = spec_with(drafting=costly | {"context": 0})
        self.assertEqual(useless["plan"]["kind"], "plain")

    def test_wrong_profiles_are_named(self):
        bad = self.dir / "bad.json"
        for text in ("", "{}", '{"canopy_hardware": 7}'):
            bad.write_text(text)
            result = run("plan", *self.models, "--profile", bad)
            self.assertEqual(result.returncode, 1)
            self.assertIn(str(bad), result.stderr)
        self.assertEqual(run("plan", *self.models, "--profile", self.dir / "none.json").returncode, 1)
        self.assertEqual(run("calibrate", "weather").returncode, 2)
        self.assertEqual(run("calibrate").returncode, 2)


if __name__ == "__main__":
    main()
