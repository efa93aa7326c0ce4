"""Processes that mpirun has started and that share a model's rows: the text is one process's, and they end together."""
import json
import os
import re
import signal
import subprocess
import time
import unittest

from mpirun import HAS_MPIRUN, MPIRUN, ROOT, has_mpi, mpirun, processes, random_model, rank_of
from support import CANOPY, PATIENCE, PROFILE, TOKENIZER, TempDirCase, bytes_model, main, run, run_json

MEMORY = ["--memory", "300M"]
TIMEOUT, SPARE = 2, 5 * PATIENCE  # seconds: of a rank that says nothing; and what ending takes


@unittest.skipUnless(HAS_MPIRUN and has_mpi(), "built without MPI, as the program says, or there is no mpirun")
class Ranks(TempDirCase):
    def setUp(self):
        super().setUp()
        self.model = random_model(self.dir / "model", TOKENIZER)
        self.draft = random_model(self.dir / "draft", TOKENIZER, layers=1, width=128, seed=2)
        self.words = ["-p", "abc abd", "-n", 24, "--ignore-eos", "--resident", "none", "--profile", PROFILE, "--no-learn"]

    def ranks(self, *contexts, command="generate", **options):
        """Runs the command by a rank for each list of words."""
        before = processes(CANOPY)
        result = mpirun(*[(CANOPY, command, *context) for context in contexts], **options)
        self.assertEqual(processes(CANOPY) - before, set(), "a process was left")
        return result

    def same(self, ranks, *words, **options):
        return self.ranks(*[words] * ranks, **options)

    def refusal(self, result, code, name="canopy generate"):
        """Returns the one message of ranks that have ended."""
        messages = [line for line in result.stderr.split("\n") if line.startswith(f"{name}: ")]
        self.assertEqual(len(messages), 1, result.stderr)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        return messages[0]

    def test_texts_are_those_of_one_process(self):
        for words in ([], ["-md", "ngram:2", "--spec", "chain", "--tree-size", 6], ["-md", self.draft, "--tree", "3,2,1"],
                      ["-md", self.draft, "--spec", "sequoia", "--tree-size", 12, "--temp", 0.9, "--seed", 7],
                      ["--temp", 1, "--seed", 3, "--num-samples", 3, "--report", self.dir / "report"]):
            alone = run("generate", "-m", self.model, *self.words, *MEMORY, *([] if "--report" in words else ["--json"]), *words)
            self.assertEqual(alone.returncode, 0, alone.stderr)
            for ranks, shares in (2, []), (2, ["--shares", "1:2"]), (3, []):
                shared = self.same(ranks, "-m", self.model, *self.words, *MEMORY, *([] if "--report" in words else ["--json"]), *words,
                                   *shares)
                self.assertEqual(shared.returncode, 0, shared.stderr)
                self.assertEqual(self.tokens(shared.stdout), self.tokens(alone.stdout), (words, ranks, shares))

    @staticmethod
    def tokens(output):
        """Tokens of one JSON object, or of a line for each sample."""
        try:
            return [json.loads(output)["tokens"]]
        except json.JSONDecodeError:
            return [json.loads(line)["tokens"] for line in output.splitlines()]

    def test_the_first_rank_alone_prints_and_reads_the_prompt(self):
        words = ["-m", self.model, *self.words[2:], *MEMORY]
        alone = run("generate", *words, stdin="abc abd")
        shared = self.same(3, *words, stdin="abc abd")
        self.assertEqual((shared.returncode, shared.stdout), (0, alone.stdout), shared.stderr)
        help_page = self.same(2, "--help")
        self.assertEqual((help_page.returncode, help_page.stdout), (0, run("generate", "--help").stdout))

    def test_each_rank_reads_its_rows(self):
        alone = run_json("generate", "-m", self.model, *self.words, *MEMORY)
        shared = json.loads(self.same(2, "-m", self.model, *self.words, *MEMORY, "--json").stdout)
        by_rank = shared["ranks"]["by_rank"]
        self.assertEqual(len(by_rank), 2)
        for one in by_rank:
            self.assertLess(one["disk_bytes"], 0.75 * alone["bytes_read"])
            self.assertGreater(one["disk_bytes"], 0.25 * alone["bytes_read"])
            self.assertTrue(one["link_busy_seconds"] > 0 and one["waited_seconds"] > 0)
        # The matrices of the layers, with 3 and 5 blocks of rows, are cut; so the first rank has some 0.6 of them at most.
        self.assertLess(shared["bytes_read"], 0.75 * alone["bytes_read"])

    def test_reads_of_each_rank_are_held_to_a_limit(self):
        limit = 8 << 20
        words = ["-m", self.model, *self.words, *MEMORY, "--disk-limit", "8M", "--json"]
        begun = time.monotonic()
        shared = json.loads(self.same(2, *words).stdout)
        took = time.monotonic() - begun
        own, predicted = shared["plan"]["sweep_bytes"] / limit, shared["step"]["predicted"]["link_seconds"]
        self.assertTrue(1.1 * own < predicted < 2 * own, (own, predicted))  # the other rank has the larger part of 3 and of 5 blocks
        self.assertGreater(took, shared["steps"] * predicted)  # a slow machine takes longer, and none less
        self.assertIsNone(shared["link_probe"]["bytes_per_second"])
        other = self.ranks(["-m", self.model, *self.words, *MEMORY, "--disk-limit", "8M"], ["-m", self.model, *self.words, *MEMORY])
        self.assertEqual(other.returncode, 0, other.stderr)
        self.assertIn("--disk-limit: must be at least 1M", self.refusal(self.same(2, *words[:-2], 5, "--json"), 2))

    def test_the_first_rank_measures_for_all(self):
        deep = random_model(self.dir / "deep", TOKENIZER, layers=4)
        words = ["-m", deep, "-p", "abc", "-n", 6, "--ignore-eos", "--resident", "none", "-t", 1, *MEMORY]
        alone = run("generate", *words, "--profile", PROFILE)
        os.environ["XDG_CACHE_HOME"] = str(self.dir / "cache")
        self.addCleanup(os.environ.pop, "XDG_CACHE_HOME")
        shared = self.same(2, *words)
        self.assertEqual((shared.returncode, shared.stdout), (0, alone.stdout), shared.stderr)
        self.assertRegex(shared.stderr, "measured, and kept in ")
        kept = list((self.dir / "cache" / "canopy").glob("hardware-*.json"))
        self.assertEqual(len(kept), 1)

    def test_ranks_that_differ_end_with_one_message(self):
        words = [*self.words, *MEMORY]
        other = random_model(self.dir / "other", TOKENIZER, seed=3)
        mine = ["-m", self.model, *words]
        for theirs, said in ((["-m", other, *words], r"the model's fingerprint is \w+ on rank 0 \(.+\) and \w+ on rank 1 \("),
                             ([*mine, "-c", 64], r"--ctx-size is missing on rank 0 \(.+\) and 64 on rank 1 \("),
                             ([*mine, "--seed", 1], r"--seed is missing on rank 0 \(.+\) and 1 on rank 1 \("),
                             (["-m", self.dir / "nothing", *words], r"rank 1 \(.+\): .*nothing"),
                             (["-m", self.model, *self.words, "--memory", "5M"], r"rank 1 \(.+\): .*memory budget")):
            self.assertRegex(self.refusal(self.ranks(mine, theirs), 1), said)
        self.assertRegex(self.refusal(self.ranks(mine, [*mine, "--nonsense"]), 2), r"rank 1 \(.+\): unknown flag --nonsense")
        first = self.ranks(["-m", self.model, *self.words, "--memory", "5M"], mine)
        self.assertRegex(self.refusal(first, 1), r"rank 0 \(.+\): .*memory budget")

    def test_what_ranks_cannot_do_is_refused_by_name(self):
        words = ["-m", self.model, *self.words, *MEMORY]
        for more, said in ((["--num-beams", 2], "--num-beams"), (["--prompt-cache", self.dir / "kv"], "--prompt-cache"),
                           (["--shares", "1:1:1"], "--shares: names 3 ranks, and there are 2"), (["--shares", "1:0"], "'1:0' is no"),
                           (["--repack", self.dir / "rows"], "--repack"),
                           (["--rank-timeout", "0.1"], "--rank-timeout: must be"), (["--gpu-memory", "1G"], "--gpu-memory")):
            self.assertRegex(self.refusal(self.same(2, *words, *more), 2), rf"rank 0 \(.+\): .*{re.escape(said)}")
        self.assertIn("--memory: 2 ranks share this machine", self.refusal(self.same(2, "-m", self.model, *self.words), 2))
        tokenized = self.same(2, "-m", self.model, "-p", "abc", command="tokenize")
        self.assertIn("start it without mpirun", self.refusal(tokenized, 2, "canopy tokenize"))
        for flag in (["--shares", "1:1"], ["--rank-timeout", 3]):
            alone = run("generate", *words, *flag)
            self.assertEqual(alone.returncode, 2)
            self.assertIn("this is one process", alone.stderr)

    def test_a_conversation_is_that_of_one_process(self):
        (self.dir / "template").write_text("{% for m in messages %}{{ m.content }} {% endfor %}")
        words = ["-m", self.model, "--chat-template-file", self.dir / "template", "-n", 12, "-c", 256, *MEMORY, "--profile", PROFILE,
                 "--resident", "none", "-md", "ngram:2", "--temp", 1, "--seed", 4, "--no-learn"]
        said = "abc\nde f\n/regen\n/nothing\n/undo\nxyz\n"
        alone = run("chat", *words, stdin=said)
        shared = self.same(3, *words, stdin=said, command="chat")
        self.assertEqual((shared.stdout, shared.returncode), (alone.stdout, alone.returncode), shared.stderr)
        self.assertEqual(len(alone.stdout.splitlines()), 4)

    def test_bench_decode_runs_an_engine_after_another(self):
        words = ["decode", "-m", self.model, "-md", self.draft, "--methods", "none,chain,sequoia", "--tree-size", 6, "--examples", 2,
                 "--prompt-tokens", 12, "-n", 12, "--temp", 0, "--perplexity", "--json", *MEMORY, "--profile", PROFILE,
                 "--resident", "none"]
        alone, shared = (json.loads(result.stdout) for result in (run("bench", *words), self.same(2, *words, command="bench")))
        for one, other in zip(alone["rows"], shared["rows"], strict=True):
            keys = ["method", "perplexity", "equal_to_plain"]
            if one["method"] != "chain":  # which is cut where a token costs more than it brings: the network's speed counts
                keys.append("tokens_per_step")
            self.assertEqual([one[key] for key in keys], [other[key] for key in keys])
        self.assertEqual({row["equal_to_plain"] for row in shared["rows"]}, {1})
        self.assertLess(shared["rows"][0]["bytes_per_token"], 0.75 * alone["rows"][0]["bytes_per_token"])
        other = self.same(2, "-m", self.model, command="bench")
        self.assertIn("start it without mpirun", self.refusal(other, 2, "canopy bench"))

    def test_doctor_compares_the_machines(self):
        other = random_model(self.dir / "other", TOKENIZER, seed=3)
        result = self.ranks([self.model, "--json"], [other, "--json"], command="doctor")
        self.assertEqual(result.returncode, 0, result.stderr)
        found = json.loads(result.stdout)
        self.assertEqual(len(found["ranks"]), 2)
        for rank in found["ranks"]:
            names = [one["name"] for one in rank["findings"]]
            self.assertTrue({"kernel", "memory", "filesystem"} <= set(names), names)
            self.assertEqual(rank["host"], found["ranks"][0]["host"])
        together = {one["name"]: one for one in found["together"]}
        self.assertTrue(together["program"]["ok"] and together["instruction set"]["ok"])
        self.assertFalse(together["model"]["ok"])
        self.assertIn("the same model", together["model"]["fix"])
        self.assertEqual(len(set(together["model"]["value"])), 2)
        self.assertEqual(len(together["latency"]["value"]), 2)
        for rate in together["network, to it"]["value"]["bytes_per_second"]:
            self.assertGreater(rate, 0)
        text = self.same(2, self.model, command="doctor").stdout
        self.assertEqual(re.findall(r"(?m)^(?:rank \d \(|all 2 ranks)", text), ["rank 0 (", "rank 1 (", "all 2 ranks"])
        self.assertIn(" on all\n", text)
        self.assertIn("nothing", self.refusal(self.ranks([self.model], [self.dir / "nothing"], command="doctor"), 1, "canopy doctor"))

    def launch(self, ranks, *words):
        """Starts ranks that write a long text; returns the launcher and the ranks' processes, once the text has begun."""
        before = processes(CANOPY)
        launched = subprocess.Popen([*MPIRUN, "-n", str(ranks), CANOPY, "generate", "-m", str(self.model), "-p", "abc", "-n", "500",
                                     "--ignore-eos", "--resident", "none", "--profile", str(PROFILE), *MEMORY, *words],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | ROOT)
        self.addCleanup(launched.kill)
        launched.stdout.read(1)
        found = sorted(processes(CANOPY) - before, key=rank_of)
        self.assertEqual(len(found), ranks)
        return launched, found

    def ended(self, launched, ranks, seconds):
        """Returns standard error and the exit status, once all have ended in time and none is left."""
        start = time.monotonic()
        _, errors = launched.communicate(timeout=120)
        # mpirun sends a rank that was stopped its last signal and does not wait for its end.
        while (left := processes(CANOPY) & set(ranks)) and time.monotonic() - start < seconds:
            time.sleep(0.05)
        self.assertLess(time.monotonic() - start, seconds)
        self.assertEqual(left, set(), "a process was left")
        return errors.decode(), launched.returncode

    def ended_by(self, number, which):
        """Sends one of three ranks a signal; returns what ended() does."""
        launched, ranks = self.launch(3, "--rank-timeout", str(TIMEOUT))
        os.kill(ranks[which], number)
        return self.ended(launched, ranks, TIMEOUT + SPARE)

    def test_all_end_when_one_is_killed(self):
        for which in (0, 2):
            errors, code = self.ended_by(signal.SIGKILL, which)
            self.assertNotEqual(code, 0)
            self.assertRegex(errors, rf"rank {which} ")

    def test_all_end_when_one_is_stopped(self):
        for which in (0, 1):
            errors, code = self.ended_by(signal.SIGSTOP, which)
            self.assertEqual(code, 1)
            self.assertEqual(len(re.findall(r"(?m)^canopy generate: ", errors)), 1, errors)
            self.assertRegex(errors, rf"(?m)^canopy generate: rank \d \(.+\): rank {which} \(.+\) did not answer for {TIMEOUT} s")

    def test_a_stop_request_of_the_first_ends_the_text_in_order(self):
        launched, ranks = self.launch(2)
        os.kill(ranks[0], signal.SIGTERM)
        errors, code = self.ended(launched, ranks, 60)
        self.assertEqual(code, 143, errors)
        self.assertIn("canopy generate: stopped after ", errors)


