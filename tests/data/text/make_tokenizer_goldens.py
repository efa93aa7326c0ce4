#!/usr/bin/env python3
"""Writes small tokenizers and what the reference library makes of hostile texts.

    pip install tokenizers sentencepiece gguf
    make_tokenizer_goldens.py [SmolLM2-135M-Instruct.Q4_1.gguf]

For each tokenizer NAME: NAME/tokenizer.json and NAME/golden.json, lists in the order of texts.json:
  plain     ids without special tokens
  special   ids with them
  decoded   the text of `special`, special tokens spelled out
  skipped   the same without the special tokens
A run of one id in a list is written [id, count]; a decoded text that equals its input, null; one of 500
characters or more that does not, "long", which no test looks at. Ids come from `tokenizers` (PyPI); those of
spm/ from `sentencepiece`; smollm2.json is made only when the GGUF file is given.
"""
import io
import itertools
import json
import pathlib
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

HERE = pathlib.Path(__file__).parent

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
          r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# The line ends of this one are characters of the file, not escapes, where that does not matter.
SEED = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^CR\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}CR]+|\s*[CR]+|\s+(?!\S)|\s+"
        .replace("CR", "\r\n"))
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
             r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
             r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

CORPUS = """The forest keeps its light in the canopy, and the roots keep their time below.
Models are larger than memory; a layer is read, it is used, and it is forgotten again.
It's what they're saying: we've seen that I'm late, you'll see, he'd know. DON'T SHOUT, WE'LL HEAR.
Numbers such as 1, 12, 123, 1234 and 3.14159 or 2024-02-29 stand between the words.
for (int i = 0; i < n; ++i) {\n    sum += a[i] * b[i];\n\n\treturn sum;\n}
Über den Wäldern fliegt die Nachtigall; l'été déjà passé, mañana será otro día, señor.
Лес хранит свой свет в кронах деревьев. 森林把光留在树冠里。森の光は樹冠にある。
ป่าเก็บแสงไว้ในเรือนยอด 숲은 빛을 간직한다 الغابة تحفظ نورها नमस्ते दुनिया 🌲🌳👍🏽
The canopy and the light and the layers and the memory and the words and the numbers.
""" * 4

TEXTS = [
    "",
    " ",
    "a",
    "Hello, world!",
    "  two  spaces   and    more     ",
    "\ttabs\t\tand \t mixed\t ",
    "line\nbreak\n\nparagraph\n\n\n end\n",
    "windows\r\nline\r\n\r\nends\r",
    "\n", "\n\n \n  \n", " \n", "   \n\n   x",
    "it's they're I'm we'll he'd you've DON'T WE'LL IT'S 'twas ''s 'ſ",
    "1 12 123 1234 12345 1234567890 3.14 1,000,000 ²³ ½ Ⅻ ٣٤٥ 一二三 ①②",
    "caf\u00e9 cafe\u0301 A\u030a \u00c5 \u212b q\u0323\u0307 q\u0307\u0323 \u1e69 s\u0307\u0323",
    "\u1100\u1161\u11a8 \uac01 \u0958 \u0915\u093c \ufb01 \u2126 \u0344",
    "e" + "\u0301\u0323" * 40,
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪🇫🇷 ❤️ 🌲🌳",
    "ป่าเก็บแสงไว้ในเรือนยอด กำ น้ำ",
    "Лес 森林 foo森bar 숲 الغابة नमस्ते mixedСкрипты123и",
    "for(int i=0;i<n;++i){\n    a[i]+=b[i];\n}\n\n\n\t\t// done",
    "\0", "a\0b\0\0c", "\x01\x02\x7f\x1b[0m",
    "\u00a0nbsp\u2003em\u3000ideographic\u200bzero\u2028line\u0085next\u180evowel",
    "\ufeffbom \ufffd replaced \ufffd\ufffd",
    "x\u00adsoft \u202ertl\u202c \U0010ffff \U000e0001 \ue000",
    "<|endoftext|>", "<|endoftext|><|endoftext|>", " <|endoftext|> ", "a<|endoftext|>b", "<|endoftext|", "|endoftext|>",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<s>one</s> <s> two </s><unk>", "<s", "▁<s>▁", "▁already▁here ▁", "a ▁b▁ c", "<0x0A><0x41>",
    "<tool> x<tool>y <tool>", "[left]  [left]x  [right]   y[right]  ", "word wordy sword word-word _word word", "UPPER upper", "  [both]  z[both][both] q",
    "unmergeable words unmergeable",
    "...!!!???---===>>><<<((()))[]{}||&&$$$", "https://example.org/a?b=c&d=%20#e user@mail.example",
    "ΑΒΓ αβγς ẞß İı Ǆǆ ﬀ", "a\u0300\u0301b", "\u0301start", "ｆｕｌｌ　ｗｉｄｔｈ",
    {"repeat": "a", "times": 10000},
    {"repeat": "A", "times": 1000},
    {"repeat": " ", "times": 10000},
    {"repeat": "\n", "times": 3000},
    {"repeat": "the canopy ", "times": 200},
    {"repeat": "é", "times": 2000},
]


