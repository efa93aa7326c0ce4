#!/usr/bin/env python3
"""Writes rouge.json: ROUGE-1, -2 and -L (F1) of some texts against references.

The first cases were worked out by hand, and are asserted here; the others are random texts. All are computed by definitions
that are written out slowly and independently of src/measure/rouge.cc: n-grams are crossed off a list one by one, and the longest
common subsequence is found by recursion. Run: python3 make_rouge.py > rouge.json
"""
import functools
import json
import random
import re
from fractions import Fraction

BY_HAND = [
    # 5 of 6 words are common, 3 of 5 pairs (the cat, on the, the mat), in order: the cat on the mat.
    ("The cat sat on the mat.", "the cat was on the mat", ("5/6", "3/5", "5/6")),
    # Three words, one pair (the gunman), which is also the longest in order: 3/4, 1/3, 2/4.
    ("the gunman kill police", "police killed the gunman", ("3/4", "1/3", "1/2")),
    # All of the text's words, half of the reference's: 2 * 2 / (2 + 4); pairs 2 * 1 / (1 + 3).
    ("one, two", "one two three four", ("2/3", "1/2", "2/3")),
    # A word counts as often as both have it: 2 * 1 / (3 + 2).
    ("the the the", "the cat", ("2/5", "0", "2/5")),
    # A letter that is none of a to z lies between words: na, ve, 7, b against naive, 7, b.
    ("na\u00efve 7-B", "NAIVE 7 b", ("4/7", "2/5", "4/7")),
    ("", "a reference", ("0", "0", "0")),
    ("\u4e2d\u6587", "a reference", ("0", "0", "0")),
    ("word", "word", ("1", "0", "1")),
]


def words_of(text):
    return re.findall("[a-z0-9]+", "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in text))


def f1(common, text, reference):
    if not common:
        return Fraction(0)
    precision, recall = Fraction(common, text), Fraction(common, reference)
    return 2 * precision * recall / (precision + recall)


def by_runs(text, reference, n):
    runs, left = ([tuple(words[i:i + n]) for i in range(len(words) - n + 1)] for words in (text, reference))
    all_left, common = len(left), 0
    for run in runs:
        if run in left:
            left.remove(run)
            common += 1
    return f1(common, len(runs), all_left)


def by_order(text, reference):
    @functools.cache
    def longest(i, j):
        if i == len(text) or j == len(reference):
            return 0
        if text[i] == reference[j]:
            return 1 + longest(i + 1, j + 1)
        return max(longest(i + 1, j), longest(i, j + 1))

    return f1(longest(0, 0), len(text), len(reference))


def rouge(text, reference):
    text, reference = words_of(text), words_of(reference)
    return by_runs(text, reference, 1), by_runs(text, reference, 2), by_order(text, reference)


def random_text(chance):
    vocabulary = ["the", "The", "cat", "of", "was", "42", "a", "ran", "mat"]
    return "".join(chance.choice(vocabulary) + chance.choice([" ", ", ", ".\n", " - "]) for _ in range(chance.randint(1, 40)))


def main():
    cases = []
    for text, reference, expected in BY_HAND:
        found = rouge(text, reference)
        for value, wanted in zip(found, expected):
            assert value == Fraction(wanted), (text, found)
        cases.append((text, reference, found))
    chance = random.Random(1)
    for _ in range(40):
        text, reference = random_text(chance), random_text(chance)
        cases.append((text, reference, rouge(text, reference)))
    print(json.dumps([{"text": t, "reference": r, "rouge": [float(v) for v in values]} for t, r, values in cases], indent=1))


if __name__ == "__main__":
    main()
