"""Ends of texts: stop strings that name special tokens, which have no text of their own; stop tokens; a least length."""
import json

from serving import ServerCase, bytes_model, finish_of, joined, main

MARK, OTHER, A, END = 96, 95, 65, 94  # the last two are the letter, and the end token


class Stops(ServerCase):
    FLAGS = ("-c", 200)

    @classmethod
    def tiny_model(cls, to):
        model = bytes_model(to)
        tokenizer = json.loads((model / "tokenizer.json").read_text())
        special = {MARK: "<|im_start|>", OTHER: "<|eot|>"}
        tokenizer["added_tokens"] = [{"id": id, "content": name, "special": True, "single_word": False, "lstrip": False,
                                      "rstrip": False, "normalized": False} for id, name in special.items()]
        for piece in [piece for piece, id in tokenizer["model"]["vocab"].items() if id in special]:
            del tokenizer["model"]["vocab"][piece]
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"eos_token_id": END}))
        return model

    def check(self, stop, text, reason, tokens, bias, path="/v1/completions"):
        asked = {"prompt": "hello"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "hello"}]}
        body = {**asked, "max_tokens": 6, "temperature": 0, "logit_bias": bias, "stop": stop, "ignore_eos": True}
        reply = self.server.post(path, body)
        choice = reply["choices"][0]
        shown = choice["text"] if "text" in choice else choice["message"]["content"]
        self.assertEqual((shown, choice["finish_reason"], reply["usage"]["completion_tokens"]), (text, reason, tokens), stop)
        events = self.server.stream(path, body)
        self.assertEqual((joined(events), finish_of(events)), (text, [reason]), stop)

    def test_the_name_of_a_special_token_stops_at_it(self):
        for path in "/v1/completions", "/v1/chat/completions":
            for stop in "<|im_start|>", ["x", "<|im_start|>"], ["<|eot|>", "<|im_start|>"]:
                self.check(stop, "", "stop", 1, {MARK: 100}, path)
            self.check("<|im_start|><|im_start|>", "", "stop", 2, {MARK: 100}, path)

    def test_other_strings_do_not_stop_at_it(self):
        for stop in "<|eot|>", "<|im_start", "|>", "<", "<|im_start|>a", "a<|im_start|>":
            self.check(stop, "", "length", 6, {MARK: 100})

    def test_ordinary_strings_stop_as_ever(self):
        self.check("a", "", "stop", 1, {A: 100})
        self.check(["b", "<|im_start|>"], "a" * 6, "length", 6, {A: 100})

    def text_of(self, **more):
        body = {"prompt": "hello", "max_tokens": 6, "temperature": 0, **more}
        reply = self.server.post("/v1/completions", body)
        choice, events = reply["choices"][0], self.server.stream("/v1/completions", body)
        self.assertEqual((joined(events), finish_of(events)), (choice["text"], [choice["finish_reason"]]))
        return choice["text"], choice["finish_reason"], reply["usage"]["completion_tokens"]

    def test_a_stop_token_ends_a_text_and_has_no_text(self):
        plain, _, _ = self.text_of(ignore_eos=True)
        at = next(i for i in range(1, 6) if plain[i] not in plain[:i])
        token, = self.server.post("/tokenize", {"content": plain[at]})["tokens"]
        for more in {}, {"ignore_eos": True}:
            self.assertEqual(self.text_of(stop_token_ids=[MARK, token], **more), (plain[:at], "stop", at + 1))
        self.assertEqual(self.text_of(stop_token_ids=[MARK], logit_bias={MARK: 100}), ("", "stop", 1))

    def test_nothing_ends_a_text_before_its_least_length(self):
        plain, _, _ = self.text_of(ignore_eos=True)
        for token, more in ((A, {"stop_token_ids": [A]}), (END, {})):
            self.assertEqual(self.text_of(logit_bias={token: 100}, **more), ("", "stop", 1))
            for least in 1, 4:
                text, reason, tokens = self.text_of(logit_bias={token: 100}, min_tokens=least, **more)
                self.assertEqual((reason, tokens), ("stop", least + 1))
                self.assertEqual(len(text), least)
                self.assertFalse({"a", "~"} & {*text} if token == A else "~" in text)
        self.assertEqual(self.text_of(stop_token_ids=[A], min_tokens=6, logit_bias={A: 100})[1:], ("length", 6))
        self.assertEqual(self.text_of(stop="a", logit_bias={A: 100}, min_tokens=4), ("aaaa", "stop", 5))
        self.assertEqual(self.text_of(stop="aa", logit_bias={A: 100}, min_tokens=4), ("aaaa", "stop", 6))
        self.assertEqual(self.text_of(ignore_eos=True, min_tokens=6)[0], plain)


if __name__ == "__main__":
    main()
