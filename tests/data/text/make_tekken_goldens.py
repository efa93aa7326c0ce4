#!/usr/bin/env python3
"""Writes a small tekken.json and what Mistral's library makes of the texts of the other tokenizers.

    pip install mistral-common tokenizers
    make_tekken_goldens.py

mistral/tekken.json: bytes, words of make_tokenizer_goldens.py's corpus, and tokens that show in which order neighbours
merge, that a word which is a token is taken whole, and where the vocabulary is cut. mistral/golden.json has the lists
that make_tokenizer_goldens.py describes, and
  quoted    ids of the whole text, special tokens in it being text: what the library's encode() gives
  more      texts of its own, with `special` and `quoted`
  unlisted  the special tokens of files that list none
The library finds no special tokens in texts, so `plain` and `special` join its ids of what lies between them.
"""
import base64
import json
import pathlib
import re

from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from make_tokenizer_goldens import TEKKEN, TEXTS, byte_level, isolate, runs, text_of, write_json

HERE = pathlib.Path(__file__).parent / "mistral"
SPECIALS = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[ARGS]", "<pad>", "<|im_start|>", "<|im_start"]
FILLED = 16
# The rank of the parts does not choose between two ways to join a token: "ligh" comes before its parts "gh" and "ig".
ORDER = ["ligh", "gh", "ig", "lig", "aaa", "aa", "aaaaaaa", "  \n", "unmergeable", " unmergeable", "world", "é", "🌲"]
CUT = ["memory", " memory", "Hello"]
MORE = [
    "[INST]Hello, memory[/INST]world</s>[INST] [/INST]", "[TOOL_CALLS]add[ARGS]{\"a\": 12}</s>", "[INST", "[[INST]]",
    "<SPECIAL_12><SPECIAL_15><SPECIAL_16> <SPECIAL_9>", "<|im_start|><|im_start<|im_start|>", "<s><s>\n</s>",
    "light lighgh delight ligh lig liligh", "".join("a" * n + " " for n in range(1, 40)),
    "unmergeable xunmergeable unmergeables  unmergeable", "\U0001f332\U0001f332 \U0001f333", "caf\u00e9\u00e9 cafe\u0301",
    "CamelCaseWords HTTPServer iPhone McDonald ABCdef", "a/b//c ///\r\n/d", "  \n   \n \n\n  x",
    "1234567890 \u0663\u0664 \u00bd x2y", "\u4f60\u597d\uff0c\u4e16\u754c\u3002\ud55c\uae00 \u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u0e44\u0e17\u0e22",
]


def visible_bytes():
    """GPT-2's alphabet: the byte of each visible character."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


def vocabulary():
    byte_of = visible_bytes()
    trained = json.loads(byte_level(isolate(TEKKEN), 420, []).to_str())["model"]["merges"]
    words = [bytes(byte_of[c] for c in "".join(pair)) for pair in trained]
    rest = [word for word in words if word.decode(errors="replace") not in CUT]
    order = [text.encode() for text in ORDER]
    tokens = [bytes([b]) for b in range(256)] + list(dict.fromkeys(order[:7] + rest + order[7:]))
    return tokens, [text.encode() for text in CUT]


def write_tekken(path):
    tokens, cut = vocabulary()
    size = FILLED + len(tokens)

    def entry(rank, token):
        try:
            text = token.decode()
        except UnicodeDecodeError:
            text = None
        return {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": text}

    write_json(path, {
        "config": {"pattern": TEKKEN, "num_vocab_tokens": len(tokens + cut), "default_vocab_size": size,
                   "default_num_special_tokens": FILLED, "version": "v13"},
        "vocab": [entry(rank, token) for rank, token in enumerate(tokens + cut)],
        "special_tokens": [{"rank": i, "token_str": text, "is_control": True} for i, text in enumerate(SPECIALS)]})


def golden_of(tekken, texts):
    specials = sorted((tekken.id_to_piece(i) for i in range(tekken.num_special_tokens)), key=len, reverse=True)
    pattern = re.compile("(" + "|".join(map(re.escape, specials)) + ")")

    def ids_of(text):
        ids = []
        for part in pattern.split(text):
            ids += [tekken.get_special_token(part)] if part in specials else tekken.encode(part, bos=False, eos=False)
        return ids

    golden = {key: [] for key in ("plain", "special", "decoded", "skipped", "quoted")}
    for text in texts:
        special = [tekken.bos_id] + ids_of(text)
        golden["plain"].append(runs(ids_of(text)))
        golden["special"].append(runs(special))
        golden["quoted"].append(runs(tekken.encode(text, bos=False, eos=False)))
        for key, policy in ("decoded", SpecialTokenPolicy.KEEP), ("skipped", SpecialTokenPolicy.IGNORE):
            decoded = tekken.decode(special, special_token_policy=policy)
            golden[key].append(None if decoded == text else decoded if len(decoded) < 500 else "long")
    golden["more"] = [{"text": text, "special": runs([tekken.bos_id] + ids_of(text)),
                       "quoted": runs(tekken.encode(text, bos=False, eos=False))} for text in MORE]
    golden["unlisted"] = [str(token["token_str"].value) for token in Tekkenizer.DEPRECATED_SPECIAL_TOKENS]
    return golden


def main():
    write_tekken(HERE / "tekken.json")
    tekken = Tekkenizer.from_file(HERE / "tekken.json")
    write_json(HERE / "golden.json", golden_of(tekken, map(text_of, TEXTS)))


if __name__ == "__main__":
    main()
