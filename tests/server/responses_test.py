"""OpenAI's Responses API: texts whole and streamed, calls and their outputs, reasoning, responses that are stored, and errors."""
import json

from serving import REPO, Server, ServerCase, main, quoting_model

RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"
HERMES = REPO / "tests/data/chat_templates/templates/Qwen-Qwen2.5-7B-Instruct.jinja"
BODY = {"model": "tiny", "max_output_tokens": 16, "temperature": 0, "input": "hello"}
TOOLS = [{"type": "function", "name": "weather", "description": "The weather of a city", "strict": True, "parameters": {
    "type": "object", "additionalProperties": False, "required": ["city"],
    "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}}},
    {"type": "function", "name": "time", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}]


def events_of(reply):
    """The events of a stream, checked: each has a name, which is the type in it, and the next number. Comments are passed over."""
    number = 0
    for lines in filter(None, reply.body.decode().split("\n\n")):
        if lines == ":":
            continue
        name, data = lines.split("\n")
        event = json.loads(data.removeprefix("data: "))
        if not data.startswith("data: ") or name != "event: " + event["type"] or event["sequence_number"] != number:
            raise AssertionError(f"not event {number}: {lines}")
        number += 1
        yield event


def joined(events):
    """The response of a stream, whose events must come in their order and say what it has."""
    created, *events, last = events
    assert (created["type"], created["response"]["status"], created["response"]["output"]) == ("response.created", "in_progress", []), created
    assert last["type"] == "response." + last["response"]["status"], last
    assert events[0]["type"] == "response.in_progress", events[0]
    output, item = [], None
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind == "in_progress":
            continue
        if kind == "output_item.added":
            assert item is None and event["output_index"] == len(output), event
            item, text = event["item"], ""
            continue
        assert event["output_index"] == len(output), event
        if kind == "output_item.done":
            assert event["item"]["id"] == item["id"], event
            output.append(event["item"])
            item = None
            continue
        assert event["item_id"] == item["id"], event
        if kind.endswith(".delta"):
            text += event["delta"]
        elif kind in ("output_text.done", "reasoning_text.done", "function_call_arguments.done"):
            assert text == event.get("text", event.get("arguments")), event
        elif kind == "content_part.done":
            assert text == event["part"]["text"], event
        else:
            assert kind == "content_part.added" and event["part"]["text"] == "", event
    assert item is None and output == last["response"]["output"], last
    return last["response"]


def without_ids(response):
    """The same without what differs between two answers to one request."""
    output = [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in response["output"]]
    return {**response, "id": None, "created_at": None, "output": output}


def text_of(response):
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


class Asking:
    def response(self, **more):
        """The answer, which is the same whole and streamed, and asked for with or without /v1; a copy of it is stored."""
        whole = self.server.post(RESPONSES, {**BODY, **more})
        reply = self.server.ask("POST", "/responses", {**BODY, **more, "stream": True})
        self.assertEqual((reply.status, reply.headers["Content-Type"]), (200, "text/event-stream"))
        streamed = joined(list(events_of(reply)))
        self.assertEqual(self.server.get(f"/v1/responses/{whole['id']}"), whole)
        self.assertEqual(self.server.get(f"/responses/{streamed['id']}"), streamed)
        for one in whole, streamed:  # what was read before is remembered
            one["usage"]["input_tokens_details"].pop("cached_tokens")
        self.assertEqual(without_ids(streamed), without_ids(whole))
        self.assertRegex(whole["id"], "^resp_[0-9a-f]{16}$")
        return whole

    def chat(self, messages, **more):
        return self.server.post(CHAT, {"messages": messages, "temperature": 0, "max_tokens": 16, **more})


class Responses(Asking, ServerCase):
    FLAGS = ("-c", 400, "--parallel", 2)

    def test_a_response(self):
        response = self.response()
        reply = self.chat([{"role": "user", "content": "hello"}])
        choice, written = reply["choices"][0], reply["usage"]["completion_tokens"]
        item, = response["output"]
        status = {"stop": "completed", "length": "incomplete"}[choice["finish_reason"]]
        part = {"type": "output_text", "text": choice["message"]["content"], "annotations": [], "logprobs": []}
        self.assertEqual({**item, "id": None}, {"id": None, "type": "message", "role": "assistant", "status": status, "content": [part]})
        self.assertEqual([response[k] for k in ("object", "model", "status", "error", "store", "tools", "tool_choice", "instructions")],
                         ["response", "tiny", status, None, True, [], "auto", None])
        tokens = len("u:hello\na:")
        self.assertEqual(response["usage"], {"input_tokens": tokens, "input_tokens_details": {"cache_write_tokens": 0},
                                             "output_tokens": written, "output_tokens_details": {"reasoning_tokens": 0},
                                             "total_tokens": tokens + written})
        self.assertNotIn("warnings", response)

    def test_a_response_that_is_cut_off(self):
        response = self.response(max_output_tokens=3)
        self.assertEqual((response["status"], response["incomplete_details"]), ("incomplete", {"reason": "max_output_tokens"}))
        self.assertEqual((response["output"][0]["status"], response["max_output_tokens"]), ("incomplete", 3))

    def test_items_and_instructions(self):
        items = [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
                 {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "c", "annotations": []}]},
                 {"role": "user", "content": "d"}]
        chat = [{"role": "system", "content": "kind"}, {"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"},
                {"role": "user", "content": "d"}]
        response, reply = self.response(instructions="kind", input=items), self.chat(chat)
        self.assertEqual(text_of(response), reply["choices"][0]["message"]["content"])
        self.assertEqual(response["usage"]["input_tokens"], reply["usage"]["prompt_tokens"])
        self.assertEqual(response["instructions"], "kind")

    def test_a_conversation_goes_on_from_a_response(self):
        first = self.response(instructions="kind")
        # Instructions are of one request; the rest is there, however often it goes on.
        second = self.response(input="more", previous_response_id=first["id"])
        self.assertEqual(second["previous_response_id"], first["id"])
        third = self.response(input=[{"role": "user", "content": "and?"}], previous_response_id=second["id"], instructions="short")
        chat = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": text_of(first)}, {"role": "user", "content": "more"}]
        for response, messages in ((second, chat), (third, [{"role": "system", "content": "short"}, *chat, {
                "role": "assistant", "content": text_of(second)}, {"role": "user", "content": "and?"}])):
            reply = self.chat(messages)
            self.assertEqual(text_of(response), reply["choices"][0]["message"]["content"])
            self.assertEqual(response["usage"]["input_tokens"], reply["usage"]["prompt_tokens"])
        items = [{"role": "user", "content": "hello"}, *first["output"], {"role": "user", "content": "more"}]
        self.assertEqual(text_of(self.response(input=items)), text_of(second))

    def test_a_response_that_is_deleted_or_was_not_stored_is_not_there(self):
        kept, other = (self.server.post(RESPONSES, {**BODY, "store": store}) for store in (True, False))
        self.assertEqual(self.server.get(f"/v1/responses/{kept['id']}")["id"], kept["id"])
        self.assertEqual(other["store"], False)
        self.assertEqual(self.server.ask("DELETE", f"/v1/responses/{kept['id']}").json,
                         {"id": kept["id"], "object": "response", "deleted": True})
        for id in kept["id"], other["id"], "resp_none":
            for method in "GET", "DELETE":
                reply = self.server.ask(method, f"/v1/responses/{id}")
                self.assertEqual((reply.status, reply.json["error"]["param"]), (404, "response_id"))
                self.assertIn(id, reply.json["error"]["message"])
            error = self.server.post(RESPONSES, {**BODY, "previous_response_id": id}, status=400)["error"]
            self.assertEqual((error["code"], error["param"]), ("previous_response_not_found", "previous_response_id"))

    def test_the_oldest_response_goes_first(self):
        long = {**BODY, "max_output_tokens": 1, "metadata": {"a": "x" * 700_000}}  # 13 of them are too many bytes
        ids = [self.server.post(RESPONSES, long)["id"] for _ in range(13)]
        statuses = [self.server.ask("GET", f"/v1/responses/{id}").status for id in ids]
        self.assertEqual(statuses, sorted(statuses, reverse=True))
        self.assertEqual((statuses[0], statuses[-1]), (404, 200))
        error = self.server.ask("GET", f"/v1/responses/{ids[0]}").json["error"]
        self.assertRegex(error["message"], r"\d+ responses of \d+ bytes")

    def test_what_clients_send_is_repeated(self):
        sent = {"metadata": {"a": "b"}, "user": "u", "temperature": 0.25, "top_p": 0.5, "parallel_tool_calls": False, "store": True,
                "text": {"format": {"type": "text"}}, "reasoning": {"effort": "low", "summary": None}, "safety_identifier": "s"}
        response = self.server.post(RESPONSES, {**BODY, **sent})
        self.assertEqual({name: response[name] for name in sent}, sent)
        self.assertIn("truncation", self.server.post(RESPONSES, {**BODY, "truncation": "auto"})["warnings"][0])

    def test_refusals_name_the_member(self):
        for more, param in (({"input": None}, "input"), ({"input": [{"type": "item_reference", "id": "a"}]}, "input[0].type"),
                            ({"tools": [{"type": "web_search"}]}, "tools[0].type"), ({"tools": [{"type": "custom", "name": "a"}]}, "tools[0].type"),
                            ({"tools": TOOLS}, "tools"), ({"background": True}, "background"), ({"max_tokens": 3}, "max_tokens"),
                            ({"temperature": "hot"}, "temperature"), ({"messages": []}, "messages"), ({"input": "x" * 500}, "input"),
                            ({"include": ["message.output_text.logprobs"]}, "include"),
                            ({"text": {"format": {"type": "json_schema", "schema": {"type": "nothing"}}}}, "text.format.schema")):
            for stream in False, True:
                self.refused(RESPONSES, {**BODY, **more, "stream": stream}, param)
        self.refused(RESPONSES, {**BODY, "model": "gpt-5"}, "model", status=404)
        response = self.server.post(RESPONSES, BODY)
        reply = self.server.ask("GET", f"/v1/responses/{response['id']}?stream=true")
        self.assertEqual((reply.status, reply.json["error"]["param"]), (400, "stream"))
        for method, path in ("GET", RESPONSES), ("DELETE", RESPONSES):
            self.assertEqual(self.server.ask(method, path).status, 405)
        self.assertEqual(self.server.ask("POST", f"/v1/responses/{response['id']}", {}).status, 404)

    def test_a_stream_that_was_lost_goes_on(self):
        reply = self.server.ask("POST", RESPONSES, {**BODY, "stream": True, "resume": True})
        pieces = reply.body.decode().split("\n\n")
        self.assertTrue(pieces[0].startswith("id: 1\nevent: response.created\n"))
        id = json.loads(pieces[0].split("data: ")[1])["response"]["id"]
        again = self.server.ask("GET", f"/v1/stream/{id}", headers={"Last-Event-ID": "2"})
        self.assertEqual(again.body.decode(), "\n\n".join(pieces[2:]))

    def test_a_page_may_delete(self):
        with Server(self.model, "-c", 100, "--cors-origin", "http://a.example") as server:
            reply = server.ask("OPTIONS", f"{RESPONSES}/resp_1", headers={"Origin": "http://a.example"})
            self.assertIn("DELETE", reply.headers["Access-Control-Allow-Methods"])


