"""Directories of FP8 weights: what each command makes of them."""
import json
import struct

from stored_weights_test import read_safetensors, write_safetensors
from support import TempDirCase, bytes_model, main, run, run_json

PROMPT = ("--tokens", "5,9,33", "-n", 12, "--ignore-eos")


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    value = (8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0**-9
    return -value if code & 128 else value


NUMBERS = sorted((e4m3(code), code) for code in range(127))


def nearest(value):
    code = min(NUMBERS, key=lambda number: abs(number[0] - abs(value)))[1]
    return code | (128 if value < 0 else 0)


def as_fp8(folder, twin, blocks=True):
    """Makes the layers' matrices of a BF16 model FP8, with a scale for each, or for their only block, and a twin with
    the same weights in F32."""
    header, data = read_safetensors(folder / "model.safetensors")
    header.pop("__metadata__", None)
    out, of_twin, body, plain = {}, {}, b"", b""

    def put(table, name, dtype, shape, values, to):
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(to), len(to) + len(values)]}
        return to + values

    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        values, shape = data[begin:end], tensor["shape"]
        if len(shape) < 2 or ".layers." not in name:
            body = put(out, name, tensor["dtype"], shape, values, body)
            plain = put(of_twin, name, tensor["dtype"], shape, values, plain)
            continue
        assert tensor["dtype"] == "BF16" and (max(shape) <= 128 or not blocks), tensor
        floats = [struct.unpack("<f", b"\0\0" + values[i:i + 2])[0] for i in range(0, len(values), 2)]
        scale = struct.unpack("<f", struct.pack("<f", max(map(abs, floats)) / 448))[0]
        code_of = {value: nearest(value / scale) for value in set(floats)}
        codes = bytes(code_of[value] for value in floats)
        body = put(out, name, "F8_E4M3", shape, codes, body)
        body = put(out, name + "_scale_inv", "F32", [1, 1] if blocks else [], struct.pack("<f", scale), body)
        body = put(out, name[:-6] + "input_scale", "F32", [], struct.pack("<f", 2.0), body)
        back = struct.pack(f"<{len(codes)}f", *(e4m3(code) * scale for code in codes))
        plain = put(of_twin, name, "F32", shape, back, plain)
    write_safetensors(folder / "model.safetensors", out, body)
    write_safetensors(twin / "model.safetensors", of_twin, plain)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "static", "fmt": "e4m3",
                                     "weight_block_size": [128, 128] if blocks else None,
                                     "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))


class Fp8(TempDirCase):
    def setUp(self):
        super().setUp()
        self.model, self.twin = bytes_model(self.dir / "model"), bytes_model(self.dir / "twin")
        as_fp8(self.model, self.twin)

    def ok(self, *words, **options):
        result = run(*words, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def test_is_described(self):
        lines = self.ok("inspect", self.model).stdout
        self.assertIn("FP8: 14 matrices with a scale of its own; activations are not quantised, 14 scales of them are not used",
                      lines)
        self.assertRegex(lines, r"FP8 by rows .* 14 tensors")
        described = run_json("inspect", self.model)
        self.assertTrue(described["quantization"].startswith("FP8: 14 matrices"))
        self.assertIsNone(run_json("inspect", self.twin)["quantization"])
        self.assertLess(described["sweep_bytes"], run_json("inspect", self.twin)["sweep_bytes"])
        self.ok("plan", self.model, "--memory", "200M")

    def test_writes_the_text_of_the_dequantised_model_plainly_and_by_trees(self):
        for temperature in (0, 0.8):
            sampling = ("--temp", temperature, "--seed", 7)
            expected = run_json("generate", self.twin, *PROMPT, *sampling)["tokens"]
            for more in ([], ["--resident", 0], ["-md", self.twin, "--tree", "4,2,1"],
                         ["-md", self.model, "--tree", "1x4", "--resident", 0]):
                text = run_json("generate", self.model, *PROMPT, *sampling, *more)["tokens"]
                if temperature == 0 or not any(str(word) == "-md" for word in more):
                    self.assertEqual(text, expected, more)

    def test_predicts_texts_as_the_dequantised_model_does(self):
        text = self.dir / "text"
        text.write_text("some words of a text, twice: some words of a text")
        of = [run_json("perplexity", model, "-f", text) for model in (self.model, self.twin)]
        self.assertEqual(*([one["perplexity"], one["nll"], one["tokens"]] for one in of))

    def test_becomes_the_files_that_the_dequantised_model_becomes(self):
        for words, out in ((("quantize", "--type", "q8_0"), ""), (("inflate", "--size", "2M"), "/model.safetensors")):
            made = []
            for model in (self.model, self.twin):
                to = self.dir / f"{words[0]}-{model.name}" / "made"
                to.parent.mkdir()
                self.ok(words[0], "-m", model, "-o", to, *words[1:])
                made.append(to)
            if words[0] == "quantize":
                texts = [run_json("generate", to, *PROMPT)["tokens"] for to in made]
                self.assertEqual(*texts)
                self.assertEqual(made[0].stat().st_size, made[1].stat().st_size)
            else:
                self.assertEqual(*((to / "model.safetensors").read_bytes() for to in made))

    def test_a_code_that_is_no_number_is_found_by_what_uses_it(self):
        header, data = read_safetensors(self.model / "model.safetensors")
        at = header["model.layers.1.mlp.up_proj.weight"]["data_offsets"][0]
        write_safetensors(self.model / "model.safetensors", header, data[:at] + b"\x7f" + data[at + 1:])
        self.ok("inspect", self.model)  # which reads no weights
        result = run("generate", self.model, *PROMPT)
        self.assertEqual(result.returncode, 1)
        self.assertIn("first those of the MLP of layer 1", result.stderr)
        result = run("quantize", "-m", self.model, "-o", self.dir / "q.gguf", "--type", "q8_0")
        self.assertEqual(result.returncode, 1)
        self.assertIn("tensor model.layers.1.mlp.up_proj.weight, row 0 holds a value that is not finite", result.stderr)

    def test_what_is_wrong_is_said_with_its_name(self):
        header, data = read_safetensors(self.model / "model.safetensors")
        name = "model.layers.0.self_attn.k_proj.weight"
        header[name + "_scale_inv"]["dtype"] = "I32"
        write_safetensors(self.model / "model.safetensors", header, data)
        result = run("inspect", self.model)
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"'{name}", result.stderr)
        self.assertIn("of FP8", result.stderr)