class PlanForRanks(unittest.TestCase):
    """Plans of a shape, for machines that are not here."""
    WORDS = ["-m", "llama-3.1-70b", "-md", "llama-3.2-1b", "--profile", PROFILE, "--memory", "24G", "--resident", "none"]

    def test_columns_on_the_network_are_counted(self):
        layers, of_layer, head = 80, (8192 + 2 * 1024) + 8192 + 28672 + 8192, 128256
        alone = run_json("plan", *self.WORDS)
        self.assertNotIn("ranks", alone)
        for ranks, rounds in (2, 1), (4, 2), (8, 3):
            shared = run_json("plan", *self.WORDS, "--ranks", ranks, "--network", "10G", "--latency", 25)
            speed = shared["ranks"]["bytes_per_second"]
            self.assertAlmostEqual(speed, 10e9 / 8 * 1448 / 1538, delta=1)
            for one in shared["candidates"]:
                columns = 4 * one["tree_size"] * (layers * of_layer + head)
                exchange = (4 * layers + 1) * rounds * 25e-6 + (ranks - 1) / ranks * columns / speed
                self.assertAlmostEqual(one["exchange_seconds"], exchange, delta=1e-6 * exchange)
            plain, whole = shared["candidates"][0], alone["candidates"][0]
            # A rank reads its share of all rows: blocks of 128, so not quite the same of each.
            self.assertAlmostEqual(plain["link_seconds"] * ranks, whole["link_seconds"], delta=0.05 * whole["link_seconds"])

    def test_a_slow_network_wants_smaller_trees_and_fewer_ranks(self):
        trees, most = [], []
        for network in "1G", "10G", "25G":
            plan = run_json("plan", *self.WORDS, "--ranks", 4, "--network", network)
            trees.append(plan["plan"]["tree_size"])
            most.append(plan["ranks"]["most"])
        self.assertEqual((trees, most), (sorted(trees), sorted(most)))
        self.assertLess(trees[0], trees[2])
        text = run("plan", *self.WORDS, "--ranks", 4, "--network", "1G").stdout
        self.assertRegex(text, r"4 ranks, of which this is the first: columns travel for [\d.]+ s of a step; more than \d+ gain nothing")

    def test_a_limit_of_the_disk_is_planned_with(self):
        plan = run_json("plan", *self.WORDS, "--disk-limit", "64M")["plan"]
        self.assertAlmostEqual(plan["link_seconds"], plan["sweep_bytes"] / (64 << 20))

    def test_what_is_missing_is_named(self):
        for words, said in ((["--ranks", 2], "--network 10G"), (["--network", "1G"], "need --ranks"),
                            (["--ranks", 2, "--network", "fast"], "'fast'"), (["--ranks", 0], "--ranks"),
                            (["--ranks", 2, "--network", "1G", "--shares", "1:1:1"], "names 3 ranks")):
            refused = run("plan", *self.WORDS, *words)
            self.assertEqual(refused.returncode, 2, words)
            self.assertIn(said, refused.stderr)


class OneProcess(TempDirCase):
    def test_one_process_of_mpirun_is_one_process(self):
        if not HAS_MPIRUN:
            self.skipTest("there is no mpirun")
        model = bytes_model(self.dir / "tiny")
        words = (CANOPY, "generate", "-m", model, "-p", "ab", "-n", 5, "--profile", PROFILE)
        self.assertEqual(mpirun(words).stdout, run(*words[1:]).stdout)


if __name__ == "__main__":
    main()
