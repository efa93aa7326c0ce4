"""canopy calibrate hardware and canopy plan: what is measured is kept, and what is planned is explained."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import support
from support import PROFILE, SMOLLM2, counts_own_memory, main, run, run_json


class Plan(support.TempDirCase):
    @classmethod
    def setUpClass(cls):
        if not SMOLLM2.exists():
            raise support.unittest.SkipTest(f"{SMOLLM2} is missing: run scripts/get_model")
        folder = tempfile.TemporaryDirectory(prefix="canopy_test_")
        cls.addClassCleanup(folder.cleanup)
        cls.draft = pathlib.Path(folder.name) / "draft.gguf"
        quantized = run("quantize", "-m", SMOLLM2, "-o", cls.draft, "--type", "q4_0")
        if quantized.returncode != 0:
            raise AssertionError(quantized.stderr)
        cls.models = ["-m", SMOLLM2, "-md", cls.draft]

    def test_a_machine_is_measured_once_and_kept(self):
        home = dict(os.environ, XDG_CACHE_HOME=str(self.dir / "cache"))
        tiny = support.bytes_model(self.dir / "tiny")
        models = ["-m", tiny, "-md", tiny]
        first = run("plan", *models, env=home)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("have not run on this machine before", first.stderr)
        self.assertEqual(len(list((self.dir / "cache" / "canopy").glob("hardware-*.json"))), 1)
        second = run("plan", *models, env=home)
        self.assertNotIn("before", second.stderr)
        self.assertEqual(first.stdout.splitlines()[0], second.stdout.splitlines()[0])

    def test_it_says_what_was_considered_and_what_would_help(self):
        plan = run_json("plan", *self.models, "--memory", "700M")
        kinds = {candidate["kind"] for candidate in plan["candidates"]}
        self.assertEqual(kinds, {"plain", "chain", "tree", "calibrated"})
        drawn = run_json("plan", *self.models, "--memory", "700M", "--temp", ".6")
        self.assertEqual({candidate["kind"] for candidate in drawn["candidates"]}, {"plain", "chain", "tree"})
        least = min(candidate["seconds_per_token"] for candidate in plan["candidates"])
        self.assertLessEqual(plan["plan"]["seconds_per_token"], 1.002 * least)
        self.assertEqual(set(plan["with"]),
                         {"1 GiB more memory", "a link twice as fast", "a draft refused half as often"})
        for better in plan["with"].values():
            self.assertLessEqual(better["seconds_per_token"], 1.002 * plan["plan"]["seconds_per_token"])
        self.assertLessEqual(plan["planned_bytes"], 700 << 20)

    def test_a_text_is_priced_by_its_own_length_where_the_context_has_room_for_more(self):
        (self.dir / "profile").write_text(json.dumps(json.loads(pathlib.Path(PROFILE).read_text()) | {"context": 1e-7}))
        words = ("plan", *self.models, "--memory", "2G", "--profile", self.dir / "profile", "--spec", "none")
        seconds = {(n, c): run_json(*words, "-n", n, "-c", c)["plan"]["seconds_per_step"] for n, c in ((64, 192), (64, 4096), (3968, 4096))}
        self.assertEqual(seconds[64, 4096], seconds[64, 192])
        self.assertGreater(seconds[3968, 4096], seconds[64, 4096])

    def test_it_plans_for_the_texts_of_a_server_as_serve_does(self):
        words = ("plan", *self.models, "--parallel", 3, "--profile", PROFILE)
        house = run_json(*words, "--memory", "2G")
        self.assertEqual((house["places"], house["context"]), (3, 8192))
        self.assertEqual((house["plan"]["sequences"], house["full_house"]["sequences"]), (1, 3))
        self.assertLess(house["full_house"]["seconds_per_token"], house["plan"]["seconds_per_token"])
        self.assertRegex(run(*words, "--memory", "2G").stdout, r"for 3 texts at a time: .*, [\d.]+ s per token")
        short = run_json(*words, "--memory", "500M")
        self.assertLess(short["context"], 8192)
        self.assertIn(f"the context is {short['context']} tokens, not 8192", short["notes"][0])
        refused = run(*words, "--memory", "500M", "-c", 8192)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("are needed", refused.stderr)

    def test_the_tree_that_it_prints_is_one_that_tree_takes(self):
        tree = run_json("plan", *self.models, "--tree", "3,2")["plan"]["parents"]
        self.assertEqual(tree, [-1, 0, 0, 0, 1, 1, 2, 2, 3, 3])
        file = self.dir / "tree.json"
        file.write_text(json.dumps(tree))
        self.assertEqual(run_json("plan", *self.models, "--tree", file)["plan"]["parents"], tree)

    @counts_own_memory
    def test_generate_does_what_was_planned_over_budgets_and_drafts(self):
        prompt, new = 24, 6
        ids = ",".join(str(100 + i) for i in range(prompt))
        for draft, budgets in ((), ("190M", "600M")), (("-md", self.draft), ("400M", "1G")):
            for budget, context in zip(budgets, (("--ctx-size", 400), ())):
                request = ("-n", new, *context)
                for flags in ((), ("--resident", "none")):
                    words = ("-m", SMOLLM2, *draft, "--memory", budget, *flags, *request)
                    planned = run_json("plan", *words, "--prompt-tokens", prompt)
                    done = run_json("generate", *words, "--tokens", ids)["plan"]
                    with self.subTest(words=words):
                        self.assertEqual((planned["spec"], planned["plan"]["tree_size"], planned["plan"]["tree_depth"]),
                                         (done["spec"], done["tree_size"], done["tree_depth"]))
                        self.assertEqual(planned["plan"]["sweep_bytes"], done["sweep_bytes"])
                        self.assertEqual(planned["memory_bytes"], done["memory_bytes"])
                        # How much of its code and libraries a process holds is the system's affair.
                        lines = [{line: size for line, size in one["ledger"].items() if not line.startswith("the process")}
                                 for one in (planned, done)]
                        self.assertLess(abs(sum(lines[0].values()) - sum(lines[1].values())), 2 << 20)

    @counts_own_memory
    def test_it_refuses_the_budget_that_generate_refuses(self):
        words = ("-m", SMOLLM2, "--prompt-tokens", 4), ("-m", SMOLLM2, "-p", "Three rivers are", "-n", 2)
        for command, flags in zip(("plan", "generate"), words):
            few = run(command, *flags, "--memory", "40M", "--resident", "none")
            self.assertEqual(few.returncode, 1)
            self.assertIn("at least", few.stderr)
        with support.memory_cgroup(96 << 20) as made:  # the model has 98 MB
            if made is None:
                self.skipTest("memory cgroups cannot be made here (needs root)")
            join = lambda: (made[0] / "cgroup.procs").write_text(str(os.getpid()))
            for command, flags in zip(("plan", "generate"), words):
                many = run(command, *flags, "--memory", "1000T", preexec_fn=join)
                self.assertEqual(many.returncode, 1, many.stderr)
                self.assertRegex(many.stderr, r"has only \d+ MiB free: give a memory budget of at most \d+M")

    @counts_own_memory
    def test_a_machine_is_measured_for_another_to_plan_with(self):
        here, tiny = self.dir / "here.json", support.bytes_model(self.dir / "tiny")
        made = run("calibrate", "hardware", "-m", tiny, "-md", tiny, "-o", here)
        self.assertEqual(made.returncode, 0, made.stderr)
        profile = json.loads(here.read_text())
        self.assertGreater(profile["memory_bytes"], 1 << 28)
        self.assertNotIn("modelled", profile)
        self.assertEqual(run_json("plan", "-m", tiny, "-md", tiny, "--profile", here)["machine"], profile["machine"])

    def test_it_plans_for_another_machine(self):
        profile = json.loads(PROFILE.read_text())
        there = self.dir / "there.json"

        def spec_with(**changes):
            there.write_text(json.dumps(profile | changes))
            return run_json("plan", *self.models, "--memory", "300M", "--resident", "none", "--profile", there)

        slow = spec_with(link_bytes_per_second=1e6)
        self.assertEqual(slow["plan"]["kind"], "calibrated")
        self.assertEqual(slow["plan"]["bottleneck"], "link")
        self.assertGreater(slow["plan"]["tree_size"], 100)
        costly = {k: [[x, 100.0] for x, _ in v] for k, v in profile["drafting"].items() if k != "context"}
        useless = spec_with(drafting=costly | {"context": 0})
        self.assertEqual(useless["plan"]["kind"], "plain")

    def test_cores_slow_a_limited_link_only_where_they_leave_less_than_its_limit(self):
        there = self.dir / "there.json"

        def step(slowing, *limit):
            changes = {"link_bytes_per_second": 1e9, "link_slowing": slowing}
            there.write_text(json.dumps(json.loads(PROFILE.read_text()) | changes))
            plan = run_json("plan", "-m", SMOLLM2, "--memory", "300M", "--resident", "none", "--spec", "none", "--profile", there, *limit)
            return plan["plan"]["seconds_per_step"]

        self.assertGreater(step(.5), step(0))
        self.assertAlmostEqual(step(.5, "--disk-limit", "400M"), step(0, "--disk-limit", "400M"))
        self.assertGreater(step(.7, "--disk-limit", "400M"), step(0, "--disk-limit", "400M"))

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


class PlanForAGpuThatIsNotHere(support.TempDirCase):
    def setUp(self):
        super().setUp()
        self.profile = self.dir / "profile.json"
        self.models = ["-m", "llama-2-70b", "-md", "llama-2-7b"]

    def model(self, gpu, draft="llama-2-7b", target="llama-2-70b", **changes):
        """The profile of such a GPU, modelled from its data sheet."""
        made = subprocess.run([sys.executable, support.REPO / "bench/paper/gpu_profile.py", gpu, target, draft],
                              capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        profile = json.loads(made.stdout) | changes
        self.profile.write_text(json.dumps({key: value for key, value in profile.items() if value is not None}))
        return ["--profile", self.profile]

    def test_a_shape_is_planned_for_a_gpu_without_either_being_here(self):
        plan = run_json("plan", *self.models, *self.model("L40"))
        self.assertTrue(plan["modelled"])
        self.assertEqual((plan["plan"]["kind"], plan["plan"]["bottleneck"]), ("tree", "link"))
        self.assertEqual(plan["gpu"]["memory_bytes"], 48 << 30)
        self.assertLessEqual(plan["gpu"]["planned_bytes"], 48 << 30)
        self.assertEqual(plan["memory_bytes"], int(0.8 * (256 << 30)))
        layer = 2 * (8192 * (2 * 8192 + 2 * 1024) + 3 * 8192 * 28672)
        self.assertAlmostEqual(plan["plan"]["sweep_bytes"] / ((80 - plan["resident_layers"]) * layer), 1, delta=0.02)
        self.assertAlmostEqual(plan["plan"]["link_seconds"], plan["plan"]["sweep_bytes"] / 24.6e9, delta=0.01)
        words = run("plan", *self.models, "--profile", self.profile)
        self.assertIn("MODELLED, not measured: L40", words.stdout)

    def test_a_packed_target_leaves_more_layers_on_the_gpu_and_moves_less(self):
        plain = run_json("plan", *self.models, *self.model("H200"), "--gpu-memory", "48G", "--spec", "none")
        packed = "llama-2-70b:packed"
        less = run_json("plan", "-m", packed, *self.model("H200", target=packed), "--gpu-memory", "48G", "--spec", "none")
        self.assertGreater(less["resident_layers"], plain["resident_layers"] / 0.75)
        self.assertLess(less["plan"]["sweep_bytes"], 0.6 * plain["plan"]["sweep_bytes"])
        self.assertGreater(less["plan"]["compute_seconds"], plain["plan"]["compute_seconds"])  # it is unpacked, too

    def test_a_budget_bounds_the_gpu_and_a_packed_draft_leaves_room_for_layers(self):
        half = run_json("plan", *self.models, *self.model("H200"), "--gpu-memory", "48G", "--tree-size", "768")
        self.assertEqual(half["gpu"]["memory_bytes"], 48 << 30)
        packed = run_json("plan", "-m", "llama-2-70b", "-md", "llama-2-7b:q4_0", *self.model("H200", "llama-2-7b:q4_0"),
                          "--gpu-memory", "48G", "--tree-size", "768")
        # How much of it rests and how much is the ring is the planner's choice, often a close one.
        of_target = lambda plan: sum(held for line, held in plan["gpu"]["ledger"].items()
                                     if line.startswith("target weights at rest") or line == "target ring")
        layer = 2 * (8192 * (2 * 8192 + 2 * 1024) + 3 * 8192 * 28672)
        self.assertGreater(of_target(packed), of_target(half) + 3 * layer)

    def test_the_kernels_scratch_is_the_gpus_and_not_this_machines(self):
        # Rows of a sweep or of a chunk, their widest input in 16 bits, and a slice of weights; in pages of the driver.
        for size, rows in ((64, 64 + 128), (768, 768 + 128), (1024, 1024)):
            plan = run_json("plan", *self.models, *self.model("H200"), "--gpu-memory", "48G", "--tree-size", str(size))
            pages = -(-(rows * 28672 * 2 + 256 + (128 << 20)) // (2 << 20))
            self.assertEqual(plan["gpu"]["ledger"]["scratch of the kernels"], pages * (2 << 20), size)

    def test_attention_by_products_is_short_beside_the_link_at_4k(self):
        target, draft = 80, 32  # layers
        for gpu, most in (("H200", 0.15), ("L40", 0.25), ("4090", 0.25)):
            self.model(gpu)
            profile = json.loads(self.profile.read_text())
            of_target = 768 * (4096 + 768 / 2) * target * profile["context"]
            self.assertLessEqual(of_target, most, gpu)
            # Kernels in f32 are the draft's, whose row has 32 heads where the target's has 64.
            self.assertLess(of_target, 768 * (4096 + 768 / 2) * target * 2 * profile["drafting"]["context"] / draft, gpu)

    def test_host_memory_that_is_short_makes_the_disk_the_limit(self):
        small = run_json("plan", *self.models, *self.model("L40"), "--memory", "64G", "--tree-size", "768")
        large = run_json("plan", *self.models, "--profile", self.profile, "--tree-size", "768")
        self.assertGreater(small["plan"]["seconds_per_step"], 2 * large["plan"]["seconds_per_step"])
        self.assertLessEqual(small["planned_bytes"], 64 << 30)

    def test_shapes_of_qwen3_have_the_bytes_of_their_parameters(self):
        dense = run_json("plan", "-m", "qwen3-32b", "-md", "qwen3-0.6b", *self.model("H200", "qwen3-0.6b", "qwen3-32b"),
                         "--gpu-memory", "24G")
        self.assertTrue(dense["modelled"])
        self.assertEqual(dense["notes"], [])
        layer = 2 * (5120 * 128 * (2 * 64 + 2 * 8) + 3 * 5120 * 25600)
        self.assertAlmostEqual(dense["plan"]["sweep_bytes"] / ((64 - dense["resident_layers"]) * layer), 1, delta=0.05)

    def test_a_mixture_s_shape_is_planned_with_a_cache_of_experts(self):
        for name, layers, dim, hidden in (("qwen3-30b-a3b", 48, 2048, 768), ("qwen3-235b-a22b", 94, 4096, 1536)):
            seen = []
            for memory in ("24G", "48G"):
                plan = run_json("plan", "-m", name, "--profile", support.PROFILE, "--memory", memory, "--prompt-tokens", 64)
                experts, one = plan["experts"], 3 * dim * hidden * 2  # bytes of an expert
                self.assertEqual(experts["of"], 128 * layers)
                self.assertIn(experts["bytes"] - one, range(3 * 4096))  # direct reads begin at multiples of 4096
                self.assertTrue(plan["modelled"])
                self.assertIn("the profile is of another target", " ".join(plan["notes"]))
                self.assertLessEqual(plan["planned_bytes"], int(memory[:-1]) << 30)
                self.assertGreater(experts["misses_per_token"], 0)
                self.assertLessEqual(experts["misses_per_token"], 8 * layers)
                seen.append((experts["stay"], -experts["misses_per_token"], -plan["plan"]["seconds_per_token"]))
            self.assertEqual(seen, sorted(seen))
            self.assertGreater(seen[1][0], seen[0][0])
            words = run("plan", "-m", name, "--profile", support.PROFILE, "--memory", "24G").stdout
            self.assertIn("MODELLED, not measured: ", words)
            self.assertRegex(words, rf"experts: \d+ of {128 * layers} stay in memory; of the {8 * layers} that a token asks for")

    def test_the_shape_of_qwen3_next_has_the_bytes_of_its_parameters(self):
        plan = run_json("plan", "-m", "qwen3-next-80b-a3b", "--profile", support.PROFILE, "--memory", "64G", "--prompt-tokens", 64)
        self.assertEqual(plan["experts"]["of"], 512 * 48)
        self.assertIn(plan["experts"]["bytes"] - 3 * 2048 * 512 * 2, range(3 * 4096))
        # Attention of each fourth layer, a delta net of the others; router and shared expert of all.
        attention, delta = 2048 * 256 * (3 * 16 + 2 * 2), 2048 * (2 * 16 * 128 + 3 * 32 * 128 + 2 * 32)
        layers, head = 2 * (12 * attention + 36 * delta + 48 * 2048 * (512 + 3 * 512 + 1)), 2 * 151936 * 2048
        apart = plan["experts"]["stay"] * plan["experts"]["bytes"]  # what travels are experts, too
        self.assertAlmostEqual((plan["plan"]["resident_bytes"] - apart - layers) / head, 1, delta=0.01)

    def test_shapes_of_gpt_oss_have_experts_of_four_bits(self):
        for name, layers, experts in (("gpt-oss-20b", 24, 32), ("gpt-oss-120b", 36, 128)):
            plan = run_json("plan", "-m", f"{name}:mxfp4", "--profile", support.PROFILE, "--memory", "8G", "--prompt-tokens", 64)
            one = 3 * 2880 * 2880 // 32 * 17
            self.assertEqual(plan["experts"]["of"], experts * layers)
            self.assertIn(plan["experts"]["bytes"] - one, range(3 * 4096))

    def test_shapes_of_gemma_apertus_and_phi_are_known(self):
        for name, billions in (("gemma-3-27b", 27.0), ("gemma-4-31b", 30.7), ("apertus-70b", 70.6), ("phi-4", 14.7)):
            plan = run_json("plan", "-m", f"{name}:q4_0", "--profile", support.PROFILE, "--memory", "8G", "--prompt-tokens", 64)
            self.assertLess(abs(plan["plan"]["sweep_bytes"] + plan["plan"]["resident_bytes"] - billions * 1e9 * 18 / 32),
                            0.12 * billions * 1e9)

    def test_says_what_is_missing_or_does_not_fit_together(self):
        for words, what, code in [
                (self.models, "a shape cannot be measured", 2),
                (["-m", "llama-2-70b", "-md", "draft.gguf", *self.model("L40")], "one is a shape and one is not", 2),
                ([*self.models, "--device", "cpu", "--profile", self.profile], "the profile is of a machine with a GPU", 2),
                (["-m", "llama-2-70b", "-md", "llama-3.2-1b", "--profile", self.profile], "no draft for this target", 1)]:
            done = run("plan", *words)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(what, done.stderr)
        for missing, flag in (("memory_bytes", "give --memory"), ("gpu_memory_bytes", "give --gpu-memory")):
            done = run("plan", *self.models, *self.model("L40", **{missing: None}))
            self.assertEqual(done.returncode, 1)
            self.assertIn(flag, done.stderr)


if __name__ == "__main__":
    main()
