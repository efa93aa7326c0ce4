"""Templates of strangers end in one clear message and a 400, never the server."""
import pathlib
import time

from serving import ANSWER, Server, ServerCase, bytes_model, main

BAD = {
    "{{ raise_exception('only turns') }}": "only turns",
    "{{ raise_exception('only\\nturns') }}": "turns",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}": "steps",
    "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}": "",
    "{{ 'x' * 1000000000 }}": "",
    "{{ messages | nonsense }}": "nonsense",
    "{{ messages[0].content.nothing.more }}": "",
}
HELLO = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}


class Templates(ServerCase):
    def test_what_goes_wrong_while_it_runs_is_a_400(self):
        for number, (template, part) in enumerate(BAD.items()):
            file = pathlib.Path(self.dir) / f"bad{number}.jinja"
            file.write_text(template)
            with Server(self.model, "-c", 100, "--chat-template-file", file) as server:
                begun = time.monotonic()
                error = server.post("/v1/chat/completions", HELLO, status=400)["error"]
                self.assertLess(time.monotonic() - begun, ANSWER, template)
                self.assertIn(part, error["message"], template)
                self.assertIn("template", error["message"], template)
                self.assertNotIn(".cc:", error["message"], template)
                self.assertEqual(error["type"], "invalid_request_error")
                self.assertTrue(server.text("still there", 2))

    def test_what_cannot_be_read_is_told_at_the_start(self):
        file = pathlib.Path(self.dir) / "broken.jinja"
        file.write_text("line one\n{% for x %}")
        with self.assertRaisesRegex(AssertionError, "broken.jinja"):
            Server(self.model, "--chat-template-file", file)

    def test_a_model_whose_own_template_is_broken_serves_completions_alone(self):
        model = bytes_model(self.dir / "broken")
        (model / "chat_template.jinja").write_text("line one\n{% for x %}")
        with Server(model, "-c", 100) as server:
            self.assertRegex(server.log, "note: there is no chat, only completions: .*line 2.*chat_template.jinja")
            for route in "/v1/chat/completions", "/apply-template":
                error = server.post(route, HELLO, status=400)["error"]
                self.assertRegex(error["message"], "line 2.*chat_template.jinja", route)
            self.assertTrue(server.text("still there", 2))
            self.assertIsNone(server.get("/props")["chat_template"])


if __name__ == "__main__":
    main()
