#!/usr/bin/env python3
"""Canopy's log probabilities of a random model next to PyTorch's, on a GPU or the CPU.

  bench/logits.py CANOPY [--device cuda] [--layers N] [--shape 1b|8b]     (needs torch and transformers)

Both run the same BF16 weights. PyTorch in f32 is the reference; PyTorch in BF16, as everybody runs it, is the yardstick:
Canopy rounds activations to 16 bits at each product and sums in f32, so it must not be further off than that.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import torch
import transformers

SHAPES = {  # of llama 3.2 and 3.1, but for the vocabulary
    "1b": {"num_hidden_layers": 16, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
           "num_key_value_heads": 8, "head_dim": 64},
    "8b": {"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
           "num_key_value_heads": 8, "head_dim": 128}}
VOCAB, PROMPT, TOKENS = 32000, 300, 16


def write_model(folder, shape, layers):
    config = transformers.LlamaConfig(**SHAPES[shape] | ({"num_hidden_layers": layers} if layers else {}), vocab_size=VOCAB,
                                      max_position_embeddings=4096, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None)
    torch.manual_seed(1)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    vocab = {f"<{i}>": i for i in range(VOCAB)}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None, "pre_tokenizer": {
            "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("canopy", type=pathlib.Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        write_model(pathlib.Path(folder), args.shape, args.layers)
        prompt = [i * 7919 % VOCAB for i in range(1, PROMPT + 1)]
        done = subprocess.run([args.canopy.resolve(), "generate", "-m", folder, "--device", args.device, "--tokens",
                               ",".join(map(str, prompt)), "-n", str(TOKENS), "--ignore-eos", "--logprobs", "20", "--json"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"canopy failed: {done.stderr}")
        said = json.loads(done.stdout)
        text = prompt + said["tokens"]

        def log_probabilities(dtype):
            # Loaded anew: a model that is cast has its rotary frequencies rounded, too.
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(args.device)
            with torch.inference_mode():
                logits = model(torch.tensor([text[:-1]], device=args.device)).logits
            return torch.log_softmax(logits[0, PROMPT - 1:].float(), -1).cpu()

        rounded, exact = log_probabilities(torch.bfloat16), log_probabilities(torch.float32)
    ours, theirs, same = [], [], 0
    for position, report in enumerate(said["logprobs"]):
        for token in report["top_logprobs"]:
            ours.append(token["logprob"] - exact[position, token["id"]].item())
            theirs.append(rounded[position, token["id"]].item() - exact[position, token["id"]].item())
        same += report["top_logprobs"][0]["id"] == exact[position].argmax().item()
    off = lambda errors: (statistics.fmean(e * e for e in errors)) ** 0.5
    print(f"{TOKENS} positions behind {PROMPT} tokens, 20 log probabilities each, against f32: canopy is off by {off(ours):.2e} "
          f"(at most {max(map(abs, ours)):.2e}), PyTorch in bf16 by {off(theirs):.2e} (at most {max(map(abs, theirs)):.2e}); "
          f"the best token is the same at {same} of {TOKENS}")
    if off(ours) > off(theirs):
        sys.exit("canopy is further off than PyTorch in bf16")


if __name__ == "__main__":
    main()
