"""The log of requests, their ids, and what bounds a text whatever its client asks for."""
import re
import time

from serving import NEEDS_REAL_MODEL, PATIENCE, SMOLLM2, Server, ServerCase, finish_of, main, run

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
LINE = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (\S+) (\S+) (\S+) (\d+|gone) \d+\.\d{3}s(.*)$", re.M)


class LogCase(ServerCase):
    def lines(self, server, count, within=5):
        """Once there are `count` of them: [(id, method, path, status, rest)]."""
        deadline = time.monotonic() + within
        while len(found := LINE.findall(self.log_of(server))) < count and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(len(found), count, self.log_of(server))
        return found

    def log_of(self, server):
        return server.log

    def serve(self, *flags):
        return self.start("-c", 300, *flags)


class Log(LogCase):
    def test_a_line_for_each_text(self):
        server = self.serve("--parallel", 2)
        server.text("hello", 7)
        self.lines(server, 1)  # each is written after its reply
        server.stream(CHAT.replace("chat/", ""), {"prompt": "yes", "max_tokens": 3, "n": 2}, headers={"X-Request-Id": "mine-1"})
        self.lines(server, 2)
        server.post("/completion", {"prompt": "a", "n_predict": 1})
        first, second, third = self.lines(server, 3)
        self.assertTrue(first[0].startswith("req_"))
        self.assertEqual((first[1:4], second[:4], third[2:4]),
                         (("POST", TEXT, "200"), ("mine-1", "POST", TEXT, "200"), ("/completion", "200")))
        self.assertRegex(first[4], r"^ in=5 out=7 cached=0 tokens/sweep=1\.00 s/token=\S+ finish=length$")
        self.assertRegex(second[4], r"^ in=3 out=6 cached=0 tokens/sweep=1\.00 s/token=\S+ finish=length,length$")
        self.assertRegex(third[4], r"^ in=1 out=1 cached=0 tokens/sweep=1\.00 finish=length$")

    def test_a_refusal_says_why_and_what_only_reads_is_left_out(self):
        server = self.serve()
        for path in "/health", "/metrics", "/v1/models", "/":
            self.assertEqual(server.ask("GET", path).status, 200)
        server.post(TEXT, {"prompt": "a", "mirostat": 2}, status=400)
        self.lines(server, 1)
        server.ask("GET", "/nothing")
        self.lines(server, 2)
        server.ask("POST", TEXT, b"{" * 2_000_000)
        bad, unknown, large = self.lines(server, 3)
        self.assertEqual(bad[1:4], ("POST", TEXT, "400"))
        self.assertRegex(bad[4], r"""^ error="'mirostat' is not supported: it can be 0 alone"$""")
        self.assertEqual((unknown[1], unknown[3]), ("GET", "404"))
        self.assertEqual(large[1:4], ("-", "-", "413"))
        self.assertIn(f"more than {2 ** 20 + 64 * 300} bytes", large[4])

    def test_a_client_that_goes_away_is_written_down(self):
        server = self.start("-c", 20_000)
        stream = server.open(TEXT, {"prompt": "hello", "max_tokens": 19_000, "ignore_eos": True})
        stream.until_text()
        stream.close()
        line, = self.lines(server, 1)
        self.assertRegex(line[4], "out=[1-9][0-9]* .*finish=cancelled$")

    def test_the_flags(self):
        file = self.dir / "requests.log"
        file.write_text("before\n")
        server = self.serve("--log-file", file)
        server.text("a", 1)
        self.log_of = lambda server: file.read_text()
        self.lines(server, 1)
        del self.log_of
        self.assertTrue(file.read_text().startswith("before\n"))
        self.lines(server, 0, 0)
        server = self.serve("-v")
        server.get("/health")
        self.assertEqual([line[2:4] for line in self.lines(server, 1)], [("/health", "200")])
        server = self.serve("--log", "off")
        server.text("a", 1)
        server.post(TEXT, {}, status=400)
        time.sleep(0.2)
        self.lines(server, 0, 0)
        for flags, part in (("--log", "some"), "--log"), (("--log-file", self.dir / "no" / "file"), "--log-file"), (("--timeout", 0), "--timeout"):
            result = run("serve", "-m", self.model, "--port", 0, *flags, timeout=60)
            self.assertIn(result.returncode, (1, 2))
            self.assertIn(part, result.stderr)

    def test_a_log_that_nobody_reads_holds_up_no_reply(self):
        server = self.serve()
        with server.unread():
            for _ in range(20):
                server.text("a", 2)
        deadline = time.monotonic() + 5 * PATIENCE
        while "left out" not in server.log and time.monotonic() < deadline:
            server.text("b", 2)  # there may be no room for its line yet
            time.sleep(0.02)
        self.assertRegex(server.log, r"note: \d+ lines of the log of requests were left out: nobody read them\n")


