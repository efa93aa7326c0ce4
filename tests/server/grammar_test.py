"""Answers that must be JSON of a schema, and calls of tools: what random walks of models make of them."""
import datetime
import ipaddress
import json
import re
import urllib.parse
import uuid

from serving import NEEDS_REAL_MODEL, REPO, Server, ServerCase, joined, main, quoting_model

CHAT = "/v1/chat/completions"
CAT = {"type": "object", "additionalProperties": False, "required": ["name", "age", "colors"], "properties": {
    "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 30},
    "colors": {"type": "array", "maxItems": 3, "items": {"enum": ["black", "white", "ginger"]}}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather of a city", "parameters": {
    "type": "object", "additionalProperties": False, "required": ["city"],
    "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}}}},
    {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}]
HERMES = REPO / "tests/data/chat_templates/templates/Qwen-Qwen2.5-7B-Instruct.jinja"


def ask(text, **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 120, **more}


def schema_of(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def check_cat(self, text):
    cat = json.loads(text)
    self.assertEqual(list(cat), ["name", "age", "colors"])
    self.assertLessEqual(len(cat["name"]), 12)
    self.assertTrue(0 <= cat["age"] <= 30)
    self.assertTrue(set(cat["colors"]) <= {"black", "white", "ginger"} and len(cat["colors"]) <= 3)


class Formats(ServerCase):
    FLAGS = ("-c", 1024, "--parallel", 2)

    @classmethod
    def tiny_model(cls, to):
        return quoting_model(to, {})

    def test_text_is_of_the_schema_at_every_temperature(self):
        for temperature in 0, 1, 3:
            body = ask("Describe a cat.", temperature=temperature, seed=temperature, response_format=schema_of(CAT))
            choice = self.server.post(CHAT, body)["choices"][0]
            check_cat(self, choice["message"]["content"])
            self.assertEqual(choice["finish_reason"], "stop")
            self.assertEqual(joined(self.server.stream(CHAT, body)), choice["message"]["content"])

    def test_any_object(self):
        body = ask("Describe a cat as JSON.", temperature=0, max_tokens=300, response_format={"type": "json_object"})
        choice = self.server.post(CHAT, body)["choices"][0]
        if choice["finish_reason"] == "stop":
            self.assertIsInstance(json.loads(choice["message"]["content"]), dict)
        self.assertTrue(choice["message"]["content"].startswith("{"))

    def test_what_is_refused(self):
        for response_format, part in (({"type": "xml"}, "type"), ({"type": "json_schema"}, "json_schema"),
                                      (schema_of({"oneOf": []}), "oneOf"), (schema_of({"type": "integer", "minimum": 3, "maximum": 2}), "#")):
            error = self.server.post(CHAT, ask("x", response_format=response_format), status=400)["error"]
            self.assertIn(part, error["message"])
            self.assertTrue(error["param"].startswith("response_format"), error)
            self.assertNotIn(".cc", error["message"])

    def test_a_template_without_tools_refuses_them(self):
        error = self.server.post(CHAT, ask("x", tools=TOOLS), status=400)["error"]
        self.assertEqual(error["param"], "tools")


class FormatsOfStrings(ServerCase):
    FLAGS = ("-c", 2048)
    SCHEMA = {"type": "object", "required": ["a", "b", "c", "d", "e", "f", "g", "h"], "properties": {
        "a": {"type": "string", "format": "date"}, "b": {"type": "string", "format": "time"},
        "c": {"type": "string", "format": "date-time"}, "d": {"type": "string", "format": "uuid"},
        "e": {"type": "string", "format": "email"}, "f": {"type": "string", "format": "uri", "minLength": 1, "maxLength": 150},
        "g": {"type": "string", "format": "ipv4"}, "h": {"type": "array", "minItems": 2, "maxItems": 2,
                                                         "prefixItems": [{"type": "integer"}, {"type": "boolean"}]}}}

    @classmethod
    def tiny_model(cls, to):
        return quoting_model(to, {})

    def test_random_text_is_what_other_readers_take(self):
        iso = datetime.datetime.fromisoformat
        for seed in range(8):
            body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2000, "temperature": 4, "seed": seed,
                    "response_format": schema_of(self.SCHEMA)}
            choice = self.server.post(CHAT, body)["choices"][0]
            self.assertEqual(choice["finish_reason"], "stop", choice)
            value = json.loads(choice["message"]["content"])
            self.assertEqual(list(value), list("abcdefgh"))
            datetime.date.fromisoformat(value["a"])
            self.assertIsNotNone(iso("2000-01-01T" + value["b"]).tzinfo)
            self.assertIsNotNone(iso(value["c"]).tzinfo)
            self.assertIn(uuid.UUID(value["d"]).version, range(1, 9))
            self.assertRegex(value["e"], r"^(?!\.)(?!.*\.\.)[\w'+.-]*[\w+-]@([A-Za-z0-9][A-Za-z0-9-]*\.)+[A-Za-z]{2,}$")
            self.assertLessEqual(len(value["e"].split("@")[0]), 64)
            url = urllib.parse.urlsplit(value["f"])
            self.assertTrue(url.scheme and url.hostname, value["f"])
            self.assertTrue(url.port is None or url.port > 0)
            self.assertLessEqual(len(value["f"]), 150)
            ipaddress.IPv4Address(value["g"])
            self.assertEqual([type(item) for item in value["h"]], [int, bool])

    def test_what_zod_writes_is_kept(self):
        schemas = json.loads((REPO / "tests/data/grammar/zod_schemas.json").read_text())
        user = schemas["user"]
        user["properties"] |= {name: schemas[name] for name in ("duration", "datetime_offset", "hostname", "starts_and_ends", "article")}
        user["required"] = list(user["properties"])
        user["properties"]["tags"]["maxItems"] = 2
        user["properties"]["starts_and_ends"]["maxLength"] = 40
        for seed in range(4):
            choice = self.server.post(CHAT, ask("x", max_tokens=2000, temperature=4, seed=seed, response_format=schema_of(user)))["choices"][0]
            self.assertEqual(choice["finish_reason"], "stop", choice)
            value = json.loads(choice["message"]["content"])
            for name, schema in user["properties"].items():
                for part in schema.get("allOf", [schema]):
                    if "pattern" in part:
                        self.assertRegex(value[name], part["pattern"])
            if value["born"]:
                datetime.date.fromisoformat(value["born"])
            self.assertTrue(all(re.fullmatch(r"#[A-Za-z0-9_]+", tag) for tag in value["tags"]), value)

    def test_a_pattern_that_is_not_regular_is_refused_by_its_place(self):
        schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": r"^(a|b)\1$"}}}
        message = self.refused(CHAT, ask("x", response_format=schema_of(schema)), "response_format")
        self.assertIn("#/properties/a", message)
        self.assertIn("a reference back to a group, which is not supported, at character 7", message)
        self.assertNotIn(".cc", message)


class CallsChecked:
    def check(self, message, name=None):
        self.assertIsNone(message["content"])
        self.assertEqual(len(message["tool_calls"]), 1)
        call = message["tool_calls"][0]
        self.assertEqual(call["type"], "function")
        self.assertTrue(call["id"])
        self.assertIn(call["function"]["name"], (name,) if name else ("weather", "time"))
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "weather":
            self.assertLessEqual(len(arguments["city"]), 20)
            self.assertTrue(1 <= arguments.get("days", 1) <= 9)
        return call


class ForcedCalls(CallsChecked):
    """Properties of a forced call, whatever form the template has."""

    def test_a_call_is_forced(self):
        for choice in "required", {"type": "function", "function": {"name": "weather"}}:
            body = ask("What is the weather in Paris?", tools=TOOLS, tool_choice=choice, temperature=1, seed=5)
            answer = self.server.post(CHAT, body)["choices"][0]
            self.assertEqual(answer["finish_reason"], "tool_calls")
            call = self.check(answer["message"], None if choice == "required" else "weather")
            deltas, calls = self.streamed(body)
            self.assertEqual({one["index"] for one in calls}, {0})
            self.assertEqual(calls[0]["function"]["name"], call["function"]["name"])
            self.assertTrue(calls[0]["id"])
            self.assertFalse(any("id" in one or "name" in one["function"] for one in calls[1:]))
            self.assertEqual("".join(one["function"]["arguments"] for one in calls), call["function"]["arguments"])
            self.assertFalse(any(delta.get("content") for delta in deltas))

    def test_arguments_are_an_object_whatever_the_schema_says(self):
        for parameters in ({}, True, None, {"title": "t"}, {"$schema": "http://json-schema.org/draft-07/schema#"}, {"type": "object"},
                           {"type": ["object", "null"]}, {"type": "object", "properties": None, "required": None},
                           {"type": "object", "properties": {}}):
            tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
            for seed in range(2):
                answer = self.server.post(CHAT, ask("q", tools=[tool], tool_choice="required", temperature=1.5, seed=seed))["choices"][0]
                self.assertEqual(answer["finish_reason"], "tool_calls", parameters)
                self.assertEqual(json.loads(answer["message"]["tool_calls"][0]["function"]["arguments"]), {}, parameters)
        either = {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {"enum": [1, 2]}}}]}
        tool = {"type": "function", "function": {"name": "f", "parameters": either}}
        for seed in range(4):
            answer = self.server.post(CHAT, ask("q", tools=[tool], tool_choice="required", temperature=1.5, seed=seed))["choices"][0]
            arguments = json.loads(answer["message"]["tool_calls"][0]["function"]["arguments"])
            self.assertIn(arguments, ({}, {"a": 1}, {"a": 2}))
        tool["function"]["parameters"] = {"type": "array"}
        self.assertIn("is an object", self.refused(CHAT, ask("q", tools=[tool], tool_choice="required"), "tools"))

    def test_a_forced_call_that_is_cut_off_stays_a_call(self):
        body = ask("What is the weather in Paris?", tools=TOOLS[:1], tool_choice="required", temperature=1, seed=5)
        whole = self.server.post(CHAT, body)
        arguments = whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
        lengths = []
        for most in range(1, whole["usage"]["completion_tokens"]):
            choice = self.server.post(CHAT, {**body, "max_tokens": most})["choices"][0]
            self.assertEqual(choice["finish_reason"], "length")
            self.assertFalse(choice["message"]["content"])
            calls = choice["message"].get("tool_calls", [])
            for call in calls:
                self.assertEqual(call["function"]["name"], "weather")
                self.assertTrue(arguments.startswith(call["function"]["arguments"]), call)
                lengths.append(len(call["function"]["arguments"]))
            deltas, pieces = self.streamed({**body, "max_tokens": most})
            self.assertFalse(any(delta.get("content") for delta in deltas))
            self.assertEqual("".join(p["function"]["arguments"] for p in pieces),
                             "".join(c["function"]["arguments"] for c in calls))
        self.assertEqual(lengths, sorted(lengths))
        self.assertGreater(len(set(lengths)), 3)

    def test_a_call_is_told_while_it_is_written(self):
        body = ask("What is the weather in Paris?", tools=TOOLS, tool_choice="required", temperature=1, seed=5)
        # What was written while the server waited for a processor comes together.
        self.assertTrue(any(len(self.streamed(body)[1]) > 1 for _ in range(10)))

    def streamed(self, body):
        """Collects what a stream's events add, and what of it are calls."""
        deltas = [c["delta"] for e in self.server.stream(CHAT, body) for c in e["choices"]]
        return deltas, [one for delta in deltas for one in delta.get("tool_calls", [])]