def text_of(entry):
    return entry if isinstance(entry, str) else entry["repeat"] * entry["times"]


def runs(ids):
    out = []
    for value, group in itertools.groupby(ids):
        count = len(list(group))
        out += [[value, count]] if count > 2 else [value] * count
    return out


def write_json(path, document):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, ensure_ascii=True, separators=(",", ":")) + "\n")


def golden_of(tokenizer, texts):
    golden = {"plain": [], "special": [], "decoded": [], "skipped": []}
    for text in texts:
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        special = tokenizer.encode(text, add_special_tokens=True).ids
        golden["plain"].append(runs(plain))
        golden["special"].append(runs(special))
        decoded = tokenizer.decode(special, skip_special_tokens=False)
        skipped = tokenizer.decode(special, skip_special_tokens=True)
        golden["decoded"].append(None if decoded == text else decoded if len(decoded) < 500 else "long")
        golden["skipped"].append(None if skipped == text else skipped if len(skipped) < 500 else "long")
    return golden


def save(name, tokenizer, edit=None):
    document = json.loads(tokenizer.to_str())
    if edit:
        edit(document)
    tokenizer = Tokenizer.from_str(json.dumps(document))  # what the edited file means to the reference
    write_json(HERE / name / "tokenizer.json", document)
    write_json(HERE / name / "golden.json", golden_of(tokenizer, map(text_of, TEXTS)))


def train(tokenizer, size, special, alphabet):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=alphabet,
                                  show_progress=False)
    tokenizer.train_from_iterator(CORPUS.splitlines(keepends=True), trainer)
    return tokenizer


def byte_level(pre, size, special, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, size, special, pre_tokenizers.ByteLevel.alphabet())


def isolate(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), 420, ["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)

    def old_merges(document):
        document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]

    save("gpt2", tokenizer, old_merges)


def gpt2_prefix_space():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), 380, ["<|endoftext|>"])
    save("gpt2_prefix_space", tokenizer)


def llama3_tokenizer():
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return byte_level(isolate(LLAMA3), 420, special)


def add_tokens(document, texts):
    vocab = document["model"]["vocab"]
    for token in texts:
        vocab.setdefault(token, max(vocab.values()) + 1)


def llama3():
    tokenizer = llama3_tokenizer()
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)])])

    def whole_tokens(document):
        add_tokens(document, ["\u0120unmergeable", "unmergeable", "world"])
        document["model"]["ignore_merges"] = True

    save("llama3", tokenizer, whole_tokens)


def smaug():
    """Llama 3's words, all of them merged from smaller tokens."""
    save("smaug", llama3_tokenizer(), lambda document: add_tokens(document, ["unmergeable", "world"]))


