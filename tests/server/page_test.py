"""GET / of canopy serve: a page that needs nothing from anywhere else, and may fetch nothing."""
import base64
import hashlib
import re

from serving import Server, ServerCase, main

NAMESPACE = "http://www.w3.org/2000/svg"


class Page(ServerCase):
    def setUp(self):
        self.reply = self.server.ask("GET", "/")
        self.text = self.reply.body.decode()

    def test_is_html_that_no_other_script_and_no_other_site_can_enter(self):
        self.assertEqual(self.reply.status, 200)
        self.assertEqual(self.reply.headers["Content-Type"], "text/html; charset=utf-8")
        self.assertEqual(self.reply.headers["X-Content-Type-Options"], "nosniff")
        policy = dict(part.split(" ", 1) for part in self.reply.headers["Content-Security-Policy"].split("; "))
        self.assertEqual((policy["default-src"], policy["connect-src"], policy["frame-ancestors"]), ("'none'", "'self'", "'none'"))
        for tag in ("script", "style"):
            (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", self.text, re.S)
            digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
            self.assertEqual(policy[tag + "-src"], f"'sha256-{digest}'")

    def test_names_no_other_host(self):
        self.assertEqual(set(re.findall(r"https?:[^\s\"']*", self.text)), {NAMESPACE})
        self.assertEqual(re.findall(r"(?:src|href)=\"//|url\(|@import|\bimport\b", self.text), [])

    def test_takes_no_text_of_a_model_as_markup(self):
        self.assertEqual(re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", self.text), [])

    def test_is_there_without_a_key_and_while_the_model_loads(self):
        with Server(self.model, "--api-key", "secret", wait=False) as server:
            self.assertEqual(server.ask("GET", "/").body, self.reply.body)
            head = server.ask("HEAD", "/")
            self.assertEqual((head.status, head.body), (200, b""))
            self.assertEqual(server.ask("POST", "/", "{}", {"Authorization": "Bearer secret"}).status, 405)

    def test_state_and_props_have_what_the_page_shows(self):
        self.server.text("a", 8)
        state, props = self.server.get("/canopy/state"), self.server.get("/props")["canopy"]
        self.assertGreaterEqual(state["sweep"]["tokens"], 8)
        self.assertGreater(state["kv"]["block_tokens"], 0)
        for whole, used in re.findall(r"\b(sweep|last|texts|kv)\.([a-z_]+)\b(?!\()", self.text):
            self.assertIn(used, state[whole])
        for used in re.findall(r"\bcanopy\.([a-z_]+)", self.text):
            if not used.startswith("gpu_"):  # there only with one
                self.assertIn(used, props)


if __name__ == "__main__":
    main()
