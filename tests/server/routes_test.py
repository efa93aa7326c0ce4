"""The server's routes but for the completions: what they show, who may ask, and what is refused."""
import collections
import json
import os
import re
import time

from serving import TEMPLATE, Server, ServerCase, bytes_model, main, run


def prometheus(text):
    """{(name, labels): value} of a page of metrics, and {family: type}; all rules of the text format that it can break."""
    sample = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
    label = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
    values, types, helped, family = {}, {}, set(), None
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            family = line.split(" ", 3)[2]
            assert family not in helped, line
            helped.add(family)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == family and kind in ("counter", "gauge", "histogram"), line
            types[name] = kind
        else:
            found = sample.fullmatch(line)
            assert found, line
            name, labels, value = found.groups()
            pairs = label.findall(labels or "")
            assert "".join(f'{k}="{v}",' for k, v in pairs).rstrip(",") == (labels or ""), line
            suffixes = ("_bucket", "_sum", "_count") if types[family] == "histogram" else ("",)
            assert name in [family + s for s in suffixes], line
            assert (name, tuple(pairs)) not in values, line
            values[name, tuple(pairs)] = float(value)
    return values, types


class Routes(ServerCase):
    FLAGS = ("-c", 128, "--parallel", 3)

    def metrics(self):
        reply = self.server.ask("GET", "/metrics")
        self.assertIn("text/plain; version=0.0.4", reply.headers["Content-Type"])
        return prometheus(reply.body.decode())

    def test_health_says_ok(self):
        for path in "/health", "/v1/health":
            self.assertEqual(self.server.get(path), {"status": "ok"})

    def test_models_are_the_one_that_is_served(self):
        for path in "/v1/models", "/models":
            listed = self.server.get(path)
            self.assertEqual(listed["object"], "list")
            model, = listed["data"]
            self.assertEqual((model["id"], model["object"], model["owned_by"]), ("tiny", "model", "canopy"))
            self.assertLess(abs(model["created"] - time.time()), 600)
            self.assertEqual(model["meta"] | {"size": 0},
                             {"n_vocab": 97, "n_ctx": 128, "n_ctx_train": 256, "n_embd": 32, "n_params": 31456, "size": 0})

    def test_a_model_is_described_by_each_of_its_names(self):
        with Server(self.model, "-c", 128, "--alias", "org/big", "--alias", "claude-*", "--api-key", "k", alias=None) as server:
            listed, = server.get("/v1/models")["data"]
            self.assertEqual(listed["id"], "org/big")
            for path, name in (("org/big", "org/big"), ("org%2Fbig", "org/big"), ("claude-4%20x", "claude-4 x")):
                model = server.get(f"/v1/models/{path}")
                self.assertEqual({**model, "created": 0}, {**listed, "created": 0, "id": name})
            error = server.ask("GET", "/v1/models/gpt-4").json["error"]
            self.assertEqual((error["code"], error["param"]), (404, "model"))

    def test_props_name_the_model_and_what_is_the_default(self):
        props = self.server.get("/props")
        self.assertEqual(props["model_path"], str(self.model))
        self.assertEqual(props["total_slots"], 3)
        self.assertEqual(props["build_info"], run("--version").stdout.split("\n")[0])
        self.assertRegex(props["build_info"], r"^canopy \d+\.\d+\.\d+( \(commit [0-9a-f]+(-dirty)?\))?$")
        self.assertEqual(props["chat_template"], TEMPLATE)
        self.assertEqual(props["default_generation_settings"]["n_ctx"], 128)
        self.assertEqual(props["default_generation_settings"]["params"]["temperature"], 0)

    def test_props_and_the_first_line_say_what_is_predicted_of_one_text_and_of_a_full_house(self):
        predicted = self.server.get("/props")["canopy"]["predicted"]
        self.assertEqual([predicted[house]["texts"] for house in ("one_text", "full_house")], [1, 3])
        for house in predicted.values():
            self.assertGreater(house["seconds_per_token"], 0)
            self.assertGreaterEqual(house["tree_nodes"], house["tree_levels"])
        self.assertEqual([predicted[house]["text_tokens"] for house in ("one_text", "full_house")], [64, 128])
        self.assertRegex(self.server.log, r"3 texts share a sweep; \w+, predicted for one: .* s per token; for 3: .* s per token")

    def test_slots_are_as_many_as_texts_share_a_sweep(self):
        slots = self.server.get("/slots")
        self.assertEqual([slot["id"] for slot in slots], [0, 1, 2])
        for slot in slots:
            self.assertEqual((slot["n_ctx"], slot["is_processing"]), (128, False))

    def test_tokens_make_their_text_again(self):
        for text in "hello world", "tab\tand\nline", "\"'\\{}[]<>", "":
            tokens = self.server.post("/tokenize", {"content": text})["tokens"]
            self.assertEqual(len(tokens), len(text))
            self.assertEqual(self.server.post("/detokenize", {"tokens": tokens}), {"content": text, "prompt": text})
            self.assertEqual(self.server.post("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"], tokens)
            pieces = self.server.post("/tokenize", {"content": text, "with_pieces": True})["tokens"]
            self.assertEqual([(p["id"], p["piece"]) for p in pieces], list(zip(tokens, text)))

    def test_tokenize_says_which_member_is_wrong(self):
        self.refused("/tokenize", {}, "content")
        self.refused("/tokenize", {"content": 3}, "content")
        self.refused("/tokenize", {"content": "a", "with_pieces": "yes"}, "with_pieces")
        self.refused("/tokenize", {"content": "a", "pieces": True}, "pieces")
        self.refused("/tokenize", {"content": "a", "prompt": "a"}, "prompt")
        self.refused("/tokenize", {"content": "a", "add_special_tokens": False}, "add_special_tokens")
        self.refused("/tokenize", {"prompt": 3}, "prompt")
        self.refused("/detokenize", {}, "tokens")
        for bad in "text", 3, [97], [-1], [1.5], ["a"], [[1]], [10 ** 30], [None]:
            self.refused("/detokenize", {"tokens": bad}, "tokens")

    def test_a_client_learns_with_which_tokens_texts_begin_and_end(self):
        info = self.server.get("/tokenizer_info")
        self.assertEqual(sorted(info), ["bos_token", "chat_template", "eos_token", "tokenizer_class"])
        for name in "bos_token", "eos_token":
            if info[name] is not None:
                self.assertEqual(len(self.server.post("/tokenize", {"content": info[name]})["tokens"]), 1, name)
        self.assertIn("messages", info["chat_template"])

    def test_a_template_is_applied_to_messages(self):
        messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
        self.assertEqual(self.server.post("/apply-template", {"messages": messages}), {"prompt": "u:hi\na:ho\na:"})
        self.assertEqual(self.server.post("/apply-template", {"messages": messages, "add_generation_prompt": False}),
                         {"prompt": "u:hi\na:ho\n"})
        self.refused("/apply-template", {"messages": []}, "messages")

    def test_a_last_message_is_continued(self):
        messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho "}]
        asked = {"messages": messages, "add_generation_prompt": False, "continue_final_message": True}
        self.assertEqual(self.server.post("/apply-template", asked), {"prompt": "u:hi\na:ho "})
        reply = self.server.post("/v1/chat/completions", {**asked, "temperature": 0, "max_tokens": 8})
        self.assertEqual(reply["choices"][0]["message"]["content"], self.server.text("u:hi\na:ho ", 8, temperature=0))
        self.assertEqual(reply["usage"]["prompt_tokens"], len("u:hi\na:ho "))

    def test_metrics_follow_the_text_format(self):
        self.server.text("a", 2)
        values, types = self.metrics()
        for name in ("num_requests_running num_requests_waiting kv_cache_usage_perc prefix_cache_queries prefix_cache_hits "
                     "prompt_tokens_total generation_tokens_total request_success_total time_to_first_token_seconds "
                     "inter_token_latency_seconds e2e_request_latency_seconds spec_decode_num_drafts "
                     "spec_decode_num_draft_tokens spec_decode_num_accepted_tokens spec_decode_num_accepted_tokens_per_pos "
                     "link_bytes_total link_busy_seconds_total stall_seconds_total resident_bytes sweep_seconds "
                     "sequences_per_sweep ").split():
            self.assertIn("canopy_" + name, types)
        self.assertGreater(values["canopy_resident_bytes", (("tier", "host"),)], 0)
        for name, kind in types.items():
            if kind != "histogram":
                continue
            buckets = [(float(labels[0][1].replace("Inf", "inf")), v) for (n, labels), v in values.items()
                       if n == name + "_bucket"]
            self.assertEqual(buckets, sorted(buckets), name)
            counts = [count for _, count in buckets]
            self.assertEqual(counts, sorted(counts), name)
            self.assertEqual(buckets[-1], (float("inf"), values[name + "_count", ()]), name)

    def test_metrics_count_texts_and_tokens(self):
        def counts():
            values = collections.defaultdict(float, self.metrics()[0])
            return [values[f"canopy_{name}", labels] for name, labels in (
                ("request_success_total", (("finished_reason", "length"),)), ("prompt_tokens_total", ()),
                ("generation_tokens_total", ()), ("e2e_request_latency_seconds_count", ()),
                ("time_to_first_token_seconds_count", ()), ("tokens_per_sweep_sum", ()))]
        before = counts()
        self.server.text("hello", 7, ignore_eos=True)
        self.server.text("good bye", 1, n=3)
        self.assertEqual([b - a for a, b in zip(before, counts())], [4, 5 + 3 * 8, 10, 4, 4, 10])
        self.assertEqual(self.server.gauges(), [0, 0])

    def test_the_state_shows_the_last_sweep(self):
        self.server.text("hello", 3)
        state = self.server.get("/canopy/state")
        self.assertEqual(state["last"]["texts"], 1)
        self.assertEqual(state["sweep"]["layers"], 2)
        self.assertFalse(state["sweep"]["running"])
        self.assertEqual(state["texts"], {"all": 0, "most_sharing": 3})

    def test_unknown_paths_are_not_found(self):
        for path in "/v1/nothing", "/v1", "/v1/v1/models", "/health/", "/../../etc/passwd", "/%2e%2e/etc/passwd", "/props?a=1/..":
            reply = self.server.ask("GET", path)
            self.assertEqual(reply.status, 200 if path.startswith("/props?") else 404, path)
        error = self.server.post("/v1/embeddings", {"input": "a"}, status=404)["error"]
        self.assertEqual((error["type"], error["code"]), ("not_found_error", 404))
        self.assertIn("/v1/embeddings", error["message"])

    def test_other_methods_are_not_allowed(self):
        for method, path in (("POST", "/health"), ("GET", "/v1/completions"), ("GET", "/tokenize"), ("PUT", "/v1/models"),
                             ("DELETE", "/v1/chat/completions"), ("PATCH", "/slots"), ("HEAD", "/tokenize")):
            reply = self.server.ask(method, path, b"{}")
            self.assertEqual(reply.status, 405, (method, path))
            self.assertIn(reply.headers["Allow"], ("GET", "POST"))
            if method != "HEAD":
                self.assertIn(path, reply.json["error"]["message"])

    def test_hosts_that_are_not_this_machine_are_refused(self):
        for host in "localhost", "localhost:99", "127.0.0.1", "127.8.8.8:1", "[::1]:80", "LocalHost":
            self.assertEqual(self.server.ask("GET", "/health", headers={"Host": host}).status, 200, host)
        for host in ("localhost.evil.com", "evil.com", "127.evil.com", "127.0.0.1.evil.com", "evil.com:127", "[::1].evil.com",
                     "10.0.0.1", "xlocalhost", "evil.com/localhost"):
            reply = self.server.ask("GET", "/health", headers={"Host": host})
            self.assertEqual((reply.status, reply.json["error"]["type"]), (403, "permission_error"), host)

    def test_pages_from_elsewhere_are_refused(self):
        for origin in "http://evil.com", "null", "http://localhost.evil.com", "https://localhost", "http://localhost:1":
            for method, path in ("GET", "/v1/models"), ("POST", "/v1/completions"), ("OPTIONS", "/v1/completions"):
                reply = self.server.ask(method, path, headers={"Origin": origin})
                self.assertEqual(reply.status, 403, (origin, method))
                self.assertIsNone(reply.headers["Access-Control-Allow-Origin"])
        own = {"Origin": f"http://localhost:{self.server.port}", "Host": f"localhost:{self.server.port}"}
        self.assertEqual(self.server.ask("GET", "/v1/models", headers=own).status, 200)