def tekken():
    """Words end where capitals begin; tokens that no such word holds show where they are cut."""
    tokenizer = byte_level(isolate(TEKKEN), 400, ["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])

    def across_words(document):
        merges = [["d", "\u00d0"], ["1", "2"], ["e", "\u00cc"], ["/", "b"]]  # dС, 12, é in two, /b
        document["model"]["merges"] = merges + document["model"]["merges"]
        add_tokens(document, ["".join(pair) for pair in merges] + ["unmergeable"])
        document["model"]["ignore_merges"] = True

    save("tekken", tokenizer, across_words)


def o200k():
    """Words end where capitals begin, and hold what an apostrophe cuts off elsewhere."""
    def across_words(document):
        merges = [["d", "\u00d0"], ["/", "b"], [";", "\u010a"]]  # dС, /b, and a line's end, which is of the word here
        document["model"]["merges"] = merges + document["model"]["merges"]
        add_tokens(document, ["".join(pair) for pair in merges])

    save("o200k", byte_level(isolate(O200K), 400, ["<|endoftext|>"]), across_words)


def qwen2():
    tokenizer = byte_level(isolate(QWEN2), 420, [], normalizers.NFC())
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    save("qwen2", tokenizer)


def qwen35():
    """Words have marks in them: a token that begins in a letter and ends in a mark shows it."""
    def across_marks(document):
        merges = [["\u00b8", "\u00e0"]]
        document["model"]["merges"] = merges + document["model"]["merges"]
        add_tokens(document, ["".join(pair) for pair in merges])

    save("qwen35", byte_level(isolate(QWEN35), 400, ["<|endoftext|>", "<|im_end|>"], normalizers.NFC()), across_marks)


def seed():
    """Tokens that no word holds show where words are cut."""
    special = ["<seed:bos>", "<seed:pad>", "<seed:eos>"]

    def across_words(document):
        merges = [[";", "\u010a"], ["1", "2"]]
        document["model"]["merges"] = merges + document["model"]["merges"]
        add_tokens(document, ["".join(pair) for pair in merges])

    save("seed", byte_level(isolate(SEED), 400, special), across_words)


def deepseek3():
    """Numerals in threes, Chinese and Japanese apart, and words that may begin with a mark."""
    def across_words(document):
        merges = [["i", "("], ["e", "\u0120"], ["2", ","]]
        document["model"]["merges"] = merges + document["model"]["merges"]
        add_tokens(document, ["".join(pair) for pair in merges])

    pre = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in DEEPSEEK3]
    pre.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    save("deepseek3", byte_level(pre_tokenizers.Sequence(pre), 400, ["<|endoftext|>"]), across_words)


def smollm():
    tokenizer = byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]), 400,
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    save("smollm", tokenizer)


def opt():
    """GPT-2's, with its end token put in front."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), 400, special)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="</s> $A", special_tokens=[("</s>", 2)])
    save("opt", tokenizer)


def bloom():
    """Words are what stands between spaces and marks of many scripts; a class lies in a class."""
    special = ["<unk>", "<s>", "</s>", "<pad>"]
    tokenizer = byte_level(isolate(r" ?[^(\s|[.,!?…。，、।۔،])]+"), 420, special)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    save("bloom", tokenizer)


def gguf_default():
    """Cuts words as llama.cpp does for the pre-tokenizer named "default", as a sequence of splits."""
    patterns = [r"[\p{P}\$\+<=>\^~\|]+",
                r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)", r"\p{N}+", "[0-9][0-9][0-9]"]
    pre = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    pre.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    save("gguf_default", byte_level(pre_tokenizers.Sequence(pre), 400, ["<|endoftext|>"]))


def metaspace_model(size, byte_fallback=True, **options):
    """A BPE over U+2581 words, with the 256 byte tokens of byte fallback."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    train(raw, size, [], [])
    trained = json.loads(raw.to_str())["model"]
    tokens = ["<unk>", "<s>", "</s>"] + ([f"<0x{b:02X}>" for b in range(256)] if byte_fallback else [])
    dropped = set("éüя森")  # so that bytes, or <unk>, have work
    tokens += [token for token in trained["vocab"] if not dropped & set(token)]
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(pair) for pair in trained["merges"] if not dropped & set("".join(pair))]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=byte_fallback,
                                     **options))
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ["<unk>", "<s>", "</s>"]])
    return tokenizer


LLAMA_DECODER = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]


def llama2():
    tokenizer = metaspace_model(400, fuse_unk=True)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(LLAMA_DECODER)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    save("llama2", tokenizer)


def metaspace_first():
    tokenizer = metaspace_model(400, fuse_unk=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(LLAMA_DECODER)
    save("metaspace_first", tokenizer)


def metaspace_unknown():
    for fuse in (False, True):
        tokenizer = metaspace_model(380, byte_fallback=False, fuse_unk=fuse)
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
        tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
        save("metaspace_fused" if fuse else "metaspace_unknown", tokenizer)


def added():
    """Every flag of added tokens, and the pre-tokenizers' other behaviours."""
    tokenizer = byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Split("-", "removed"),
        pre_tokenizers.Split(Regex(r"[\s]"), "merged_with_next"),
        pre_tokenizers.Split(Regex(r"[.!?]"), "merged_with_previous"),
        pre_tokenizers.Split(Regex(r"\w+"), "contiguous", invert=True),
        pre_tokenizers.Split(Regex(r"(?=\()"), "isolated"),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), 380, ["<|endoftext|>"],
        normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex("U[P]+ER"), "upper"),
                              normalizers.Replace("foo", "canopy")]))
    tokenizer.add_tokens([
        AddedToken("[left]", lstrip=True, normalized=False), AddedToken("[right]", rstrip=True, normalized=False),
        AddedToken("[both]", lstrip=True, rstrip=True, normalized=True), AddedToken("word", single_word=True),
        AddedToken("UPPER", normalized=True), AddedToken("<tool>", normalized=True),
        AddedToken("<tool> ", normalized=False), AddedToken("café", normalized=True)])
    tokenizer.add_special_tokens([AddedToken("<|im_end|>", rstrip=True), AddedToken("<s>", lstrip=True)])
    save("added", tokenizer)