class Ids(ServerCase):
    FLAGS = ("-c", 100, "--log", "off")

    def id_of(self, headers=None, path=TEXT, body=None):
        return self.server.ask("POST", path, body or {"prompt": "a", "max_tokens": 1}, headers).headers["x-request-id"]

    def test_every_reply_has_one(self):
        self.assertEqual(self.id_of({"X-Request-Id": "a-B_1.2:3"}), "a-B_1.2:3")
        self.assertEqual(len({self.id_of() for _ in range(3)}), 3)
        for other in "", "a b", "x" * 129, "a/b", "\"", "\xe9":
            self.assertRegex(self.id_of({"X-Request-Id": other}), "^req_[0-9a-f]{16}$")
        self.assertEqual(self.id_of({"X-Request-Id": "bad"}, body={"prompt": 3}), "bad")
        stream = self.server.open(TEXT, {"prompt": "a", "max_tokens": 1}, headers={"X-Request-Id": "s"})
        self.assertEqual(stream.response.getheader("x-request-id"), "s")
        list(stream)
        self.assertEqual(self.server.ask("GET", "/health").headers["x-request-id"][:4], "req_")


class Bounds(LogCase):
    def test_a_text_has_at_most_as_many_tokens_as_the_server_allows(self):
        server = self.serve("-n", 9)
        for asked in {}, {"max_tokens": -1}, {"max_tokens": 50}, {"max_tokens": 9}, {"max_tokens": 4}:
            reply = server.post(TEXT, {"prompt": "hello", "ignore_eos": True, **asked})
            self.assertEqual(reply["usage"]["completion_tokens"], 4 if asked.get("max_tokens") == 4 else 9)
            self.assertEqual("warnings" in reply, asked.get("max_tokens") == 50)
        self.assertEqual(server.get("/props")["default_generation_settings"]["params"]["max_tokens"], 9)

    def test_a_text_takes_at_most_as_long_as_the_server_allows(self):
        server = self.start("-c", 20_000, "--timeout", 1)
        body = {"prompt": "hello", "max_tokens": 19_000, "ignore_eos": True}
        begun = time.monotonic()
        reply = server.post(TEXT, body)
        self.assertEqual(reply["choices"][0]["finish_reason"], "length")
        self.assertTrue(0 < reply["usage"]["completion_tokens"] < 19_000, reply["usage"])
        self.assertEqual(finish_of(server.stream(TEXT, body)), ["length"])
        self.assertTrue(2 <= time.monotonic() - begun < 6)
        self.assertEqual(server.text("hello", 5), server.text("hello", 5))
        self.assertIn('finished_reason="length"} 4', server.ask("GET", "/metrics").body.decode())

    def test_an_open_address_without_a_key_is_warned_of(self):
        for flags, warns in ((), True), (("--api-key", "k"), False):
            server = self.serve("--host", "0.0.0.0", *flags)
            self.assertEqual("warning: whoever reaches 0.0.0.0 may use this server" in server.log, warns)
        self.assertNotIn("warning: whoever", self.server.log)


@NEEDS_REAL_MODEL
class Names(ServerCase):
    REAL = True

    def test_a_model_has_its_file_s_name_without_the_ending(self):
        with Server(SMOLLM2, "-c", 100, alias=None) as server:
            name = SMOLLM2.name.removesuffix(".gguf")
            self.assertEqual([model["id"] for model in server.get("/v1/models")["data"]], [name])
            for asked in name, name + ".gguf":
                self.assertEqual(server.post(TEXT, {"prompt": "a", "max_tokens": 1, "model": asked})["model"], name)
            server.post(TEXT, {"prompt": "a", "max_tokens": 1, "model": name + ".safetensors"}, status=404)


if __name__ == "__main__":
    main()
