"""Stop strings that name special tokens, which have no text of their own."""
import json

from serving import ServerCase, bytes_model, finish_of, joined, main

MARK, OTHER, A = 96, 95, 65  # the last is the letter


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


if __name__ == "__main__":
    main()