def spm():
    import sentencepiece
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines()), model_writer=model, model_type="bpe", vocab_size=520,
        byte_fallback=True, character_coverage=0.98, normalization_rule_name="identity",
        remove_extra_whitespaces=False, add_dummy_prefix=True, split_digits=True, allow_whitespace_only_pieces=True,
        minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(sp.get_piece_size())
    kinds = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1 for i in ids]
    texts = [text for text in map(text_of, TEXTS) if "<" not in text and len(text) < 3000]
    write_json(HERE / "spm.json", {
        "tokens": [sp.id_to_piece(i) for i in ids], "scores": [sp.get_score(i) for i in ids], "token_type": kinds,
        "cases": [{"text": t, "ids": runs(sp.encode(t)), "decoded": sp.decode(sp.encode(t))} for t in texts]})


def gemma():
    """Runs of spaces and line ends, and marks of HTML, are tokens that are added; a tab takes the place of its byte."""
    tokenizer = metaspace_model(400, fuse_unk=True)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(LLAMA_DECODER[:3])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])

    def runs_and_marks(document):
        vocab = document["model"]["vocab"]
        vocab["\t"] = vocab.pop("<0x09>")
        runs = [mark * count for mark in "\n▁" for count in (1, 2, 3, 4)]
        add_tokens(document, runs + ["<table>", "</i>"])
        merges = [[token[:cut], token[cut:]] for token in runs[::-1] for cut in range(len(token) - 1, 0, -1)]
        document["model"]["merges"] = merges + document["model"]["merges"]
        for token in [run for run in runs if run != "▁"] + ["<table>", "</i>"]:
            document["added_tokens"].append(document["added_tokens"][0] | dict(
                id=vocab[token], content=token, special=False))

    save("gemma", tokenizer, runs_and_marks)


def spm_llama2():
    """The SentencePiece model of spm.json as transformers converts it: all cuts of a token are merges."""
    spm = json.loads((HERE / "spm.json").read_text())
    vocab = {token: i for i, token in enumerate(spm["tokens"])}
    plain = {token: score for token, score, kind in zip(spm["tokens"], spm["scores"], spm["token_type"]) if kind == 1}
    cuts = [(score, len(token[:cut]), len(token[cut:]), token[:cut], token[cut:])
            for token, score in plain.items() for cut in range(1, len(token))
            if token[:cut] in plain and token[cut:] in plain]
    merges = [(left, right) for *_, left, right in sorted(cuts, key=lambda cut: cut[:3], reverse=True)]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ["<unk>", "<s>", "</s>"]])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(LLAMA_DECODER)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    save("spm_llama2", tokenizer)


def smollm2(path):
    from gguf import GGUFReader
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    kinds = fields["tokenizer.ggml.token_type"].contents()
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True)
                                  for t, kind in zip(tokens, kinds) if kind == 3])
    return tokenizer


def main():
    write_json(HERE / "texts.json", TEXTS)
    for make in (gpt2, gpt2_prefix_space, llama3, smaug, tekken, o200k, qwen2, qwen35, seed, deepseek3, smollm, opt, bloom, gguf_default, llama2, metaspace_first, metaspace_unknown,
                 added, spm, gemma, spm_llama2):
        make()
    if len(sys.argv) > 1:
        tokenizer = smollm2(sys.argv[1])
        texts = [text for text in map(text_of, TEXTS) if len(text) < 500] + CORPUS.splitlines()[:8]
        write_json(HERE / "smollm2.json",
                   [{"text": t, "ids": tokenizer.encode(t).ids,
                     "decoded": tokenizer.decode(tokenizer.encode(t).ids, skip_special_tokens=False)} for t in texts])


if __name__ == "__main__":
    main()
