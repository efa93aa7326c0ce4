#!/usr/bin/env python3
"""Writes graphs.json: drafts by table, and what growing and unfolding their graphs makes of them.

The slow way: a node of a graph is its path from the root (a tuple of tokens), a merge an entry in a
map from path to path, and every question is answered by walking. Written from "Graph-Structured
Speculative Decoding", section 4 and appendix A, not from src/speculation.

The draft: the row of a path is rows[len(path) % 3][its last token, or the text's], in 1024ths, so
that products of a few of them are exact. A case says:
  text      what is committed; its last token is the root
  growth    children, steps, least, least_of_siblings, merge (0: none), within_level
  limits    nodes of the tree, widest level that is run, nodes that are run
  run       paths that the draft ran, in their order; the root's is []
  tokens, parents   the tree, breadth first
  copied    nodes that stand for others
  row       whose row a node's children come from: its number in `run`, or -1
  onto_ancestors    the tree's tokens if a node could be merged into one above it: a wrong program
Run: python3 make_graphs.py > graphs.json
"""
import json
import random

VOCAB = 4


def make_rows(rng):
    """[3][VOCAB][VOCAB], each row of distinct 1024ths."""
    table = []
    for _ in range(3 * VOCAB):
        while True:
            weights = [rng.random() ** 3 for _ in range(VOCAB)]
            row = [int(1024 * w / sum(weights)) for w in weights]
            row[rng.randrange(VOCAB)] += 1024 - sum(row)
            if len(set(row)) == VOCAB:
                break
        table.append(row)
    return [table[VOCAB * i:VOCAB * (i + 1)] for i in range(3)]


class Twin:
    def __init__(self, case, onto_ancestors=False):
        self.text, self.rows = tuple(case["text"]), case["rows"]
        self.growth, self.limits = case["growth"], case["limits"]
        self.onto_ancestors = onto_ancestors
        self.children = {}  # path -> paths
        self.merged = {}    # path -> path
        self.run = [()]

    def q(self, path):
        """Probability of a path's last token."""
        above = path[:-1]
        last = (self.text + above)[-1]
        return self.rows[len(above) % 3][last][path[-1]] / 1024

    def reach(self, path):
        product = 1.0
        for i in range(len(path)):
            product *= self.q(path[:i + 1])
        return product

    def ending(self, path):
        return (self.text + path)[-self.growth["merge"]:]

    def best_children(self, path):
        order = sorted(range(VOCAB), key=lambda t: (-self.q(path + (t,)), t))
        return [path + (t,) for t in order[:self.growth["children"]] if self.q(path + (t,)) > 0]

    def reaches(self, start, goal, seen):
        if start == goal:
            return True
        if start in seen:
            return False
        seen.add(start)
        below = list(self.children.get(start, []))
        if start in self.merged:
            below.append(self.merged[start])
        return any(self.reaches(path, goal, seen) for path in below)

    def may_merge(self, first, path):
        if not self.reaches(first, path, set()):
            return True
        return self.onto_ancestors and path[:len(first)] == first

    def is_leaf(self, path):
        siblings = self.children[path[:-1]]
        best = max(self.q(sibling) for sibling in siblings)
        return self.q(path) < self.growth["least"] or self.q(path) < self.growth["least_of_siblings"] * best

    def grow(self):
        g = self.growth
        first = {self.ending(()): ()} if g["merge"] else {}
        frontier = [()]
        tree = [((), (), -1, False)]  # as unfold() has it; within a level it grows with the graph
        level_begins = 0
        for level in range(g["steps"]):
            new = []
            for path in frontier:
                self.children[path] = self.best_children(path)
                new += self.children[path]
            if g["within_level"]:
                level_begins = self.unfold_level(tree, level_begins)
                if len(tree) >= self.limits["nodes"]:
                    break
                first = {}
            frontier = []
            for path in new:
                if self.is_leaf(path):
                    continue
                earlier = first.get(self.ending(path)) if g["merge"] else None
                if earlier is not None and self.may_merge(earlier, path):
                    self.merged[path] = earlier
                    continue
                if g["merge"]:
                    first.setdefault(self.ending(path), path)
                frontier.append(path)
            if level + 1 == g["steps"]:
                break
            room = min(self.limits["widest"], self.limits["run"] - len(self.run))
            likeliest = sorted(frontier, key=lambda path: -self.reach(path))[:room]
            frontier = [path for path in frontier if path in likeliest]
            self.run += frontier
            if not frontier:
                break
        return tree if g["within_level"] else self.unfold()

    def below(self, entry, number):
        """Returns what hangs below a node of the tree: (path in the tree, node of the graph, parent, copy)."""
        path, node, _, copy = entry
        original = self.merged.get(node, node)
        return [(path + child[-1:], child, number, copy or original != node)
                for child in self.children.get(original, [])]

    def unfolded_reach(self, tree, entry):
        if entry[2] < 0:
            return 1.0
        return self.unfolded_reach(tree, tree[entry[2]]) * self.q(entry[1])

    def unfold(self):
        """The likeliest first; of equal ones the one that came up first."""
        tree, open_ = [], [((), (), -1, False)]
        while open_ and len(tree) < self.limits["nodes"]:
            best = max(open_, key=lambda entry: self.unfolded_reach(tree, entry))  # the first of equal ones
            open_.remove(best)
            tree.append(best)
            open_ += self.below(best, len(tree) - 1)
        return tree

    def unfold_level(self, tree, begins):
        ends = len(tree)
        for number in sorted(range(begins, ends), key=lambda i: -self.unfolded_reach(tree, tree[i])):
            for entry in self.below(tree[number], number):
                if len(tree) < self.limits["nodes"]:
                    tree.append(entry)
        return ends


def breadth_first(tree):
    """Indices into `tree`, in the order of the numbers that the nodes get."""
    order = [0]
    for number in order:
        order += [i for i in range(1, len(tree)) if tree[i][2] == number]
    return order


def make_case(seed):
    rng = random.Random(seed)
    growth = {"children": rng.choice([1, 2, 2, 3]), "steps": rng.randint(1, 6), "merge": rng.choice([0, 1, 1, 2, 3]),
              "least": rng.choice([0, 0, 0.15]), "least_of_siblings": rng.choice([0, 0.3]),
              "within_level": seed % 2 == 1}
    narrow = rng.random() < 0.3
    limits = {"nodes": rng.randint(1, 64), "widest": 2 if narrow else 1000, "run": 6 if narrow else 1000}
    case = {"text": [rng.randrange(VOCAB) for _ in range(2)], "rows": make_rows(rng), "growth": growth, "limits": limits}
    twin = Twin(case)
    tree = twin.grow()
    order = breadth_first(tree)
    number = {old: new for new, old in enumerate(order)}
    entries = [tree[i] for i in order]
    originals = [twin.merged.get(entry[1], entry[1]) for entry in entries]
    case["run"] = [list(path) for path in twin.run]
    case["tokens"] = [case["text"][-1]] + [entry[0][-1] for entry in entries[1:]]
    case["parents"] = [-1] + [number[entry[2]] for entry in entries[1:]]
    case["copied"] = [int(entry[3]) for entry in entries]
    case["row"] = [twin.run.index(path) if path in twin.run else -1 for path in originals]
    wrong = Twin(case, onto_ancestors=True).grow()
    case["onto_ancestors"] = case["tokens"][:1] + [wrong[i][0][-1] for i in breadth_first(wrong)[1:]]
    return case


if __name__ == "__main__":
    print("[" + ",\n".join(json.dumps(make_case(seed), separators=(",", ":")) for seed in range(90)) + "]")
