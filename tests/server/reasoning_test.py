"""Reasoning that a model writes before its answer: a member of its own in replies and streams, or left where it was."""
from serving import Server, ServerCase, main

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 24}
# The prompt opens the block; what closes it is the place's.
TEMPLATE = ("{% for m in messages %}{{ m.role }}:{% if m.reasoning_content %}<r>{{ m.reasoning_content }}CLOSE{% endif %}"
            "{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:<r>{% endif %}")


def message(reply):
    return reply["choices"][0]["message"]


def deltas(events, name):
    return "".join(c["delta"].get(name) or "" for e in events for c in e.get("choices", []))


class Reasoning(ServerCase):
    TEMPLATE = TEMPLATE.replace("CLOSE", "no text has this")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.raw = message(cls.server.post(CHAT, {**BODY, "reasoning_format": "none"}))["content"]
        # A second server, whose template closes the block with a letter that this text has within it.
        cls.close = next(c for i, c in enumerate(cls.raw) if i > 3 and c.isascii() and c.isalnum() and c not in cls.raw[:i])
        template = cls.dir / "closing.jinja"
        template.write_text(TEMPLATE.replace("CLOSE", cls.close))
        cls.closing = Server(cls.model, "--chat-template-file", template)
        cls.addClassCleanup(cls.closing.__exit__)
        before, _, after = cls.raw.partition(cls.close)
        cls.reasoning, cls.answer = before.strip(), after.lstrip()

    def test_a_block_that_does_not_end_is_all_reasoning(self):
        for more in {}, {"reasoning_format": "auto"}, {"reasoning_format": "deepseek"}:
            got = message(self.server.post(CHAT, {**BODY, **more}))
            self.assertEqual((got["reasoning_content"], got["reasoning"], got["content"]), (self.raw.strip(), self.raw.strip(), ""))

    def test_what_follows_the_closing_tag_is_the_answer(self):
        got = message(self.closing.post(CHAT, BODY))
        self.assertEqual((got["reasoning_content"], got["reasoning"]), (self.reasoning, self.reasoning))
        self.assertEqual(got["content"], self.answer)

    def test_streams_have_it_piece_by_piece(self):
        events = self.closing.stream(CHAT, BODY)
        for name in "reasoning_content", "reasoning":
            self.assertEqual(deltas(events, name), self.reasoning)
        self.assertEqual(deltas(events, "content"), self.answer)

    def test_a_message_that_is_continued_goes_on_with_the_block_that_it_leaves_open(self):
        for said, open in (("<r>so f", True), ("so f", False)):
            asked = {**BODY, "messages": [*BODY["messages"], {"role": "assistant", "content": said}], "add_generation_prompt": False,
                     "continue_final_message": True}
            raw = message(self.server.post(CHAT, {**asked, "reasoning_format": "none"}))["content"]
            got = message(self.server.post(CHAT, asked))
            self.assertEqual((got.get("reasoning_content", ""), got["content"]), (raw.strip(), "") if open else ("", raw))

    def test_each_choice_has_its_own(self):
        reply = self.closing.post(CHAT, {**BODY, "n": 2})
        for choice in reply["choices"]:
            self.assertEqual(choice["message"]["reasoning_content"], self.reasoning)

    def test_it_can_be_left_in_the_text_or_out_of_the_reply(self):
        got = message(self.closing.post(CHAT, {**BODY, "reasoning_format": "none"}))
        self.assertEqual(got["content"], self.raw)
        self.assertNotIn("reasoning_content", got)
        reply = self.closing.post(CHAT, {**BODY, "include_reasoning": False})
        self.assertEqual(message(reply)["content"], self.answer)
        self.assertNotIn("reasoning", message(reply))
        self.assertNotIn("warnings", reply)
        events = self.closing.stream(CHAT, {**BODY, "include_reasoning": False})
        self.assertEqual((deltas(events, "reasoning"), deltas(events, "content")), ("", self.answer))

    def test_text_that_must_satisfy_a_schema_has_none(self):
        schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer", "minimum": 1, "maximum": 9}}}
        got = message(self.server.post(CHAT, {**BODY, "response_format": schema}))
        self.assertRegex(got["content"], "^[1-9]$")
        self.assertNotIn("reasoning", got)

    def test_a_format_that_there_is_not_is_refused(self):
        self.assertIn("deepseek", self.refused(CHAT, {**BODY, "reasoning_format": "deepseek-legacy"}, "reasoning_format"))
        self.refused(CHAT, {**BODY, "include_reasoning": "yes"}, "include_reasoning")

    def test_a_template_is_given_the_reasoning_of_earlier_answers_by_either_name(self):
        for name in "reasoning", "reasoning_content":
            messages = [*BODY["messages"], {"role": "assistant", "content": "yes", name: "why"}]
            prompt = self.closing.post("/apply-template", {"messages": messages})["prompt"]
            self.assertIn(f"<r>why{self.close}yes", prompt)


if __name__ == "__main__":
    main()