class Tools(ForcedCalls, ServerCase):
    FLAGS, TEMPLATE = ("-c", 4096, "--parallel", 2), HERMES.read_text()

    @classmethod
    def tiny_model(cls, to):
        return quoting_model(to, {})

    def test_a_conversation_goes_on_behind_a_call(self):
        call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Paris\"}"}}
        messages = [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "call_1", "content": "rain"}]
        prompt = self.server.post("/apply-template", {"messages": messages, "tools": TOOLS})["prompt"]
        self.assertIn('<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>', prompt)
        self.assertIn("<tool_response>\nrain", prompt)
        answer = self.server.post(CHAT, {"messages": messages, "tools": TOOLS, "max_tokens": 8, "temperature": 0})
        self.assertIn(answer["choices"][0]["finish_reason"], ("stop", "length", "tool_calls"))

    def test_what_is_refused(self):
        bad = dict(TOOLS[0], function={"name": "f", "parameters": {"type": "object", "oneOf": []}})
        for more, param in (({"tools": [bad], "tool_choice": "required"}, "tools"), ({"tool_choice": "required"}, "tool_choice"),
                            ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice"),
                            ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "no"}}}, "tool_choice"),
                            ({"tools": [{"type": "search"}]}, "tools[0].type"), ({"tools": "all"}, "tools"),
                            ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name")):
            self.refused(CHAT, ask("x", **more), param)