class Access(ServerCase):
    ORIGIN = "https://chat.example"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.dir / "keys").write_text("from file\r\n\n  \nand another\n")
        cls.server.__exit__()
        cls.server = cls.start("--api-key", "one", "--api-key", "two", "--api-key-file", cls.dir / "keys",
                               "--cors-origin", cls.ORIGIN)

    def status(self, headers, path="/v1/completions"):
        return self.server.ask("POST", path, {"prompt": "a", "max_tokens": 1}, headers)

    def test_each_key_opens_in_both_headers(self):
        for key in "one", "two", "from file", "and another":
            self.assertEqual(self.status({"Authorization": f"Bearer {key}"}).status, 200, key)
            self.assertEqual(self.status({"X-Api-Key": key}).status, 200, key)
        self.assertEqual(self.status({"authorization": "bearer one"}).status, 200)

    def test_other_keys_do_not(self):
        for headers in ({}, {"Authorization": "Bearer three"}, {"Authorization": "one"}, {"X-Api-Key": "on"}, {"X-Api-Key": "oneone"},
                        {"X-Api-Key": ""}, {"Authorization": "Bearer "}, {"Authorization": "Basic one"}, {"X-Api-Key": "one,two"}):
            reply = self.status(headers)
            self.assertEqual((reply.status, reply.json["error"]["type"]), (401, "authentication_error"), headers)
            self.assertNotIn("one", reply.json["error"]["message"].replace("none", ""))

    def test_what_needs_a_key(self):
        for path in "/health", "/v1/health", "/v1/models", "/models":
            self.assertEqual(self.server.ask("GET", path).status, 200, path)
        for path in "/props", "/slots", "/metrics", "/canopy/state", "/v1/slots", "/nothing":
            self.assertEqual(self.server.ask("GET", path).status, 401, path)

    def test_pages_from_a_named_origin_may_ask(self):
        reply = self.server.ask("OPTIONS", "/v1/chat/completions", headers={
            "Origin": self.ORIGIN, "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type"})
        self.assertEqual(reply.status, 200)
        self.assertEqual(reply.headers["Access-Control-Allow-Origin"], self.ORIGIN)
        self.assertIn("POST", reply.headers["Access-Control-Allow-Methods"])
        self.assertIn("authorization", reply.headers["Access-Control-Allow-Headers"].lower())
        self.assertEqual(reply.headers["Vary"], "Origin")
        for headers, status in ({"X-Api-Key": "one"}, 200), ({}, 401):
            reply = self.status({"Origin": self.ORIGIN, **headers})
            self.assertEqual((reply.status, reply.headers["Access-Control-Allow-Origin"]), (status, self.ORIGIN))
        self.assertEqual(self.status({"Origin": "https://chat.example.evil", "X-Api-Key": "one"}).status, 403)