class PackedFp8(TempDirCase):
    """Two layers with rows so short that packing them gains nothing, and two of zeros."""

    def setUp(self):
        super().setUp()
        self.model, twin = self.dir / "model", bytes_model(self.dir / "twin")
        self.ok("inflate", "-m", bytes_model(self.dir / "tiny"), "-o", self.model, "--size", "2M")
        as_fp8(self.model, twin, blocks=False)
        self.packed = self.dir / "packed"

    def ok(self, *words):
        result = run(*words)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def test_is_packed_and_given_back_with_its_scales(self):
        said = self.ok("pack", "-m", self.model, "-o", self.packed).stdout
        self.assertRegex(said, r"\d+ matrices packed by bf16-window-512, 14 matrices packed by e4m3-levels-512, 14 as they were")
        self.assertIn("packed FP8 by rows", run_json("inspect", self.packed)["dtypes"])
        self.assertEqual(*(run_json("inspect", model)["quantization"] for model in (self.model, self.packed)))
        for more in ([], ["--resident", 0]):
            texts = [run_json("generate", model, *PROMPT, *more)["tokens"] for model in (self.model, self.packed)]
            self.assertEqual(*texts)
        self.assertIn("tensors have the checksum", self.ok("unpack", "-m", self.packed, "-o", self.dir / "back").stdout)

        def stored(folder):
            header, data = read_safetensors(folder / "model.safetensors")
            header.pop("__metadata__", None)
            return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}

        self.assertEqual(stored(self.dir / "back"), stored(self.model))
        self.assertEqual((self.dir / "back/config.json").read_bytes(), (self.model / "config.json").read_bytes())

    def test_a_codec_that_is_for_none_of_its_matrices_is_an_error(self):
        tiny = self.dir / "tiny"
        result = run("pack", "-m", tiny, "-o", self.packed, "--codec", "e4m3-levels-512")
        self.assertEqual(result.returncode, 1)
        self.assertIn("has no matrix that codec e4m3-levels-512 is for", result.stderr)
        self.assertFalse(self.packed.exists())
        result = run("pack", "-m", tiny, "-o", self.packed, "--codec", "e4m3")
        self.assertEqual(result.returncode, 2)
        self.assertIn("there are bf16-window-512, bf16-levels-512, e4m3-levels-512", result.stderr)

    def test_plan_says_if_packing_pays(self):
        words = "--memory", "1G", "--spec", "none"
        plan = run_json("plan", "-m", self.model, *words)
        forms = plan["packing"]["forms"]
        self.assertEqual(set(forms), {"FP8 by rows", "e4m3-levels-512"})
        self.assertEqual(forms["FP8 by rows"]["seconds_per_token"], plan["plan"]["seconds_per_token"])
        self.assertAlmostEqual(forms["e4m3-levels-512"]["bits"], 6.82, delta=.05)
        self.assertIn(plan["packing"]["pays"], forms)
        self.assertRegex(self.ok("plan", "-m", self.model, *words).stdout,
                         r"packing: products of one row, unpacking included, take FP8 by rows \(8.01 bits a weight\) at [\d.]+ GB/s of FP8")
        self.ok("pack", "-m", self.model, "-o", self.packed)
        packed = run_json("plan", "-m", self.packed, *words)
        self.assertEqual(packed["packing"]["forms"]["e4m3-levels-512"]["seconds_per_token"],
                         packed["plan"]["seconds_per_token"])


if __name__ == "__main__":
    main()
