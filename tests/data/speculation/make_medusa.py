#!/usr/bin/env python3
"""Makes heads for the tiny checkpoint tests/data/model/llama2 and what PyTorch says that they guess (medusa.golden.json).

  make_medusa.py   (needs torch transformers safetensors; seconds)

The heads are written as Medusa-1 has them (arXiv:2401.10774, 2.1.1): z = h, z += silu(W z + b) for each block, logits = U z. Here in
plain torch, on the values that transformers' own model gives its head. Of random weights: medusa_tied.safetensors with one block
and the model's head for U, medusa_own.safetensors with two blocks and matrices of their own. Where the best tokens are too close
to each other for any order of additions, the guess is null; the script fails where that is so often.
"""
import json
import pathlib

import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parent / "model/llama2"
HEADS, BEST, PROMPT, NEW = 3, 4, 12, 24
APART = 2e-3


def make(kind, blocks, own, dim, vocab):
    """Tensors of a file, and what they compute."""
    tensors = {}
    for head in range(HEADS):
        for block in range(blocks):
            tensors[f"{head}.{block}.linear.weight"] = 0.25 * torch.randn(dim, dim)
            tensors[f"{head}.{block}.linear.bias"] = 0.25 * torch.randn(dim)
        if own:
            tensors[f"{head}.{blocks}.weight"] = torch.randn(vocab, dim)
    tensors = {name: value.to(torch.bfloat16) for name, value in tensors.items()}
    safetensors.torch.save_file(tensors, HERE / f"medusa_{kind}.safetensors")
    of = lambda name: tensors[name].to(torch.float32)

    def logits(hidden, head, matrix):
        z = hidden
        for block in range(blocks):
            z = z + torch.nn.functional.silu(of(f"{head}.{block}.linear.weight") @ z + of(f"{head}.{block}.linear.bias"))
        return (of(f"{head}.{blocks}.weight") if own else matrix) @ z

    return logits


def best(logits):
    values, tokens = logits.topk(BEST + 1)
    apart = (values[:-1] - values[1:]).min().item()
    return tokens[:BEST].tolist() if apart > APART else None


@torch.no_grad()
def main():
    torch.manual_seed(5)
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    dim, vocab = model.config.hidden_size, model.config.vocab_size
    kinds = {"tied": make("tied", 1, False, dim, vocab), "own": make("own", 2, True, dim, vocab)}
    prompt = torch.randint(3, vocab, (PROMPT,)).tolist()
    text = list(prompt)
    while len(text) < PROMPT + NEW:
        text.append(model(torch.tensor([text])).logits[0, -1].argmax().item())
    hidden = model.model(torch.tensor([text])).last_hidden_state[0]
    golden = {"prompt": prompt, "text": text[PROMPT:], "guesses": {}}
    for kind, logits in kinds.items():
        # The last of a text's n tokens is a tree's root, and the heads read what predicted it.
        golden["guesses"][kind] = {
            n: [best(logits(hidden[n - 2], head, model.lm_head.weight)) for head in range(HEADS)]
            for n in range(PROMPT + 1, PROMPT + NEW)}
        told = [guess for guesses in golden["guesses"][kind].values() for guess in guesses]
        if sum(guess is None for guess in told) > len(told) // 5:
            raise SystemExit(f"{kind}: too many places where guesses are too close to each other; take another seed")
    (HERE / "medusa.golden.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
