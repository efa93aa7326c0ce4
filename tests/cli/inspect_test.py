"""canopy inspect adds up, and says the same in both containers."""
import struct

from support import DATA, TempDirCase, main, run, run_json

MODELS = DATA / "model"


class Inspect(TempDirCase):
    def test_sizes_add_up(self):
        for name in ("llama2", "llama2_shards", "llama3", "llama3.gguf", "mistral", "qwen2", "qwen3.gguf", "opt",
                     "opt_after", "bloom"):
            with self.subTest(name):
                model = run_json("inspect", MODELS / name)
                layers = sum(layer["attention"] + layer["mlp"] for layer in model["layer_bytes"])
                self.assertEqual(len(model["layer_bytes"]), model["config"]["layers"])
                self.assertEqual(model["weight_bytes"], layers + model["embedding_bytes"] + model["head_bytes"]
                                 + model["final_norm_bytes"] + model["project_out_bytes"])
                self.assertEqual(model["weight_bytes"], sum(d["bytes"] for d in model["dtypes"].values()))
                self.assertEqual(model["head_bytes"] == 0, model["config"]["tied_head"])
                table = 0 if model["config"]["tied_head"] else model["embedding_bytes"]
                self.assertGreater(model["sweep_bytes"], 0.98 * (model["weight_bytes"] - table))
                self.assertEqual(model["sweep_bytes"] % 4096, 0)
                unit = max(max(layer["attention"], layer["mlp"]) for layer in model["layer_bytes"])
                self.assertGreater(model["smallest_ring_bytes"], 1.9 * unit)
                self.assertGreaterEqual(model["all_resident_bytes"], model["weight_bytes"])

    def test_names_rotary_scaling(self):
        rope = run_json("inspect", MODELS / "llama3")["config"]["rope"]
        self.assertEqual((rope["base"], rope["scaling"], rope["adjacent_pairs"]), (500000, "llama3", False))
        self.assertAlmostEqual(rope["slowdown"], 8, delta=8e-5)
        self.assertEqual(run_json("inspect", MODELS / "llama2")["config"]["rope"]["scaling"], "none")

    def test_names_the_scaling_of_a_factor_without_a_type(self):
        model = (MODELS / "llama.gguf").read_bytes()  # magic, version and two counts, then the keys
        key, filler = b"llama.rope.scaling.factor", b"x"
        added = (struct.pack("<Q", len(key)) + key + struct.pack("<If", 6, 4.0)
                 + struct.pack("<Q", len(filler)) + filler + struct.pack("<IQ", 8, 2) + b"--")
        self.assertEqual(len(added) % 32, 0)  # data begin where they are aligned
        scaled = self.dir / "scaled.gguf"
        scaled.write_bytes(model[:16] + struct.pack("<Q", struct.unpack_from("<Q", model, 16)[0] + 2) + added + model[24:])
        rope = run_json("inspect", scaled)["config"]["rope"]
        self.assertEqual(rope["scaling"], "linear")
        self.assertAlmostEqual(rope["slowdown"], 4, places=4)

    def test_names_how_experts_are_chosen_and_what_is_rotated(self):
        config = run_json("inspect", MODELS / "glm4_moe")["config"]
        self.assertEqual(config["experts"], {"count": 7, "active": 3, "hidden_dim": 32, "normalised": True,
                                             "sigmoid": True, "scale": 2.5, "shared_dim": 32, "gating": "swiglu",
                                             "layers": 2})
        self.assertEqual((config["windows"], config["sinks"]), (None, False))
        self.assertEqual(config["rope"]["dimensions"], 16)
        shown = run("inspect", MODELS / "glm4_moe")
        self.assertIn("of the first 16 dimensions of each head", shown.stdout)
        self.assertIn("guess further tokens, are left out", shown.stderr)

    def test_names_windows_sinks_and_a_clamped_gate(self):
        config = run_json("inspect", MODELS / "gpt_oss.gguf")["config"]
        self.assertEqual(config["windows"], {"keys": 8, "layers": 2})
        self.assertEqual((config["sinks"], config["experts"]["gating"]), (True, "clamped"))
        shown = run("inspect", MODELS / "gpt_oss.gguf").stdout
        for words in (", with sinks", "the last 8 keys in 2 of 3 layers", "24 dimensions each, clamped at 7"):
            self.assertIn(words, shown)

    def test_names_heads_that_differ_by_layer(self):
        for name, head_dim in (("gemma4", 20), ("gemma4.gguf", 64)):
            config = run_json("inspect", MODELS / name)["config"]
            self.assertEqual(config["other_heads"],
                             [{"head_dim": head_dim, "kv_heads": 1, "values_from_keys": True}])
            self.assertEqual(config["rope"]["scaling"], "proportional")
            shown = run("inspect", MODELS / name).stdout
            self.assertIn(f"of {head_dim}, 1 for keys, which are values, too, in layers that see all keys", shown)
            self.assertNotIn("dimensions of each head", shown)
        config = run_json("inspect", MODELS / "apertus")["config"]
        self.assertEqual((config["other_heads"], config["mlp"]), (None, "xielu"))

    def test_names_positions_that_are_not_rotary(self):
        for name, positions, norm, mlp in (("opt", "learned", "layer", "relu"), ("bloom", "alibi", "layer", "gelu_tanh"),
                                           ("llama2", "rotary", "rms", "swiglu")):
            with self.subTest(name):
                config = run_json("inspect", MODELS / name)["config"]
                self.assertEqual((config["positions"], config["norm"], config["mlp"]), (positions, norm, mlp))
                self.assertEqual(config["rope"] is None, positions != "rotary")
                table = run("inspect", MODELS / name).stdout
                self.assertEqual("rotary   " in table, positions == "rotary")
                self.assertIn(positions, table)

    def test_names_where_norms_lie_and_what_is_projected(self):
        for name, place, width in (("opt", "before", 32), ("opt_after", "after", 24)):
            with self.subTest(name):
                config = run_json("inspect", MODELS / name)["config"]
                self.assertEqual((config["norm_place"], config["dim"], config["embedding_dim"]), (place, 32, width))
                table = run("inspect", MODELS / name).stdout
                self.assertEqual("projected from and to the embedding's 24" in table, place == "after")
                self.assertEqual("behind each part" in table, place == "after")

    def test_table_names_what_matters(self):
        result = run("inspect", MODELS / "qwen2.gguf")
        self.assertEqual(result.returncode, 0, result.stderr)
        for words in ("qwen2", "1 GGUF file", "tied to the embedding", "x 2 layers", "read per sweep"):
            self.assertIn(words, result.stdout)


if __name__ == "__main__":
    main()
