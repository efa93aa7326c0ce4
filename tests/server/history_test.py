"""A chat request's messages and tools, as a template sees them."""
from serving import ServerCase, main

CHAT = "/v1/chat/completions"
PLACE = "messages[1].tool_calls[0].function"


def history(function, **more):
    """A conversation in which the model called this function."""
    call = {"id": "c1", "type": "function", "function": function}
    return {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [call]},
                         {"role": "tool", "tool_call_id": "c1", "content": "r"}], **more}


class History(ServerCase):
    FLAGS = ("-c", 100)
    TEMPLATE = ("{% for m in messages %}{% if m.tool_calls %}{% for t in m.tool_calls %}"
                "<{{ t.function.arguments|tojson }}>{% for name, value in t.function.arguments|items %}{{ name }}{% endfor %}"
                "{% endfor %}{% elif 'tool_calls' in m or 'name' in m %}!{% endif %}{{ m.content }}{% endfor %}"
                "{% if tools %}{{ tools|tojson }}{% endif %}{{ more|tojson if more is defined }}")

    def prompt(self, body):
        return self.server.post("/apply-template", body)["prompt"]

    def test_a_call_without_arguments_has_an_empty_object_of_them(self):
        for function in ({"name": "now"}, *({"name": "now", "arguments": a} for a in ("", " \n", None, "null", "{}", {}))):
            self.assertIn("<{}>", self.prompt(history(function)), function)

    def test_arguments_are_the_object_that_their_text_is(self):
        for arguments in '{"b": [1, {"a": null}], "a": "x"}', {"b": [1, {"a": None}], "a": "x"}:
            self.assertIn('<{"b": [1, {"a": null}], "a": "x"}>ba', self.prompt(history({"name": "f", "arguments": arguments})))

    def test_arguments_that_are_no_object_are_refused_by_their_place(self):
        for arguments in ("{", "x", '{"a": 1, "a": 2}', '{"a": 1e999}', "[1]", "3", '"{}"', '{"a": 1} 2', [], 3, True,
                          '{"a":' * 70 + "1" + "}" * 70):
            for path in CHAT, "/apply-template":
                message = self.refused(path, history({"name": "f", "arguments": arguments}), PLACE + ".arguments")
                self.assertNotIn(".cc", message)
        messages = history({})["messages"]
        for calls, place in ((3, ""), ({}, ""), ([3], "[0].function"), ([{}], "[0].function"), ([{"function": "f"}], "[0].function")):
            messages[1]["tool_calls"] = calls
            self.refused(CHAT, {"messages": messages}, "messages[1].tool_calls" + place)

    def test_integers_keep_their_digits_wherever_they_stand(self):
        for digits in "12345678901234567890", "18446744073709551615", "-9223372036854775809", "1" + 30 * "0", "9223372036854775807":
            integer = int(digits)
            tool = {"type": "function", "function": {"name": "f", "parameters": {
                "type": "object", "properties": {"id": {"type": "integer", "maximum": integer}}}}}
            for arguments in '{"id": %s}' % digits, {"id": integer}:
                prompt = self.prompt(history({"name": "f", "arguments": arguments}, tools=[tool],
                                             chat_template_kwargs={"more": {"n": [integer]}}))
                for part in '<{"id": %s}>' % digits, '"maximum": %s}' % digits, '{"n": [%s]}' % digits:
                    self.assertIn(part, prompt)
        self.assertIn('<{"id": 1e+30}>', self.prompt(history({"name": "f", "arguments": '{"id": 1e30}'})))

    def test_members_of_a_message_that_are_null_are_absent(self):
        empty = {"role": "assistant", "content": "a", "tool_calls": None, "name": None, "refusal": None, "function_call": None}
        self.assertEqual(self.prompt({"messages": [empty, {**empty, "tool_calls": []}]}), "aa")


if __name__ == "__main__":
    main()
