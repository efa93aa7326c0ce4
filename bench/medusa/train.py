#!/usr/bin/env python3
"""Trains Medusa heads on what `bench_collect` wrote.

  train.py COLLECTED -o HEADS.safetensors [--heads 4] [--epochs 2] [--seconds 600]
                                                            (needs torch and safetensors)

Head i reads the row by which the model chose token t and guesses token t + 1 + i: one residual block,
z = h + silu(W h + b), W and b zero at first, before the model's own head. Minimised is the sum over
heads of 0.8^i times the cross entropy, with AdamW, over the tokens that the training texts have: of
the others nothing could be learned, and they are most of the arithmetic. A tenth of the texts is held
out; on it is measured, over all tokens, how often head i's guess of each rank is right where the
heads before it had the right token among their guesses. That goes into the file, and `canopy
--medusa` plans its trees by it. Source: arXiv:2401.10774, 2.1 and 2.2.1 (Medusa-1, the model's head
shared).
"""

import argparse
import json
import pathlib
import time

import numpy as np
import safetensors.torch
import torch

DECAY, RANKS = 0.8, 16


def bf16_rows(file, columns):
    rows = torch.from_numpy(np.fromfile(file, dtype=np.int16)).view(torch.bfloat16)
    return rows.view(-1, columns)


def positions_of(texts, heads):
    """Positions of each text whose next `heads` tokens are of the same text."""
    begin = np.concatenate([[0], np.cumsum(texts)])
    whole = [np.arange(b, e - heads) for b, e in zip(begin[:-1], begin[1:]) if e - b > heads]
    return [torch.from_numpy(p) for p in whole]


class Heads(torch.nn.Module):
    def __init__(self, heads, dim):
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(dim, dim) for _ in range(heads))
        for block in self.blocks:
            torch.nn.init.zeros_(block.weight)
            torch.nn.init.zeros_(block.bias)

    def forward(self, h, head):
        return h + torch.nn.functional.silu(self.blocks[head](h))


def train(model, read, tokens, matrix, places, args):
    """Returns the epochs done, a fraction where the time was up, and the different tokens that were learned."""
    order = torch.cat(places)
    seen = torch.unique(torch.cat([tokens[order + 1 + i] for i in range(args.heads)]))
    where = torch.full((matrix.shape[0],), -1)  # of a token, among those that are seen
    where[seen] = torch.arange(len(seen))
    small = matrix[seen].float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
    steps = max(1, args.epochs * len(order) // args.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    begun, step, shown = time.monotonic(), 0, 0.0
    while step < steps:
        shuffled = order[torch.randperm(len(order))]
        for batch in shuffled.split(args.batch):
            if step == steps or time.monotonic() - begun > args.seconds:
                return step * args.batch / len(order), len(seen)
            h = read[batch].float()
            loss = 0.0
            for i in range(args.heads):
                logits = model(h, i) @ small.T
                loss = loss + DECAY**i * torch.nn.functional.cross_entropy(logits, where[tokens[batch + 1 + i]])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if time.monotonic() - shown > 10:
                shown = time.monotonic()
                print(f"  step {step} of {steps}, loss {loss.item():.3f}, {shown - begun:.0f} s", flush=True)
    return step * args.batch / len(order), len(seen)


@torch.no_grad()
def measure(model, read, tokens, matrix, places, heads):
    """Shares [heads, RANKS] of guesses that are right where the earlier heads' were, and all heads' top-1 and top-5."""
    order = torch.cat(places)
    right, asked = torch.zeros(heads, RANKS), torch.zeros(heads)
    first, five = torch.zeros(heads), torch.zeros(heads)
    full = matrix.float()
    for batch in order.split(256):
        h = read[batch].float()
        reached = torch.ones(len(batch), dtype=torch.bool)
        for i in range(heads):
            best = (model(h, i) @ full.T).topk(RANKS).indices
            hit = best == tokens[batch + 1 + i][:, None]
            first[i] += hit[:, 0].sum()
            five[i] += hit[:, :5].sum()
            right[i] += hit[reached].sum(0)
            asked[i] += reached.sum()
            reached = reached & hit.any(1)
    return right / asked[:, None].clamp(min=1), first / len(order), five / len(order)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collected", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seconds", type=float, default=600, help="stop training after so many")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    about = json.loads((args.collected / "collected.json").read_text())
    read = bf16_rows(args.collected / "read.bf16", about["dim"])
    tokens = torch.from_numpy(np.fromfile(args.collected / "tokens.i32", dtype=np.int32)).long()
    matrix = bf16_rows(args.collected / "head.bf16", about["dim"])
    places = positions_of(about["texts"], args.heads)
    held_out = max(1, len(places) // 10)
    # Neighbours were cut from the same text: whole stretches are held out.
    ours, theirs = places[:-held_out], places[-held_out:]
    print(f"{sum(map(len, ours))} positions of {len(ours)} texts to train on, "
          f"{sum(map(len, theirs))} of {len(theirs)} held out")
    model = Heads(args.heads, about["dim"])
    begun = time.monotonic()
    epochs, vocabulary = train(model, read, tokens, matrix, ours, args)
    seconds = time.monotonic() - begun
    shares, first, five = measure(model, read, tokens, matrix, theirs, args.heads)
    for i in range(args.heads):
        print(f"head {i}: top-1 {first[i]:.3f}, top-5 {five[i]:.3f}; where reached "
              + " ".join(f"{p:.3f}" for p in shares[i, :6].tolist()))
    print(f"{epochs:.2f} epochs over {vocabulary} different tokens in {seconds:.0f} s")

    tensors = {}
    for i, block in enumerate(model.blocks):
        tensors[f"{i}.0.linear.weight"] = block.weight.detach().bfloat16()
        tensors[f"{i}.0.linear.bias"] = block.bias.detach().bfloat16()
    tensors["acceptance"] = shares.float().contiguous()
    safetensors.torch.save_file(tensors, args.output, {"canopy.source": about["model"], "format": "pt"})
    print(args.output)


if __name__ == "__main__":
    main()
