"""Anthropic's API: messages whole and streamed, calls and their results, reasoning, counts of tokens, and errors in its form."""
import contextlib
import json

from serving import REPO, Server, ServerCase, main, quoting_model

MESSAGES, COUNT, CHAT = "/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"
HERMES = REPO / "tests/data/chat_templates/templates/Qwen-Qwen2.5-7B-Instruct.jinja"
USER = [{"role": "user", "content": "hello"}]
BODY = {"model": "tiny", "max_tokens": 16, "temperature": 0, "messages": USER}
TOOLS = [{"name": "weather", "description": "The weather of a city", "input_schema": {
    "type": "object", "additionalProperties": False, "required": ["city"],
    "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}}},
    {"name": "time", "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}}]


def events_of(reply):
    """The events of a stream, checked: each has a name, which is the type in it. Comments are passed over."""
    for lines in filter(None, reply.body.decode().split("\n\n")):
        if lines == ":":
            continue
        name, data = lines.split("\n")
        event = json.loads(data.removeprefix("data: "))
        if not data.startswith("data: ") or name != "event: " + event["type"]:
            raise AssertionError(f"not an event: {lines}")
        yield event


def joined(events):
    """The message of a stream, whose events must come in their order."""
    first, *events = events
    assert first["type"] == "message_start", first
    message, place, input = first["message"], None, ""
    assert (message["content"], message["stop_reason"], message["stop_sequence"]) == ([], None, None), message
    *events, last = [event for event in events if event["type"] != "ping"]
    assert last == {"type": "message_stop"}, last
    *events, delta = events
    assert delta["type"] == "message_delta", delta
    for event in events:
        kind = event["type"]
        if kind == "content_block_start":
            assert place is None and event["index"] == len(message["content"]), event
            place, input = event["index"], ""
            message["content"].append(event["content_block"])
            continue
        assert event["index"] == place, event
        block = message["content"][place]
        if kind == "content_block_stop":
            if input:
                block["input"] = json.loads(input)
            place = None
            continue
        assert kind == "content_block_delta", event
        (member, more), = ((k, v) for k, v in event["delta"].items() if k != "type")
        of = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature", "input_json_delta": "partial_json"}
        assert of[event["delta"]["type"]] == member and more, event
        if member == "partial_json":
            assert block["type"] == "tool_use", block
            input += more
        else:
            block[member] += more
    assert place is None
    return {**message, **delta["delta"], "usage": {**message["usage"], **delta["usage"]}}


def without_ids(message):
    return {**message, "id": None, "content": [{k: v for k, v in block.items() if k != "id"} for block in message["content"]]}


class Asking:
    def message(self, **more):
        """The answer, which is the same whole and streamed, and asked for with or without /v1 and a query."""
        whole = self.server.post(MESSAGES, {**BODY, **more})
        reply = self.server.ask("POST", "/messages?beta=true", {**BODY, **more, "stream": True})
        self.assertEqual((reply.status, reply.headers["Content-Type"]), (200, "text/event-stream"))
        streamed = joined(list(events_of(reply)))
        for usage in whole["usage"], streamed["usage"]:  # what was read before is remembered
            usage["input_tokens"] += usage.pop("cache_read_input_tokens")
        self.assertEqual(without_ids(streamed), without_ids(whole))
        self.assertTrue(whole["id"].startswith("msg_"))
        return whole

    def refusal(self, body, status=400, path=MESSAGES, **options):
        """Checks that an error has Anthropic's form; its type and its message."""
        reply = self.server.post(path, body, status=status, **options)
        self.assertEqual((reply.keys(), reply["type"]), ({"type", "error"}, "error"))
        self.assertEqual(reply["error"].keys(), {"type", "message"})
        return reply["error"]["type"], reply["error"]["message"]

    def chat(self, messages, **more):
        return self.server.post(CHAT, {"messages": messages, "temperature": 0, "max_tokens": 16, **more})


class Anthropic(Asking, ServerCase):
    FLAGS = ("-c", 400, "--parallel", 2, "--alias", "claude-*")

    def test_a_message(self):
        message = self.message()
        reply = self.chat(USER)
        choice, written = reply["choices"][0], reply["usage"]["completion_tokens"]
        self.assertEqual(message["content"], [{"type": "text", "text": choice["message"]["content"]}])
        reason = {"stop": "end_turn", "length": "max_tokens"}[choice["finish_reason"]]
        self.assertEqual([message[k] for k in ("type", "role", "model", "stop_reason", "stop_sequence")],
                         ["message", "assistant", "tiny", reason, None])
        self.assertEqual(message["usage"], {"input_tokens": len("u:hello\na:"), "output_tokens": written, "cache_creation_input_tokens": 0})
        self.assertEqual(self.message(max_tokens=3)["stop_reason"], "max_tokens")
        self.assertNotIn("warnings", message)

    def test_a_stream_begins_with_a_ping_and_usage(self):
        events = list(events_of(self.server.ask("POST", MESSAGES, {**BODY, "stream": True})))
        self.assertEqual(events[1], {"type": "ping"})
        usage = events[0]["message"]["usage"]
        self.assertEqual((usage["input_tokens"], usage["output_tokens"]), (len("u:hello\na:"), 0))

    def test_system_and_blocks(self):
        blocks = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}]
        chat = [{"role": "system", "content": "a\nb"}, {"role": "user", "content": "a\nb"}, {"role": "assistant", "content": "c"},
                {"role": "user", "content": "d"}]
        message = self.message(system=blocks, messages=[{"role": "user", "content": blocks}, {"role": "assistant", "content": "c"},
                                                        {"role": "user", "content": "d"}])
        reply = self.chat(chat)
        self.assertEqual(message["content"][0]["text"], reply["choices"][0]["message"]["content"])
        self.assertEqual(message["usage"]["input_tokens"], reply["usage"]["prompt_tokens"])

    def test_stops(self):
        text = self.message()["content"][0]["text"]
        message = self.message(stop_sequences=["no text has this", text[4:6]])
        self.assertEqual((message["stop_reason"], message["stop_sequence"]), ("stop_sequence", text[4:6]))
        self.assertEqual(message["content"][0]["text"], text[:text.index(text[4:6])])
        at_once = self.message(stop_sequences=[text[0]])
        self.assertEqual((at_once["content"], at_once["stop_reason"]), ([], "stop_sequence"))

    def test_a_length_beyond_the_context_is_bounded_and_said(self):
        message = self.message(max_tokens=32_000)
        self.assertLessEqual(message["usage"]["output_tokens"], 400 - len("u:hello\na:"))
        self.assertIn("32000", message["warnings"][0])

    def test_models_by_their_names(self):
        for name in "tiny", "claude-sonnet-4-5":
            self.assertEqual(self.message(model=name)["model"], "tiny")
        for path in MESSAGES, COUNT:
            kind, text = self.refusal({**BODY, "model": "gpt-4"}, 404, path)
            self.assertEqual(kind, "not_found_error")
            self.assertIn("gpt-4", text)

    def test_tokens_are_counted_by_the_prompt(self):
        for more in {}, {"system": "kind"}, {"messages": [*USER, {"role": "assistant", "content": "a"}, *USER]}:
            body = {**BODY, **more}
            count = self.server.post(COUNT, {k: v for k, v in body.items() if k in ("model", "messages", "system")})
            self.assertEqual(count, {"input_tokens": self.message(**more)["usage"]["input_tokens"]})

    def test_what_was_read_before_is_said(self):
        body = {**BODY, "messages": [{"role": "user", "content": "x" * 200}]}
        self.server.post(MESSAGES, body)
        usage = self.server.post(MESSAGES, body)["usage"]
        self.assertGreaterEqual(usage["cache_read_input_tokens"], 64)
        self.assertEqual(usage["cache_read_input_tokens"] + usage["input_tokens"], len("u:\na:") + 200)

    def test_headers(self):
        headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "a-1,b-2", "x-request-id": "mine"}
        reply = self.server.ask("POST", MESSAGES, BODY, headers)
        self.assertEqual((reply.status, reply.headers["request-id"], reply.headers["x-request-id"]), (200, "mine", "mine"))

    def test_refusals_have_its_form(self):
        for body, part in ((b"{", "body"), (b"[]", "object"), ({}, "messages"), ({"messages": USER}, "max_tokens"),
                           ({**BODY, "max_tokens": 0}, "max_tokens"), ({**BODY, "temperatur": 1}, "temperatur"),
                           ({**BODY, "thinking": {"type": "much"}}, "thinking.type"),
                           ({**BODY, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "'image'"),
                           ({**BODY, "messages": [*USER, {"role": "assistant", "content": "a"}]}, "messages"),
                           ({**BODY, "tools": TOOLS}, "tool calls")):
            for path in MESSAGES, COUNT:
                if path == COUNT and part == "max_tokens" and "max_tokens" not in body:
                    continue
                kind, text = self.refusal(body, path=path)
                self.assertEqual(kind, "invalid_request_error")
                self.assertIn(part, text)
            if isinstance(body, dict):
                self.refusal({**body, "stream": True})

    def test_a_prompt_that_is_too_long_is_refused_in_the_words_that_clients_know(self):
        kind, text = self.refusal({**BODY, "messages": [{"role": "user", "content": "x" * 395}]})
        self.assertEqual((kind, text), ("invalid_request_error", "prompt is too long: 400 tokens > 399 maximum"))

    def test_a_body_that_is_too_large_and_other_ways_to_ask(self):
        kind, text = self.refusal(b" " * (2 << 20), 413)
        self.assertEqual(kind, "request_too_large")
        self.assertEqual(self.refusal({}, 404, MESSAGES + "/batches")[0], "not_found_error")
        reply = self.server.ask("GET", MESSAGES)
        self.assertEqual((reply.status, reply.json["error"]["type"]), (405, "invalid_request_error"))
        error = self.server.post("/v1/nothing", {}, status=404)["error"]  # the form of the other APIs
        self.assertEqual(error["code"], 404)

    def test_a_stream_that_was_lost_goes_on(self):
        reply = self.server.ask("POST", MESSAGES, {**BODY, "stream": True, "resume": True})
        pieces = reply.body.decode().split("\n\n")
        self.assertTrue(pieces[0].startswith("id: 1\nevent: message_start\n"))
        id = json.loads(pieces[0].split("data: ")[1])["message"]["id"]
        again = self.server.ask("GET", f"/v1/stream/{id}", headers={"Last-Event-ID": "2"})
        self.assertEqual(again.body.decode(), "\n\n".join(pieces[2:]))

    def test_a_server_that_is_loading_is_overloaded(self):
        with Server(self.model, "-c", 400, wait=False) as server:
            reply = server.ask("POST", MESSAGES, BODY)
            if server.serves.is_set():
                self.skipTest("the model was there at once")
            self.assertEqual((reply.status, reply.json["error"]["type"]), (529, "overloaded_error"))
            self.assertEqual(reply.headers["x-should-retry"], "true")


class Keys(Asking, ServerCase):
    FLAGS = ("-c", 20_000, "--parallel", 1, "--queue", 0, "--api-key", "right")
    HEADERS = {"x-api-key": "right"}

    def test_keys(self):
        for headers in {}, {"x-api-key": "wrong"}, {"Authorization": "Bearer wrong"}:
            for path in MESSAGES, COUNT:
                self.assertEqual(self.refusal(BODY, 401, path, headers=headers)[0], "authentication_error")
        for headers in self.HEADERS, {"Authorization": "Bearer right"}:
            self.assertEqual(self.server.post(MESSAGES, BODY, headers=headers)["type"], "message")

    def test_a_full_house(self):
        stream = self.server.open(MESSAGES, {**BODY, "max_tokens": 15_000, "ignore_eos": True}, headers=self.HEADERS)
        with contextlib.closing(stream):
            reply = self.server.ask("POST", MESSAGES, BODY, self.HEADERS)
            self.assertEqual((reply.status, reply.json["error"]["type"]), (429, "rate_limit_error"))
            self.assertGreaterEqual(int(reply.headers["Retry-After"]), 1)


class Thinking(Asking, ServerCase):
    """Reasoning by a template whose closing tag is a letter of what the model writes."""
    FLAGS = ("-c", 1000, "--parallel", 2)
    TEMPLATE = ("{% for m in messages %}{{ m.role }}:{% if m.reasoning_content %}<r>{{ m.reasoning_content }}CLOSE{% endif %}"
                "{{ m.content }}\n{% endfor %}{% if enable_thinking %}on{% endif %}{% if add_generation_prompt %}assistant:<r>{% endif %}")
    ON = {"type": "enabled", "budget_tokens": 1024}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        raw = {}
        for on in False, True:
            body = {"messages": USER, "temperature": 0, "max_tokens": 16, "reasoning_format": "none",
                    "chat_template_kwargs": {"enable_thinking": on}}
            raw[on] = cls.server.post(CHAT, body)["choices"][0]["message"]["content"]
        close = next(c for i, c in enumerate(raw[True]) if i > 3 and c.isascii() and c.isalnum() and c not in raw[True][:i]
                     and i < len(raw[True]) - 2)
        template = cls.dir / "closing.jinja"
        template.write_text(cls.TEMPLATE.replace("CLOSE", close))
        cls.close, cls.raw = close, raw
        cls.open_server = cls.server
        cls.server = Server(cls.model, *cls.FLAGS, "--chat-template-file", template)
        cls.addClassCleanup(cls.server.__exit__)

    def test_it_is_a_block_with_a_signature_before_the_text(self):
        before, _, after = self.raw[True].partition(self.close)
        message = self.message(thinking=self.ON)
        thinking, text = message["content"]
        self.assertEqual((thinking["type"], thinking["thinking"]), ("thinking", before.strip()))
        self.assertTrue(thinking["signature"])
        self.assertEqual(text, {"type": "text", "text": after.lstrip()})
        self.assertIn("budget_tokens", message["warnings"][0])

    def test_without_it_the_switch_is_off_and_what_is_reasoned_nevertheless_is_left_out(self):
        text = self.raw[False].partition(self.close)[2].lstrip()
        for more in {}, {"thinking": {"type": "disabled"}}:
            message = self.message(**more)
            self.assertEqual(message["content"], [{"type": "text", "text": text}] if text else [])

    def test_a_block_that_does_not_end_is_all_there_is(self):
        reply = self.open_server.post(MESSAGES, {**BODY, "thinking": self.ON})
        self.assertEqual([block["type"] for block in reply["content"]], ["thinking"])
        events = list(events_of(self.open_server.ask("POST", MESSAGES, {**BODY, "thinking": self.ON, "stream": True})))
        self.assertEqual(joined(events)["content"], reply["content"])

    def test_the_next_turn_has_it(self):
        answer = self.message(thinking=self.ON)["content"]
        turns = [*USER, {"role": "assistant", "content": answer}, {"role": "user", "content": "more"}]
        chat = [*USER, {"role": "assistant", "content": answer[1]["text"], "reasoning_content": answer[0]["thinking"]},
                {"role": "user", "content": "more"}]
        prompt = self.server.post("/apply-template", {"messages": chat, "chat_template_kwargs": {"enable_thinking": True}})["prompt"]
        counted = self.server.post(COUNT, {"messages": turns, "thinking": self.ON})["input_tokens"]
        self.assertEqual(counted, len(self.server.post("/tokenize", {"content": prompt})["tokens"]))
        self.assertEqual(self.message(messages=turns, thinking=self.ON)["usage"]["input_tokens"], counted)


class Tools(Asking, ServerCase):
    FLAGS, TEMPLATE = ("-c", 4096, "--parallel", 2), HERMES.read_text()
    ASKED = {"messages": [{"role": "user", "content": "Weather?"}], "tools": TOOLS, "max_tokens": 120, "temperature": 1, "seed": 5}

    @classmethod
    def tiny_model(cls, to):
        return quoting_model(to, {})

    def test_a_call_is_forced(self):
        for choice, names in (({"type": "any"}, ("weather", "time")), ({"type": "tool", "name": "weather"}, ("weather",)),
                              ({"type": "any", "disable_parallel_tool_use": True}, ("weather", "time"))):
            message = self.message(**self.ASKED, tool_choice=choice)
            self.assertEqual(message["stop_reason"], "tool_use")
            call, = message["content"]
            self.assertEqual(call["type"], "tool_use")
            self.assertIn(call["name"], names)
            self.assertRegex(call["id"], "^[0-9A-Za-z_-]+$")
            self.assertIsInstance(call["input"], dict)
            if call["name"] == "weather":
                self.assertLessEqual(len(call["input"]["city"]), 20)

    def test_a_call_that_is_cut_off_stays_one(self):
        body = {**self.ASKED, "tool_choice": {"type": "tool", "name": "weather"}, "max_tokens": 60}
        message = self.server.post(MESSAGES, {**BODY, **body})
        self.assertEqual(message["stop_reason"], "max_tokens")
        self.assertEqual((message["content"][0]["name"], message["content"][0]["input"]), ("weather", {}))
        self.assertIn("no JSON object", message["warnings"][0])

    def test_a_conversation_goes_on_with_the_result(self):
        answer = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Paris"}}
        turns = [*self.ASKED["messages"], {"role": "assistant", "content": [answer]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}]},
                                              {"type": "text", "text": "and now?"}]}]
        call = {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Paris"}}}
        chat = [*self.ASKED["messages"], {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "t1", "content": "rain"}, {"role": "user", "content": "and now?"}]
        tools = [{"type": "function", "function": {**{k: v for k, v in t.items() if k != "input_schema"}, "parameters": t["input_schema"]}}
                 for t in TOOLS]
        reply = self.chat(chat, tools=tools, max_tokens=24)
        message = self.message(messages=turns, tools=TOOLS, max_tokens=24)
        self.assertEqual("".join(block["text"] for block in message["content"]), reply["choices"][0]["message"]["content"])
        self.assertEqual(message["usage"]["input_tokens"], reply["usage"]["prompt_tokens"])
        self.assertEqual(self.server.post(COUNT, {"messages": turns, "tools": TOOLS})["input_tokens"], reply["usage"]["prompt_tokens"])

    def test_none_of_them(self):
        plain = self.server.post(COUNT, {"messages": USER})
        self.assertEqual(self.server.post(COUNT, {"messages": USER, "tools": TOOLS, "tool_choice": {"type": "none"}}), plain)
        self.assertGreater(self.server.post(COUNT, {"messages": USER, "tools": TOOLS})["input_tokens"], plain["input_tokens"])

    def test_text_is_of_a_schema(self):
        schema = {"type": "integer", "minimum": 1, "maximum": 9}
        message = self.message(output_config={"format": {"type": "json_schema", "schema": schema}})
        self.assertRegex(message["content"][0]["text"], "^[1-9]$")


if __name__ == "__main__":
    main()