@NEEDS_REAL_MODEL
class RealModel(CallsChecked, ServerCase):
    """Schemas and calls with a real vocabulary."""

    REAL, FLAGS = True, ("-c", 1024, "--parallel", 2, "--chat-template-file", HERMES)

    def test_text_is_of_the_schema(self):
        body = ask("Describe a cat.", temperature=1, seed=1, response_format=schema_of(CAT))
        choice = self.server.post(CHAT, body)["choices"][0]
        check_cat(self, choice["message"]["content"])
        self.assertEqual(choice["finish_reason"], "stop")

    def test_a_call_is_forced(self):
        body = ask("What is the weather in Paris?", tools=TOOLS, tool_choice="required", temperature=1, seed=5)
        self.check(self.server.post(CHAT, body)["choices"][0]["message"])


class OtherForm(ForcedCalls):
    """Calls in a form other than Hermes', by a random model: the grammar alone makes them calls."""

    FLAGS = ("-c", 2048)

    @classmethod
    def tiny_model(cls, to, special=None):
        return quoting_model(to, cls.SPECIAL if special is None else special)

    def test_a_conversation_goes_on_behind_a_call(self):
        call = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Paris\"}"}}
        messages = [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "abcdefghi", "content": "rain"}]
        prompt = self.server.post("/apply-template", {"messages": messages, "tools": TOOLS})["prompt"]
        self.assertIn(self.WRITTEN, prompt)
        self.assertIn("rain", prompt[prompt.index(self.WRITTEN):])
        answer = self.server.post(CHAT, {"messages": messages, "tools": TOOLS, "max_tokens": 8, "temperature": 0})
        self.assertIn(answer["choices"][0]["finish_reason"], ("stop", "length", "tool_calls"))


