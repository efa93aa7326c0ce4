"""canopy bench offload as far as a machine without a GPU goes."""
import json

from support import TempDirCase, main, run

CONFIG = {"model_type": "llama", "num_hidden_layers": 6, "hidden_size": 64, "intermediate_size": 128,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 500, "rms_norm_eps": 1e-5, "max_position_embeddings": 2048}
LINE = [[1, 1e-4], [1024, 2e-2]]
PROFILE = {"canopy_hardware": 1, "machine": "made up", "target": "", "draft": "", "version": "", "date": "",
           "link_bytes_per_second": 0, "upload_bytes_per_second": 1e8, "embed": LINE, "attention": LINE, "mlp": LINE, "head": LINE,
           "context": 0, "verify": 0, "drafting": {"level_greedy": LINE, "level_sampled": LINE, "context": 0}}


class BenchOffloadTest(TempDirCase):
    def setUp(self):
        super().setUp()
        (self.dir / "config.json").write_text(json.dumps(CONFIG))
        (self.dir / "profile.json").write_text(json.dumps(PROFILE))

    def bench(self, *words, shape="config.json"):
        return run("bench", "offload", "-m", self.dir / shape, "-md", self.dir / "config.json", "--dir", self.dir, *words)

    def dry(self, *words):
        return self.bench("--dry-run", "--profile", self.dir / "profile.json", "--gpu-memory", "200M", "--host-memory", "2G", *words)

    def test_predicts_and_says_that_it_is_synthetic(self):
        done = self.dry("--json", "--tree-sizes", "1,8", "--resident", "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        out = json.loads(done.stdout)
        self.assertIn("SYNTHETIC", out["label"])
        self.assertIn("PREDICTED", out["label"])
        plain, tree = out["rows"]
        self.assertEqual((plain["tree_size"], tree["tree_size"]), (1, 8))
        self.assertEqual(plain["predicted"]["tokens_per_step"], 1)
        self.assertGreater(tree["predicted"]["tokens_per_step"], 2)
        layers = 6 * 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128)
        self.assertGreater(plain["predicted"]["link_seconds"], layers / 1e8)
        self.assertEqual([f.name for f in self.dir.iterdir() if f.is_dir()], [])  # nothing is left behind
        self.assertIn("SYNTHETIC", self.dry("--tree-sizes", "1").stdout)

    def test_says_what_is_wrong(self):
        for words, what, code in [((), "there is no GPU to measure", 1), (("--dry-run",), "--dry-run: needs --profile", 2),
                                  (("--tree-sizes", "0"), "--tree-sizes: '0'", 2)]:
            done = self.bench(*words)
            if code == 1 and done.returncode == 0:
                self.skipTest("this machine has a GPU")
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(what, done.stderr)
        (self.dir / "list.json").write_text("[0.9, 0.2]")
        done = self.dry("--acceptance", self.dir / "list.json")
        self.assertEqual(done.returncode, 1)
        self.assertIn("add up to 1", done.stderr)
        (self.dir / "bad.json").write_text("{}")
        done = self.bench("--dry-run", "--profile", self.dir / "profile.json", "--gpu-memory", "1G", "--host-memory", "2G",
                          shape="bad.json")
        self.assertEqual(done.returncode, 1)
        self.assertIn("bad.json", done.stderr)


if __name__ == "__main__":
    main()
