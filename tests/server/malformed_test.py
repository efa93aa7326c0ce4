"""Requests that are wrong: each is refused naming what is, and the server lives on."""
import json

from serving import NEEDS_REAL_MODEL, ServerCase, main

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
USER = {"role": "user", "content": "hello"}


class Malformed(ServerCase):
    FLAGS = ("-c", 400, "--parallel", 2, "--queue", 6)

    def setUp(self):
        self.expected = self.server.text("hello")

    def tearDown(self):
        self.assertEqual(self.server.text("hello"), self.expected)

    def refused_both(self, member, values, path=TEXT, param=None):
        """Neither a whole answer nor a stream comes of these values."""
        body = {"prompt": "a"} if path == TEXT else {"messages": [USER]}
        for value in values:
            for stream in False, True:
                message = self.refused(path, {"max_tokens": 2, "stream": stream, **body, member: value}, param or member)
                self.assertIn(param or member, message)

    def test_what_is_not_json(self):
        for body in (b"", b"{", b"nonsense", b'{"prompt": "a"', b'{"prompt": "a"} more', b"{'prompt': 'a'}", b'{"prompt": NaN}',
                     b'{"prompt": "a", "temperature": 1e999}', b'{"prompt": "\xff"}', b'{"prompt": "\xc3"}', b'{"prompt": "\\ud800"}',
                     b'{"prompt": "a", "prompt": "b"}', b'{"prompt": "\x00"}', b"\xef\xbb\xbf{", b"[" * 100_000, b'{"a":' * 100_000):
            for path in TEXT, CHAT, "/tokenize", "/detokenize", "/apply-template":
                self.refused(path, body, None)

    def test_what_is_not_an_object(self):
        for body in b"[]", b"3", b'"text"', b"null", b"true":
            for path in TEXT, CHAT, "/tokenize":
                self.assertIn("object", self.refused(path, body, None))

    def test_deep_nesting_in_a_member(self):
        deep = "[" * 50_000 + "]" * 50_000
        self.refused(TEXT, f'{{"prompt": {deep}}}'.encode(), None)
        self.refused(CHAT, f'{{"messages": {deep}}}'.encode(), None)

    def test_members_that_nobody_knows(self):
        self.refused_both("temprature", [1])
        self.refused_both("temprature", [1, {}, "x"], CHAT)
        self.refused(CHAT, {"messages": [USER], "prompt": "a"}, "prompt")
        self.refused(TEXT, {"prompt": "a", "messages": [USER]}, "messages")

    def test_prompts(self):
        self.refused(TEXT, {}, "prompt")
        self.refused_both("prompt", [None, 3, True, {}, "", [], [""], [[]], [None], ["a", 3], [1, "a"], [[1], [2, "a"]], [-1], [97],
                                     [1.5], [10 ** 30], [[1, 97]], [[[1]]], ["a"] * 9])

    def test_messages(self):
        self.refused(CHAT, {}, "messages")
        self.refused_both("messages", [None, [], {}, "hello", 3], CHAT)

    def test_a_message(self):
        for message, where in ((3, ""), (None, ""), ([], ""), ("hello", ""), ({}, ".role"), ({"content": "a"}, ".role"),
                               ({"role": 3, "content": "a"}, ".role"), ({"role": "", "content": "a"}, ".role"),
                               ({"role": "user"}, ".content"), ({"role": "user", "content": None}, ".content"),
                               ({"role": "system"}, ".content"), ({"role": "user", "content": 3}, ".content"),
                               ({"role": "user", "content": {}}, ".content"), ({"role": "user", "content": [3]}, ".content"),
                               ({"role": "user", "content": [{"text": "a"}]}, ".content"),
                               ({"role": "user", "content": [{"type": "text"}]}, ".content"),
                               ({"role": "user", "content": [{"type": "text", "text": 3}]}, ".content")):
            self.refused_both("messages", [[message]], CHAT, "messages[0]" + where)
            self.refused_both("messages", [[USER, message]], CHAT, "messages[1]" + where)

    def test_parts_that_are_not_text(self):
        for part in ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                     {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, {"type": "file", "file": {}}):
            content = [{"type": "text", "text": "what is this?"}, part]
            message = self.refused(CHAT, {"messages": [{"role": "user", "content": content}]}, "messages[0].content")
            self.assertIn(part["type"], message)

    def test_numbers(self):
        for path in TEXT, CHAT:
            self.refused_both("temperature", ["1", True, -0.1, 101, [], {}], path)
            self.refused_both("top_p", ["1", 0, -1, 1.1, False], path)
            self.refused_both("top_k", [1.5, "3", -2, 10 ** 12], path)
            self.refused_both("min_p", [-1, 2, "0"], path)
            self.refused_both("presence_penalty", [-3, 2.5, "0"], path)
            self.refused_both("frequency_penalty", [-3, 2.5, "0"], path)
            self.refused_both("seed", ["7", 1.5, True, 2 ** 64 - 1, 2 ** 63, -2 ** 70], path)
            self.refused_both("n", [0, -1, 1.0, "2", True, 10 ** 6, 2 ** 40], path)

    def test_limits(self):
        for name in "max_tokens", "max_completion_tokens", "n_predict":
            self.refused_both(name, [0, -2, 1.5, "7", True, 10 ** 12, 10 ** 30])

    def test_stops(self):
        self.refused_both("stop", ["", [""], 3, {}, [3], [None], True, [str(i) for i in range(17)], [["a"]]])

    def test_flags(self):
        for path in TEXT, CHAT:
            for name in "ignore_eos", "return_progress", "timings_per_token":
                self.refused_both(name, [1, "true", []], path)
            self.refused(path, {"prompt": "a"} | {"stream": "yes"} if path == TEXT else {"messages": [USER], "stream": 1}, "stream")

    def test_options_of_streams(self):
        body = {"prompt": "a", "max_tokens": 2}
        self.refused(TEXT, {**body, "stream_options": {"include_usage": True}}, "stream_options")
        self.refused(TEXT, {**body, "return_progress": True}, "return_progress")
        self.refused(TEXT, {**body, "stream": True, "stream_options": 3}, "stream_options")
        self.refused(TEXT, {**body, "stream": True, "stream_options": []}, "stream_options")
        self.refused(TEXT, {**body, "stream": True, "stream_options": {"include_usage": "yes"}}, "stream_options.include_usage")
        self.refused(TEXT, {**body, "stream": True, "stream_options": {"usage": True}}, "stream_options.usage")

    def test_logprobs(self):
        self.refused_both("logprobs", [True, -1, 21, "3", 1.5])
        self.refused_both("logprobs", [1, "true"], CHAT)
        self.refused_both("top_logprobs", [1, -1, 21, "3"], CHAT)  # the first: without logprobs
        self.refused(CHAT, {"messages": [USER], "logprobs": True, "top_logprobs": 21}, "top_logprobs")
        self.refused_both("top_logprobs", [1])

    def test_biases(self):
        self.refused_both("logit_bias", [3, "a", {"a": 1}, {"97": 1}, {"-1": 1}, {"1": "x"}, {"1": None}, {"1": True}, {"1": 1e30},
                                         {"": 1}, {"1x": 1}, [3], [[1]], [[1, 2, 3]], [["a", 1]], [[97, 1]], [[1.5, 1]]])

    def test_models(self):
        self.refused_both("model", [3, [], {}])
        for stream in False, True:
            self.refused(TEXT, {"prompt": "a", "model": "", "stream": stream}, "model", status=404)

    def test_what_is_not_there(self):
        self.refused_both("suffix", ["x", 3])
        self.refused_both("best_of", [2, 0, "1"])
        self.refused_both("cache_prompt", ["no"])
        self.refused_both("service_tier", [3])
        self.refused_both("modalities", [["audio"], ["text", "audio"], "text"], CHAT)
        self.refused_both("chat_template_kwargs", [3, [], "x"], CHAT)
        self.refused_both("add_generation_prompt", ["x", 1], CHAT)

    def test_choices_of_tools(self):
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        for choice, member in ((3, ""), ("f", ""), ({}, ".type"), ({"type": "allowed_tools", "allowed_tools": {}}, ".type"),
                               ({"type": "function"}, ".function"), ({"type": "function", "function": "f"}, ".function"),
                               ({"type": "function", "function": {"name": 5}}, ".function.name"),
                               ({"type": "function", "function": {"name": "f", "mode": 1}}, ".function.mode"),
                               ({"type": "function", "function": {"name": "f"}, "mode": 1}, ".mode")):
            self.refused(CHAT, {"messages": [USER], "tools": [tool], "tool_choice": choice}, "tool_choice" + member)
        self.refused(CHAT, {"messages": [USER], "tools": [{**tool, "mode": 1}]}, "tools[0].mode")
        self.refused(CHAT, {"messages": [USER], "tools": [{**tool, "function": {"name": "f", "mode": 1}}]}, "tools[0].function.mode")
        self.refused_both("parallel_tool_calls", [1, "no"], CHAT)

    def test_texts_of_many_bytes(self):
        for body in {"prompt": "x" * 900_000}, {"prompt": ["x" * 100_000] * 8}, {"prompt": [1] * 300_000}:
            self.refused(TEXT, body, "prompt")
        self.refused(TEXT, {"prompt": "x" * 5_000_000}, None, status=413)
        self.refused(CHAT, {"messages": [USER] * 20_000}, "messages")
        self.refused(TEXT, {"prompt": "a", "x" * 1_000_000: 1}, "x" * 1_000_000)

    def test_names_that_cannot_be_printed(self):
        for name in "\x00", "\n\r", "\u202e", "\U0001f600", '"', "'":
            self.refused(TEXT, {"prompt": "a", name: 1}, name)
        body = json.dumps({"prompt": "a", "\u00e9": 1}, ensure_ascii=False).encode()
        self.refused(TEXT, body, "\u00e9")


@NEEDS_REAL_MODEL
class MalformedForARealTemplate(ServerCase):
    REAL = True
    FLAGS = ("-c", 256)

    def test_roles_that_no_template_has_and_templates_variables(self):
        for body in ({"messages": [{"role": "nobody", "content": "a"}]},
                     {"messages": [USER], "chat_template_kwargs": {"messages": 3, "add_generation_prompt": []}},
                     {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [{"function": 3}]}]}):
            reply = self.server.ask("POST", CHAT, {**body, "max_tokens": 2})
            self.assertIn(reply.status, (200, 400), reply.body)
            self.assertEqual(self.server.get("/health"), {"status": "ok"})


if __name__ == "__main__":
    main()