class Starting(ServerCase):
    def test_before_the_model_is_there_everything_says_so(self):
        # What it measures of a machine that it does not know yet takes its time.
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.dir / "new_cache")}
        with Server(self.model, env=environment, wait=False) as server:
            replies = [server.ask("GET", "/health") for _ in range(2)] + [server.ask("POST", "/v1/completions", {"prompt": "a"})]
            if server.serves.is_set():
                self.skipTest("the model was there at once")
            for reply in replies:
                self.assertEqual(reply.status, 503)
                self.assertEqual(reply.json["error"], {"code": 503, "message": "Loading model", "type": "unavailable_error",
                                                       "param": None})
                self.assertEqual(reply.headers["x-should-retry"], "true")
                self.assertGreaterEqual(int(reply.headers["Retry-After"]), 1)
            self.assertEqual(server.get("/v1/models")["data"][0]["id"], "tiny")
            self.assertTrue(server.serves.wait(60))
            self.assertEqual(server.get("/health"), {"status": "ok"})

    def test_mistakes_end_the_start(self):
        port = str(self.server.port)
        for flags, code, part in ((("--port", "x"), 2, "--port"), (("--port", port), 1, port), (("--port", 65536), 2, "--port"),
                                  (("--parallel", 0), 2, "--parallel"), (("--api-key", ""), 2, "--api-key"), (("-c", 1), 2, "--ctx-size"),
                                  (("--alias", ""), 2, "--alias"), (("--alias", "a*b*"), 2, "a*b*"),
                                  (("--api-key-file", self.dir / "none"), 1, "none"), (("--host", "no such host"), 1, "no such host"),
                                  (("--chat-template-file", self.dir / "none"), 1, "none")):
            result = run("serve", "-m", self.model, *(() if "--port" in flags else ("--port", 0)), *flags, timeout=60)
            self.assertEqual(result.returncode, code, (flags, result.stderr))
            self.assertIn(part, result.stderr)

    def test_the_context_is_the_models_and_8192_at_most(self):
        config = json.loads((self.model / "config.json").read_text())
        for length, context in ((300, 300), (100_000, 8192)):
            model = bytes_model(self.dir / f"of {length}")
            (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": length}))
            with Server(model) as server:
                self.assertIn(f"context: {context} tokens; -c N takes another\n", server.log)
                self.assertEqual(server.get("/props")["default_generation_settings"]["n_ctx"], context)

    def test_a_model_answers_to_all_its_names(self):
        names = ("--alias", "big", "--alias", "claude-*", "--alias", "*-mini", "--alias", "o*1", "--alias", "small")
        with Server(self.model, *names, alias=None) as server:
            self.assertEqual(server.get("/v1/models")["data"][0]["id"], "big")
            for name in "big", "big.gguf", "small", "claude-", "claude-sonnet-4-5", "gpt-mini", "-mini", "o1", "o-1":
                reply = server.post("/v1/completions", {"model": name, "prompt": "a", "max_tokens": 1})
                self.assertEqual(reply["model"], "big")
            for name in "", "claude", "small-", "a-claude-x", "mini", "gpt-mini-", "o", "1", "o12", self.model.name:
                error = server.post("/v1/completions", {"model": name, "prompt": "a", "max_tokens": 1}, status=404)["error"]
                self.assertEqual(error["message"], f"there is no model '{name}' here, only 'big', 'claude-*', '*-mini', 'o*1', 'small'")
        with Server(self.model, "--alias", "claude-*", alias=None) as server:
            self.assertEqual(server.get("/v1/models")["data"][0]["id"], self.model.name)
            reply = server.post("/v1/completions", {"model": "claude-x", "prompt": "a", "max_tokens": 1})
            self.assertEqual(reply["model"], self.model.name)

    def test_without_a_template_there_are_completions_alone(self):
        with Server(self.model) as server:
            self.assertIn("no chat", server.log)
            self.assertEqual(server.text("hello", 4), self.server.text("hello", 4))
            error = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, status=400)["error"]
            self.assertIn("template", error["message"])
            self.assertIsNone(server.get("/props")["chat_template"])

    def test_a_template_that_refuses_is_a_mistake_of_the_request(self):
        template = self.dir / "refuses.jinja"
        template.write_text("{{ raise_exception('turns must alternate') }}" + TEMPLATE)
        with Server(self.model, "--chat-template-file", template) as server:
            for stream in False, True:
                body = {"messages": [{"role": "user", "content": "a"}], "stream": stream}
                error = server.post("/v1/chat/completions", body, status=400)["error"]
                self.assertIn("turns must alternate", error["message"])
                self.assertEqual(error["param"], "messages")
            self.assertEqual(server.text("hello", 4), self.server.text("hello", 4))


if __name__ == "__main__":
    main()
