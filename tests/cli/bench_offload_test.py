"""canopy bench offload on the CPU and the disk, which is the benchmark that a GPU gets."""
import json

from support import TempDirCase, machine_with_a_gpu_that_counts, main, run

CONFIG = {"model_type": "llama", "num_hidden_layers": 6, "hidden_size": 64, "intermediate_size": 128,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 500, "rms_norm_eps": 1e-5, "max_position_embeddings": 2048}
LINE = [[1, 1e-4], [1024, 2e-2]]
PROFILE = {"canopy_hardware": 1, "machine": "made up", "target": "", "draft": "", "version": "", "date": "",
           "link_bytes_per_second": 1e8, "embed": LINE, "attention": LINE, "mlp": LINE, "head": LINE,
           "context": 0, "verify": 0, "drafting": {"level_greedy": LINE, "level_sampled": LINE, "context": 0}}


class BenchOffloadTest(TempDirCase):
    def setUp(self):
        super().setUp()
        (self.dir / "config.json").write_text(json.dumps(CONFIG))
        (self.dir / "profile.json").write_text(json.dumps(PROFILE))

    def bench(self, *words, shape="config.json", draft="config.json", **options):
        return run("bench", "offload", "-m", self.dir / shape, "-md", self.dir / draft, "--dir", self.dir, *words, **options)

    def on_cpu(self, *words, **options):
        return self.bench("--device", "cpu", "--jsonl", "--steps", "3", "--prompt-tokens", "16", *words, **options)

    def rows(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([f.name for f in self.dir.iterdir() if f.is_dir()], [])  # no folder is left over
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_streams_every_layer_from_disk_in_every_step(self):
        plain, tree = self.rows(self.on_cpu("--tree-sizes", "1,8", "--temp", "0"))
        matrices = 6 * 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128)
        for row in (plain, tree):
            self.assertIn("SYNTHETIC", row["label"])
            self.assertEqual((row["link"], row["resident_layers"], len(row["steps"])), ("from disk", 0, 3))
            # What the ring held when the first of the three steps began had come before.
            self.assertGreater(row["link_bytes_per_step"], matrices - row["ring_layers"] / 3 * matrices / 6)
            self.assertGreater(row["link_bytes_per_second"], 0)
            times = sorted(step["seconds"] for step in row["steps"])
            self.assertEqual(row["seconds_per_step"], times[1])
            self.assertAlmostEqual(row["seconds_per_token"], row["seconds_per_step"] / row["tokens_per_step"])
        self.assertEqual((plain["tree_size"], plain["tokens_per_step"]), (1, 1))
        self.assertGreater(tree["tokens_per_step"], 2)
        self.assertGreater(tree["draft_seconds"], plain["draft_seconds"])

    def test_counts_the_energy_of_the_steps(self):
        row, = self.rows(self.on_cpu("--tree-sizes", "1", env=machine_with_a_gpu_that_counts(self)))
        self.assertGreaterEqual(row["joules_per_token"], 2 / 3)  # three steps; this machine's own counters are in it
        self.assertIn("GPU 1, Fake K80: Not Supported", row["energy_missing"])

    def test_packed_weights_are_fewer_bytes(self):
        # So many steps that what a ring held before the first hardly counts.
        steps = "--device", "cpu", "--jsonl", "--steps", "60", "--prompt-tokens", "16", "--tree-sizes", "1"
        plain, = self.rows(self.bench(*steps))
        packed, = self.rows(self.bench(*steps, shape="config.json:q4_0", draft="config.json:q8_0"))
        self.assertLess(packed["link_bytes_per_step"], 0.6 * plain["link_bytes_per_step"])
        (self.dir / "wide.json").write_text(json.dumps({**CONFIG, "hidden_size": 512, "intermediate_size": 1024}))
        plain, = self.rows(self.bench(*steps, shape="wide.json"))
        packed, = self.rows(self.bench(*steps, shape="wide.json:packed"))
        self.assertLess(packed["link_bytes_per_step"], 0.8 * plain["link_bytes_per_step"])

    def test_a_row_that_fails_says_why_and_the_others_run(self):
        (self.dir / "long.json").write_text("[0.9]")  # no tree of 8 nodes in 4 levels
        done = self.on_cpu("--tree-sizes", "8,4", "--tree-depth", "4", "--acceptance", self.dir / "long.json")
        self.assertEqual(done.returncode, 1)
        failed, run = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(failed["tree_size"], 8)
        self.assertIn("8", failed["error"])
        self.assertNotIn("seconds_per_step", failed)
        self.assertEqual((run["tree_size"], len(run["steps"])), (4, 3))
        self.assertIn("1 of the rows failed", done.stderr)
        table = self.bench("--device", "cpu", "--tree-sizes", "1,2", "--memory", "1M")
        self.assertEqual(table.returncode, 1)
        self.assertEqual(table.stdout.count("failed: a memory budget of 1.0 MiB is too small"), 2)

    def test_layers_may_have_bytes_of_their_own_in_memory(self):
        (self.dir / "wide.json").write_text(json.dumps({**CONFIG, "hidden_size": 512, "intermediate_size": 1024}))
        steps = "--device", "cpu", "--jsonl", "--steps", "3", "--prompt-tokens", "16", "--tree-sizes", "1", "--resident", "64M"
        shared, own = (self.rows(self.bench(*steps, *own, shape="wide.json"))[0] for own in ((), ("--own-bytes",)))
        self.assertEqual((shared["resident_layers"], own["resident_layers"]), (6, 6))
        layer = 2 * (512 * 512 * 2 + 512 * 256 * 2 + 3 * 512 * 1024)
        more = own["planned_host_bytes"] - shared["planned_host_bytes"]
        self.assertAlmostEqual(more, 5 * layer, delta=layer / 2)  # the process itself differs from run to run
        self.assertIn("every layer its own bytes", own["label"])

    def test_predicts_by_a_profile_beside_what_it_measures(self):
        plain, tree = self.rows(self.on_cpu("--tree-sizes", "1,8", "--profile", self.dir / "profile.json"))
        self.assertEqual(plain["predicted"]["tokens_per_step"], 1)
        self.assertAlmostEqual(tree["predicted"]["tokens_per_step"], tree["tokens_per_step"])
        layers = 6 * 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128)
        self.assertGreater(plain["predicted"]["link_seconds"], layers / 1e8)

    def test_says_what_is_wrong(self):
        for words, what in [(("--tree-sizes", "0"), "--tree-sizes: '0'"),
                            (("--device", "gpu"), "--device: 'gpu'"), (("--device", "cpu", "--gpu-memory", "1G"), "no GPU is used"),
                            (("--memory", "1G", "--host-memory", "1G"), "give one of them"), (("--steps", "0"), "--steps"),
                            (("--device", "cpu", "--own-bytes"), "all weights come from disk")]:
            done = self.bench(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(what, done.stderr)
        done = run("bench", "offload", "-m", self.dir / "config.json")
        self.assertEqual(done.returncode, 2)
        self.assertIn("one shape needs the other", done.stderr)
        (self.dir / "list.json").write_text("[0.9, 0.2]")
        (self.dir / "bad.json").write_text("{}")
        (self.dir / "other.json").write_text(json.dumps(CONFIG | {"vocab_size": 600}))
        for done, what in [(self.on_cpu("--acceptance", self.dir / "list.json"), "add up to 1"),
                           (self.on_cpu(shape="bad.json"), "bad.json"), (self.on_cpu(draft="other.json"), "vocabularies of 500 and 600"),
                           (self.on_cpu(shape="config.json:q3"), "config.json:q3"), (self.bench("--threads", "1", shape="none.json"), "none.json")]:
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(what, done.stderr)


if __name__ == "__main__":
    main()