class LlamaForm(OtherForm, ServerCase):
    SPECIAL = {}
    WRITTEN = 'assistant: {"name": "weather", "parameters": {"city": "Paris"}}\n'

    TEMPLATE = (
        "{% if tools %}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}"
        "{% for m in messages %}{{ m.role }}: {% if m.tool_calls %}{% set call = m.tool_calls[0].function %}"
        "{\"name\": \"{{ call.name }}\", \"parameters\": {{ call.arguments | tojson }}}"
        "{% else %}{{ m.content }}{% endif %}{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}")


class MistralForm(OtherForm, ServerCase):
    SPECIAL = {96: "[TOOL_CALLS]"}
    WRITTEN = '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Paris"}, "id": "abcdefghi"}]'

    TEMPLATE = (REPO / "tests/data/chat_templates/templates/mistralai-Mistral-Nemo-Instruct-2407.jinja").read_text()

    def test_ids_are_what_its_template_takes(self):
        answer = self.server.post(CHAT, ask("Weather?", tools=TOOLS, tool_choice="required", temperature=1, seed=7))
        self.assertRegex(answer["choices"][0]["message"]["tool_calls"][0]["id"], "^[0-9A-Za-z]{9}$")

    def test_a_tokenizer_without_its_token_is_told(self):
        model = self.tiny_model(self.dir / "plain", special={})
        with Server(model, "-c", 2048, "--chat-template-file", self.dir / "template.jinja") as server:
            error = server.post(CHAT, ask("Weather?", tools=TOOLS), status=400)["error"]
        self.assertEqual(error["param"], "tools")
        self.assertIn("no token [TOOL_CALLS]", error["message"])


if __name__ == "__main__":
    main()
