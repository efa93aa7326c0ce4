#!/usr/bin/env python3
"""Hits that caches of experts would have had, from routes that `canopy generate --route-trace FILE` recorded.

  bench/routes.py FILE [--shares 5,10,20,40]

For each share of all experts that fits into memory: requests that find their expert under Canopy's policy (a quota for
each layer, the least often chosen lately leaves), under least-recently-used over each layer and over all layers, and
under the best there could be (Belady: who is needed last leaves), and misses against the best. The first line is what
the recorded run itself had room for.
"""
import argparse
import collections
import json

HALF_LIFE = 32  # tokens, as ExpertPolicy::kHalfLife


class Trace:
    """Sweeps as lists of (layer, rows), rows that became text, and the quota of each layer."""

    def __init__(self, path):
        with open(path) as file:
            lines = [json.loads(line) for line in file]
        head = lines[0]
        self.layers, self.experts, self.active, self.stay = head["layers"], head["experts"], head["active"], head["stay"]
        self.events = lines[1:]  # in order: layers, then "kept" or "abandoned"

    def requests(self):
        """(layer, {expert: rows}) of all sweeps."""
        for event in self.events:
            if "layer" in event:
                yield event["layer"], collections.Counter(e for row in event["rows"] for e in row)


def share(slots, trace):
    n = len(trace.layers)
    return [min(trace.experts, slots // n + (i < slots % n)) for i in range(n)]


def policy_hits(trace, quotas, changes=False):
    """Hits of a cache with these quotas; with `changes` it grows and shrinks as the recorded run's own did."""
    quota = dict(zip(trace.layers, quotas))
    stay = {layer: set() for layer in trace.layers}
    frequency = {layer: [0.0] * trace.experts for layer in trace.layers}
    asked = {layer: [0] * trace.experts for layer in trace.layers}
    hits = clock = 0
    sweep = []

    def credit(rows_kept):
        for layer, rows in sweep:
            for i, row in enumerate(rows):
                if rows_kept is not None and i not in rows_kept:
                    continue
                of_layer = frequency[layer]
                for e in range(trace.experts):
                    of_layer[e] *= 2 ** (-1 / HALF_LIFE)
                for e in row:
                    of_layer[e] += 1
        sweep.clear()

    for event in trace.events:
        if "kept" in event:
            credit(None if event["kept"] is None else set(event["kept"]))
            continue
        if "abandoned" in event:
            sweep.clear()
            continue
        if "stay" in event:
            if changes:
                quota = dict(zip(trace.layers, event["stay"]))
                for layer, of_layer in stay.items():
                    ranked = sorted(of_layer, key=lambda e: (-frequency[layer][e], -asked[layer][e], e))
                    stay[layer] = set(ranked[:quota[layer]])
            continue
        layer, rows = event["layer"], event["rows"]
        sweep.append((layer, rows))
        clock += 1
        counts = collections.Counter(e for row in rows for e in row)
        found = stay[layer] & counts.keys()
        hits += len(found)
        for e in counts:
            asked[layer][e] = clock
        room = quota[layer] - len(found)
        missed = sorted(counts.keys() - found, key=lambda e: (-counts[e], e))[:room]
        others = sorted(stay[layer] - counts.keys(), key=lambda e: (-frequency[layer][e], -asked[layer][e], e))
        stay[layer] = found | set(missed) | set(others[:room - len(missed)])
    return hits


def lru_hits(trace, slots, by_layer):
    pools = share(slots, trace) if by_layer else [slots]
    caches = {layer: collections.OrderedDict() for layer in trace.layers} if by_layer else None
    one, hits = collections.OrderedDict(), 0
    sizes = dict(zip(trace.layers, pools)) if by_layer else None
    for layer, counts in trace.requests():
        cache, size = (caches[layer], sizes[layer]) if by_layer else (one, pools[0])
        for expert in sorted(counts):
            key = layer, expert
            if key in cache:
                hits += 1
                cache.move_to_end(key)
            elif size > 0:
                cache[key] = True
                if len(cache) > size:
                    cache.popitem(last=False)
    return hits


def best_hits(trace, slots):
    """Belady over all layers."""
    keys = [(layer, e) for layer, counts in trace.requests() for e in sorted(counts)]
    following, last = [0] * len(keys), {}
    for i in range(len(keys) - 1, -1, -1):
        following[i] = last.get(keys[i], len(keys) + i)
        last[keys[i]] = i
    cache, hits = {}, 0  # key: when it is needed next
    for i, key in enumerate(keys):
        if key in cache:
            hits += 1
        elif len(cache) >= slots:
            latest = max(cache, key=cache.get)
            if cache[latest] <= following[i]:
                continue
            del cache[latest]
        if slots > 0:
            cache[key] = following[i]
    return hits


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--shares", default="5,10,20,40", help="percent of all experts")
    asked = parser.parse_args()
    trace = Trace(asked.file)
    everything = len(trace.layers) * trace.experts
    requests = sum(len(counts) for _, counts in trace.requests())
    print(f"{len(trace.layers)} layers, {trace.active} of {trace.experts} experts, {requests} requests")
    print(f"recorded: {sum(trace.stay)} stay, {policy_hits(trace, trace.stay, changes=True)} hits")
    print("share    policy  LRU by layer  LRU over all    best  misses, times the best's")
    for percent in map(float, asked.shares.split(",")):
        slots = round(everything * percent / 100)
        ours, best = policy_hits(trace, share(slots, trace)), best_hits(trace, slots)
        misses = (requests - ours) / max(1, requests - best)
        print(f"{percent:4.0f} %   {ours / requests:6.3f}  {lru_hits(trace, slots, True) / requests:12.3f}"
              f"  {lru_hits(trace, slots, False) / requests:12.3f}  {best / requests:6.3f}  {misses:8.2f}")


if __name__ == "__main__":
    main()