class Reasoning(Asking, ServerCase):
    """Reasoning by a template whose closing tag is a letter of what the model writes."""
    FLAGS = ("-c", 1000, "--parallel", 2)
    TEMPLATE = ("{% for m in messages %}{{ m.role }}:{% if m.reasoning_content %}<r>{{ m.reasoning_content }}CLOSE{% endif %}"
                "{{ m.content }}\n{% endfor %}{{ reasoning_effort }}{% if add_generation_prompt %}assistant:<r>{% endif %}")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        body = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 16, "reasoning_format": "none"}
        raw = cls.server.post(CHAT, body)["choices"][0]["message"]["content"]
        close = next(c for i, c in enumerate(raw) if i > 3 and c.isascii() and c.isalnum() and c not in raw[:i] and i < len(raw) - 2)
        template = cls.dir / "closing.jinja"
        template.write_text(cls.TEMPLATE.replace("CLOSE", close))
        cls.before, _, cls.after = raw.partition(close)
        cls.server = Server(cls.model, *cls.FLAGS, "--chat-template-file", template)
        cls.addClassCleanup(cls.server.__exit__)

    def test_it_is_an_item_before_the_message(self):
        response = self.response()
        reasoning, message = response["output"]
        self.assertEqual((reasoning["type"], reasoning["summary"], reasoning["status"]), ("reasoning", [], "completed"))
        self.assertEqual(reasoning["content"], [{"type": "reasoning_text", "text": self.before.strip()}])
        self.assertNotIn("encrypted_content", reasoning)
        self.assertEqual(message["content"][0]["text"], self.after.lstrip())
        tokens = response["usage"]["output_tokens_details"]["reasoning_tokens"]
        self.assertGreaterEqual(tokens, len(self.before) + 1)  # of a byte each, as is the tag
        self.assertLess(tokens, response["usage"]["output_tokens"])

    def test_the_next_turn_has_it_however_it_comes_back(self):
        first = self.response(include=["reasoning.encrypted_content"])
        sealed = [{k: v for k, v in item.items() if item["type"] != "reasoning" or k != "content"} for item in first["output"]]
        asked = {"role": "user", "content": "more"}
        turns = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": text_of(first), "reasoning_content": self.before.strip()},
                 asked]
        reply = self.chat(turns, reasoning_format="none")
        for more in ({"input": "more", "previous_response_id": first["id"]}, {"input": [{"role": "user", "content": "hello"}, *sealed, asked]},
                     {"input": [{"role": "user", "content": "hello"}, *first["output"], asked]}):
            self.assertEqual(self.response(**more)["usage"]["input_tokens"], reply["usage"]["prompt_tokens"])

    def test_an_effort_is_the_templates(self):
        longer = self.response(reasoning={"effort": "high"})["usage"]["input_tokens"] - self.response()["usage"]["input_tokens"]
        self.assertEqual(longer, len("high"))


