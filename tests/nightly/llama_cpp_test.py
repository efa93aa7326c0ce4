"""Files of `canopy quantize` in llama.cpp: it reads each, and of the same values in 32 bits writes Canopy's text.

llama.cpp rounds activations before products with weights of 16 bits or in blocks, and Canopy does not; of random models this moves
log-probabilities by tenths. So what is compared token by token is the file as llama-quantize writes its values in 32 bits, where
nothing is rounded. What llama.cpp makes of the file itself is printed. Needs llama-server and llama-quantize in CANOPY_LLAMA_CPP;
bench/compare/run builds them."""
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from stored_weights_test import read_safetensors, write_safetensors  # noqa: E402
from support import DATA, REPO, SMOLLM2, TOKENIZER, TempDirCase, main, run, run_json  # noqa: E402

LLAMA = pathlib.Path(os.environ.get("CANOPY_LLAMA_CPP", REPO / "build/compare/llama.cpp/build/bin"))
# Families of tests/data/model that GGUF has.
MODELS = ("llama2", "llama3", "llama_linear", "llama_yarn", "mistral", "ministral3", "mistral3", "qwen2", "qwen3", "seed_oss",
          "mixtral", "olmoe", "qwen3_moe_fp8", "qwen3_5_fp8", "qwen3_next_fp8")
TYPES = "bf16", "q8_0", "q4_k"
END, PROMPTS, TOKENS = 11, 4, 24  # 11 is what llama.cpp takes for the end where a file names none
SAME = 1e-3  # nats, in 32 bits: sums in another order
PARTS = ("-ctk", "f32", "-ctv", "f32", "-fa", "off", "--no-warmup", "--fit", "off", "-np", "1", "-t", "2", "-c", "256")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def of_llama(model, prompts, tokens):
    """[(id, log-probability)...] of each prompt's text, without its end."""
    port = free_port()
    with open(f"{model}.log", "w") as log:
        server = subprocess.Popen([LLAMA / "llama-server", "-m", model, "--port", str(port), *PARTS], stdout=log, stderr=log)

    def ask(route, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{route}", body and json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=300))

    try:
        for _ in range(3000):
            try:
                ask("/health")
                break
            except OSError:
                if server.poll() is not None:
                    raise AssertionError(f"llama-server ended on {model}: " + pathlib.Path(f"{model}.log").read_text()[-2000:])
                time.sleep(0.1)
        for prompt in prompts:
            told = ask("/completion", {"prompt": prompt, "n_predict": tokens, "temperature": 0, "n_probs": 1, "cache_prompt": False})
            yield [(token["id"], token["logprob"]) for token in told["completion_probabilities"] if token["id"] != END]
    finally:
        server.terminate()
        server.wait()


def of_canopy(model, prompts, tokens):
    """The same, each with the best tokens' log-probabilities."""
    for prompt in prompts:
        words = ("--tokens", ",".join(map(str, prompt))) if isinstance(prompt, list) else ("-p", prompt)
        made = run_json("generate", "-m", model, *words, "-n", tokens, "--logprobs", 20)["logprobs"]
        yield [(token["id"], token["logprob"], {top["id"]: top["logprob"] for top in token["top_logprobs"]})
               for token in made if token["id"] != END]


def compare(theirs, ours):
    """Counts the tokens that are the same; also the largest difference of a log-probability, and Canopy's margin where the texts part."""
    common = next((i for i, (a, b) in enumerate(zip(theirs, ours)) if a[0] != b[0]), min(len(theirs), len(ours)))
    noise = max((abs(a[1] - b[1]) for a, b in zip(theirs[:common], ours[:common])), default=0)
    margin = 0
    if common < max(len(theirs), len(ours)):
        best = ours[common][2] if common < len(ours) else {}
        other = theirs[common][0] if common < len(theirs) else END
        margin = max(best.values()) - best[other] if other in best else float("inf")
    return common, noise, margin


def with_all_kv_heads(folder, config):
    """Gives each query head a KV head, a copy of its group's: the same function, in the one form of OLMoE that llama.cpp loads."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    header, data = read_safetensors(folder / "model.safetensors")
    header.pop("__metadata__", None)
    out, body = {}, b""
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        values, shape = data[begin:end], tensor["shape"]
        if any(f"self_attn.{part}." in name for part in ("k_proj", "v_proj", "k_norm")):
            size = len(values) // kv_heads
            values = b"".join(values[i * size:(i + 1) * size] * (heads // kv_heads) for i in range(kv_heads))
            shape = [shape[0] * heads // kv_heads, *shape[1:]]
        out[name] = {"dtype": tensor["dtype"], "shape": shape, "data_offsets": [len(body), len(body) + len(values)]}
        body += values
    write_safetensors(folder / "model.safetensors", out, body)
    config["num_key_value_heads"] = heads


@unittest.skipUnless((LLAMA / "llama-server").exists() and (LLAMA / "llama-quantize").exists(),
                     f"no llama-server and llama-quantize in {LLAMA}: bench/compare/run builds them")
class LlamaCpp(TempDirCase):
    def check(self, name, source, type_, prompts, tokens):
        file, in_32_bits = self.dir / f"{name}-{type_}.gguf", self.dir / f"{name}-{type_}-f32.gguf"
        made = run("quantize", "-m", source, "-o", file, "--type", type_)
        self.assertEqual(made.returncode, 0, made.stderr)
        done = subprocess.run([LLAMA / "llama-quantize", "--allow-requantize", file, in_32_bits, "F32"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ours = list(of_canopy(file, prompts, tokens))
        lines = []
        for path, of in ((in_32_bits, "in 32 bits"), (file, "the file")):
            found = [compare(*texts) for texts in zip(of_llama(path, prompts, tokens), ours, strict=True)]
            same, noise = sum(common for common, _, _ in found), max(noise for _, noise, _ in found)
            margin = max(margin for _, _, margin in found)
            lines.append(f"{of}: {same} of {sum(map(len, ours))} tokens, noise {noise:.1e}, margin {margin:.1e}")
            if path == in_32_bits:
                self.assertGreater(same, PROMPTS, lines)
                self.assertLess(noise, SAME, lines)
                self.assertLessEqual(margin, 2 * SAME, lines)
        print(f"{name} {type_}: {'; '.join(lines)}", flush=True)

    def test_it_writes_the_same_text(self):
        for name in MODELS:
            source = self.dir / name
            shutil.copytree(DATA / "model" / name, source)
            (source / "tokenizer.json").write_text(json.dumps(TOKENIZER))
            config = json.loads((source / "config.json").read_text())
            config["eos_token_id"] = END
            if "text_config" in config:
                config["text_config"]["eos_token_id"] = END
            if name == "olmoe":
                with_all_kv_heads(source, config)
            (source / "config.json").write_text(json.dumps(config))
            rng = random.Random(name)
            prompts = [[rng.choice([id for id in range(97) if id != END]) for _ in range(20)] for _ in range(PROMPTS)]
            for type_ in TYPES:
                with self.subTest(f"{name} {type_}"):
                    self.check(name, source, type_, prompts, TOKENS)

    @unittest.skipUnless(SMOLLM2.exists(), "needs SmolLM2: scripts/get_model")
    def test_it_writes_the_same_text_of_a_real_model(self):
        for type_ in TYPES:
            with self.subTest(type_):
                self.check("smollm2", SMOLLM2, type_, ["The capital of France is", "Once upon a time, a fox", "1, 2, 4, 8,"], 48)


if __name__ == "__main__":
    main()