class Tools(Asking, ServerCase):
    FLAGS, TEMPLATE = ("-c", 4096, "--parallel", 2), HERMES.read_text()
    ASKED = {"input": "Weather?", "tools": TOOLS, "max_output_tokens": 120, "temperature": 1, "seed": 5}

    @classmethod
    def tiny_model(cls, to):
        return quoting_model(to, {})

    def test_a_call_is_forced(self):
        for choice, names in (("required", ("weather", "time")), ({"type": "function", "name": "weather"}, ("weather",))):
            response = self.response(**self.ASKED, tool_choice=choice)
            self.assertEqual((response["status"], response["tool_choice"], response["tools"]), ("completed", choice, TOOLS))
            call, = response["output"]
            self.assertEqual((call["type"], call["status"]), ("function_call", "completed"))
            self.assertIn(call["name"], names)
            self.assertRegex(call["call_id"], "^call_[0-9A-Za-z]+$")
            arguments = json.loads(call["arguments"])
            if call["name"] == "weather":
                self.assertLessEqual(len(arguments["city"]), 20)

    def test_a_call_that_is_cut_off_stays_one(self):
        body = {**self.ASKED, "tool_choice": {"type": "function", "name": "weather"}, "max_output_tokens": 60}
        response = self.response(**body)
        call, = response["output"]
        self.assertEqual((response["status"], call["status"], call["name"]), ("incomplete", "incomplete", "weather"))
        self.assertTrue(call["arguments"].startswith("{"))

    def test_a_conversation_goes_on_with_the_output(self):
        call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{\"city\": \"Paris\"}"}
        output = {"type": "function_call_output", "call_id": "c1", "output": "rain"}
        items = [{"role": "user", "content": "Weather?"}, call, output, {"role": "user", "content": "and now?"}]
        chat = [{"role": "user", "content": "Weather?"},
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Paris"}}}]},
                {"role": "tool", "tool_call_id": "c1", "content": "rain"}, {"role": "user", "content": "and now?"}]
        tools = [{"type": "function", "function": {k: v for k, v in t.items() if k not in ("type", "strict")}} for t in TOOLS]
        reply = self.chat(chat, tools=tools, max_tokens=24)
        response = self.response(input=items, tools=TOOLS, max_output_tokens=24)
        self.assertEqual(text_of(response), reply["choices"][0]["message"]["content"])
        self.assertEqual(response["usage"]["input_tokens"], reply["usage"]["prompt_tokens"])

    def test_a_call_that_is_stored_has_its_output_next(self):
        first = self.response(**self.ASKED, tool_choice={"type": "function", "name": "weather"})
        call, = first["output"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
        stored = self.response(input=[output], previous_response_id=first["id"], tools=TOOLS)
        sent = self.response(input=[{"role": "user", "content": "Weather?"}, call, output], tools=TOOLS)
        self.assertEqual((text_of(stored), stored["usage"]["input_tokens"]), (text_of(sent), sent["usage"]["input_tokens"]))
        wrong = {**BODY, "input": [{**output, "call_id": "other"}], "previous_response_id": first["id"]}
        self.refused(RESPONSES, wrong, "input[0].call_id")

    def test_text_is_of_a_schema(self):
        schema = {"type": "integer", "minimum": 1, "maximum": 9}
        response = self.response(text={"format": {"type": "json_schema", "name": "digit", "schema": schema}})
        self.assertRegex(text_of(response), "^[1-9]$")


if __name__ == "__main__":
    main()
