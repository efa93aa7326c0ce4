"""Many clients of one server: whose text is whose, who waits, who leaves, and how it all ends."""
import concurrent.futures
import http.client
import json
import itertools
import signal
import socket
import threading
import time

from serving import ServerCase, Stream, finish_of, joined, main, piece

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
LONG = {"prompt": "hello", "max_tokens": 19_000, "ignore_eos": True}  # takes many seconds


class Sharing(ServerCase):
    FLAGS = ("-c", 2000, "--parallel", 4, "--queue", 60)

    def test_texts_of_many_clients_are_those_of_each_alone(self):
        alone = {}
        prompts = [f"client {i}: " + chr(65 + i) * (i % 5) for i in range(32)]
        for prompt in prompts:
            alone[prompt] = (self.server.text(prompt, 24), self.server.text(prompt, 24, temperature=1, seed=9))
        start = threading.Barrier(32)

        def ask(i):
            start.wait()
            prompt, texts = prompts[i], []
            for more in {}, {"temperature": 1, "seed": 9}:
                body = {"prompt": prompt, "max_tokens": 24, "echo": True, **more}
                if i % 2:
                    texts.append(joined(self.server.stream(TEXT, body)))
                else:
                    texts.append(self.server.post(TEXT, body)["choices"][0]["text"])
            return texts
        with concurrent.futures.ThreadPoolExecutor(32) as threads:
            for prompt, texts in zip(prompts, threads.map(ask, range(32))):
                self.assertEqual(texts, [prompt + text for text in alone[prompt]])
        self.assertEqual(self.server.gauges(), [0, 0])

    def test_logprobs_and_stop_strings_stay_with_their_text(self):
        def asked(i):
            return {"prompt": f"{i} and", "max_tokens": 20, "logprobs": i % 3, "stop": [chr(65 + i)]}
        alone = [self.server.post(TEXT, asked(i))["choices"] for i in range(12)]
        with concurrent.futures.ThreadPoolExecutor(12) as threads:
            together = list(threads.map(lambda i: self.server.post(TEXT, asked(i))["choices"], range(12)))
        self.assertEqual(together, alone)

    def test_more_choices_than_share_a_sweep_are_all_written(self):
        text = self.server.text("hello", 16)
        self.assertEqual(self.server.post(TEXT, {"prompt": "hello", "max_tokens": 16, "n": 30})["choices"],
                         [{"index": i, "text": text, "finish_reason": "length", "logprobs": None} for i in range(30)])

    def test_choices_share_the_memory_of_their_prompt(self):
        def blocks(letter, n):
            stream = self.server.open(TEXT, {"prompt": letter * 1000, "max_tokens": 900, "ignore_eos": True, "temperature": 1, "n": n})
            begun = set()
            while len(begun) < n:
                begun |= {choice["index"] for choice in stream.until_text()["choices"]}
            kv = self.server.get("/canopy/state")["kv"]
            stream.close()
            self.assertEqual(self.server.until_texts(0, within=10), 0)
            return kv["blocks"] - kv["free"]
        one = blocks("o", 1)
        self.assertGreater(one, 10)
        self.assertLess(blocks("t", 3), 2 * one)

    def test_ids_are_never_the_same(self):
        ids = [self.server.post(TEXT, {"prompt": "a", "max_tokens": 1})["id"] for _ in range(50)]
        self.assertEqual(len(set(ids)), 50)


class Waiting(ServerCase):
    """One text at a time, and two may wait."""
    FLAGS = ("-c", 20_000, "--parallel", 1, "--queue", 2, "--sse-ping", 1)

    def setUp(self):
        self.assertEqual(self.server.until_texts(0), 0)

    def tearDown(self):
        self.assertEqual(self.server.until_texts(0), 0)
        deadline = time.monotonic() + 2  # a text that was left leaves with its sweep
        while (slots := self.server.get("/slots"))[0]["is_processing"] and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual([(slot["is_processing"], "id_task" in slot) for slot in slots], [(False, False)])

    def open(self, path=TEXT, body=LONG, **more):
        stream = self.server.open(path, {**body, **more})
        self.addCleanup(stream.close)
        return stream

    def test_a_full_queue_is_told_to_clients(self):
        streams = [self.open() for _ in range(3)]
        self.assertEqual(self.server.until_texts(3), 3)
        self.assertEqual(self.server.gauges(), [1, 2])
        for more in {}, {"stream": True}, {"n": 3}, {"prompt": ["a", "b"]}:
            for path, body in (TEXT, {"prompt": "a", **more}), (CHAT, {"messages": [{"role": "user", "content": "a"}], "n": more.get("n")}):
                reply = self.server.ask("POST", path, body)
                self.assertEqual((reply.status, reply.json["error"]["type"]), (429, "rate_limit_error"))
                self.assertGreater(int(reply.headers["Retry-After"]), 0)
                self.assertEqual(reply.headers["x-should-retry"], "true")
        page = self.server.ask("GET", "/metrics").body.decode()
        self.assertRegex(page, r'canopy_request_success_total\{finished_reason="refused"\} [1-9]')
        self.refused(TEXT, {"prompt": "a", "n": 4}, "n")  # this can never be
        for path in "/health", "/v1/models", "/props", "/slots", "/canopy/state":
            self.server.get(path)
        streams[2].close()
        self.assertEqual(self.server.until_texts(2), 2)
        streams.append(self.open(max_tokens=3))
        for stream in streams[:2]:
            stream.close()
        self.assertEqual(finish_of(list(streams[3])), ["length"])

    def test_headers_come_before_anything_else_and_comments_while_nothing_does(self):
        first = self.open()
        first.until_text()
        asked = time.monotonic()
        second = self.open(CHAT, {"messages": [{"role": "user", "content": "greetings"}], "max_tokens": 4})
        self.assertEqual(next(iter(second))["choices"][0]["delta"], {"role": "assistant", "content": None})
        self.assertLess(time.monotonic() - asked, 1)
        while time.monotonic() - asked < 2.5:
            time.sleep(0.05)
        first.close()
        events = list(second)
        self.assertGreaterEqual(second.comments, 2)
        self.assertEqual(finish_of(events), ["length"])
        self.assertTrue(second.done)

    def test_a_slot_tells_how_far_its_text_is(self):
        self.server.post(TEXT, {"prompt": "q" * 200, "max_tokens": 1})
        stream = self.open(prompt="q" * 200 + "r" * 100, max_tokens=19_000, temperature=0.5, top_k=7, frequency_penalty=0.25)
        stream.until_text()
        waits = self.open(max_tokens=3)
        first, = self.server.get("/slots")
        decoded = lambda slot: slot["next_token"][0]["n_decoded"]
        second = first
        while decoded(second) == decoded(first):  # the client's text may lag the slot's
            stream.until_text()
            second, = self.server.get("/slots")
        self.assertTrue(first["is_processing"])
        self.assertEqual(first["id_task"], second["id_task"])
        self.assertEqual({name: first["params"][name] for name in ("temperature", "top_k", "frequency_penalty", "max_tokens")},
                         {"temperature": 0.5, "top_k": 7, "frequency_penalty": 0.25, "max_tokens": 19_000})
        self.assertEqual(first["n_prompt_tokens"], 300)
        self.assertGreater(first["n_prompt_tokens_cache"], 100)
        self.assertEqual(first["n_prompt_tokens_cache"] + first["n_prompt_tokens_processed"], 300)
        for slot in first, second:
            self.assertEqual(decoded(slot) + slot["next_token"][0]["n_remain"], 19_000)
        self.assertGreater(decoded(second), decoded(first))
        stream.close()
        self.assertEqual(finish_of(list(waits)), ["length"])

    def test_a_client_that_leaves_while_it_reads_gives_its_place_free(self):
        for more in {}, {"n": 3}:
            stream = self.open(**more)
            stream.until_text()
            self.assertEqual([slot["is_processing"] for slot in self.server.get("/slots")], [True])
            stream.close()
            self.assertEqual(self.server.until_texts(0), 0)
            self.assertLess(self.server.post(TEXT, {"prompt": "a", "max_tokens": 1})["timings"]["prompt_ms"], 2000)

    def test_a_client_that_leaves_while_it_waits_for_the_whole_gives_its_place_free(self):
        for leave in socket.SHUT_RDWR, socket.SHUT_WR, None:
            waiting = self.server.connect()
            body = b'{"prompt": "hello", "max_tokens": 19000, "ignore_eos": true}'
            waiting.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            self.assertEqual(self.server.until_texts(1), 1)
            if leave is None:
                waiting.close()
            else:
                waiting.shutdown(leave)
            self.assertEqual(self.server.until_texts(0), 0)
            waiting.close()

    def test_a_client_that_leaves_the_queue_gives_its_place_free(self):
        first, second, third = self.open(), self.open(), self.open(max_tokens=4)
        first.until_text()
        second.close()
        self.assertEqual(self.server.until_texts(2), 2)
        first.close()
        self.assertEqual(finish_of(list(third)), ["length"])

    def test_a_client_that_leaves_while_its_prompt_is_read_gives_its_place_free(self):
        stream = self.open(prompt="x" * 18_000, return_progress=True)
        next(event for event in stream if "prompt_progress" in event)
        stream.close()
        self.assertEqual(self.server.until_texts(0), 0)

    def test_a_client_with_little_patience_gives_its_place_free(self):
        with self.assertRaises(TimeoutError):
            self.server.post(TEXT, LONG, timeout=0.2)
        self.assertEqual(self.server.until_texts(0), 0)

    def test_texts_that_were_given_up_hold_no_memory(self):
        for i in range(64):  # more than there is memory for
            stream = self.open(prompt=chr(40 + i) * 700)
            stream.until_text()
            stream.close()
        self.assertEqual(self.server.until_texts(0), 0)
        self.assertEqual(self.server.post(TEXT, {"prompt": "z" * 3000, "max_tokens": 3})["usage"]["completion_tokens"], 3)

    def test_the_state_is_at_rest_when_everybody_has_left(self):
        stream = self.open(prompt="y" * 6000)
        stream.until_text()
        self.assertTrue(self.server.get("/canopy/state")["sweep"]["running"])
        stream.close()
        self.assertEqual(self.server.until_texts(0), 0)
        deadline = time.monotonic() + 2
        while (state := self.server.get("/canopy/state"))["sweep"]["running"] and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertFalse(state["sweep"]["running"])
        self.assertGreater(state["kv"]["free"], 0.99 * state["kv"]["blocks"])

    def test_cancelled_texts_are_counted(self):
        def count(name):
            page = self.server.ask("GET", "/metrics").body.decode()
            return sum(int(line[len(name) + 1:]) for line in page.splitlines() if line.startswith(name + " "))
        names = ('canopy_request_success_total{finished_reason="cancelled"}', "canopy_generation_tokens_total",
                 "canopy_prompt_tokens_total")
        before = [count(name) for name in names]
        streams = [self.open(), self.open()]
        streams[0].until_text()
        for stream in streams:
            stream.close()
        self.assertEqual(self.server.until_texts(0), 0)
        cancelled, tokens, prompt = (count(name) - was for name, was in zip(names, before))
        self.assertEqual(cancelled, 2)
        self.assertGreaterEqual(tokens, 1)
        self.assertEqual(prompt % len(LONG["prompt"]), 0)
        self.assertGreaterEqual(prompt, len(LONG["prompt"]))


class SlowReaders(ServerCase):
    FLAGS = ("-c", 3000, "--parallel", 2)

    def test_a_client_that_does_not_read_stalls_nobody(self):
        # Its chunks are more bytes than the system's buffers take.
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2500, "ignore_eos": True, "logprobs": True,
                "top_logprobs": 20}
        whole = {}

        def ask():
            whole["text"] = self.server.post(CHAT, body)["choices"][0]["message"]["content"]
        slow = socket.socket()
        self.addCleanup(slow.close)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(30)
        slow.connect((self.server.host, self.server.port))
        connection = http.client.HTTPConnection(self.server.host, self.server.port)
        connection.sock = slow
        connection.request("POST", CHAT, json.dumps({**body, "stream": True}))
        stream = Stream(connection, connection.getresponse())
        asking = threading.Thread(target=ask)
        asking.start()
        slowest = 0
        while asking.is_alive():
            asked = time.monotonic()
            self.server.get("/health")
            slowest = max(slowest, time.monotonic() - asked)
            time.sleep(0.05)
        self.assertLess(slowest, 15)  # it would wait until the client is given up, 30 s
        self.assertEqual(self.server.until_texts(0, within=10), 0)  # its text is written, read or not
        self.assertEqual(self.server.text("yes", 5), self.server.text("yes", 5))
        self.assertEqual(joined(list(stream)), whole["text"])
        self.assertTrue(stream.done)


class Ending(ServerCase):
    def serve(self, *flags):
        return self.start("--chat-template-file", self.dir / "template.jinja", "-c", 20_000, "--parallel", 2, *flags)

    def test_under_load_every_client_is_told(self):
        server = self.serve("--grace", 1)
        streams = [server.open(TEXT, LONG) for _ in range(6)]
        replies, quiet = [], [server.connect() for _ in range(3)]
        quiet[1].sendall(b"POST /v1/completions HTTP/1.1\r\nHo")
        quiet[2].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        threads = [threading.Thread(target=lambda: replies.append(server.ask("POST", TEXT, LONG))) for _ in range(4)]
        for thread in threads:
            thread.start()
        unread = server.open(TEXT, {**LONG, "logprobs": 20})
        self.assertEqual(server.until_texts(11), 11)
        streams[0].until_text()
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        for stream in streams:
            events = list(stream)
            self.assertFalse(stream.done)
            error = events[-1]["error"]
            self.assertEqual((error["type"], error["code"]), ("server_error", 500), events[-1])
            self.assertIn("stopped", error["message"])
        for thread in threads:
            thread.join()
        for reply in replies:
            self.assertEqual(reply.status, 500)
            self.assertIn("stopped", reply.json["error"]["message"])
        self.assertEqual(server.process.wait(10), 0)
        self.assertLess(time.monotonic() - begun, 10)
        for one in quiet:
            one.close()
        unread.close()
        self.assertIn("stopped", server.log)

    def test_texts_that_end_in_time_are_whole(self):
        server = self.serve("--grace", 20)
        expected = server.text("hello", 1500, ignore_eos=True)
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            whole = threads.submit(server.text, "hello", 1500, ignore_eos=True)
            stream = server.open(TEXT, {"prompt": "hello", "max_tokens": 1500, "ignore_eos": True})
            first = piece(stream.until_text()["choices"][0])
            self.assertEqual(server.until_texts(2), 2)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(first + joined(list(stream)), expected)
            self.assertTrue(stream.done)
            self.assertEqual(whole.result(), expected)
        self.assertEqual(server.process.wait(10), 0)

    def test_who_comes_while_it_stops_is_told(self):
        server = self.serve("--grace", 60)
        stream = server.open(TEXT, LONG)
        stream.until_text()
        server.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 5
        while (health := server.ask("GET", "/health")).status == 200 and time.monotonic() < deadline:
            time.sleep(0.01)
        for reply in health, server.ask("POST", TEXT, {"prompt": "late"}):
            self.assertEqual(reply.status, 503)
            self.assertIn("the server is stopping", reply.json["error"]["message"])
            self.assertEqual(reply.headers["x-should-retry"], "true")
        self.assertIsNone(server.process.poll())
        time.sleep(0.3)  # within 0.2 s it would count as the first
        self.assertEqual(server.stop(), 143)
        stream.close()

    def test_without_texts_it_ends_at_once(self):
        for how in signal.SIGTERM, signal.SIGINT:
            server = self.serve("--grace", 60)
            idle = server.connect()
            begun = time.monotonic()
            self.assertEqual(server.stop(how), 0)
            self.assertLess(time.monotonic() - begun, 5)
            idle.close()

    def test_a_second_signal_ends_it_at_once(self):
        server = self.serve("--grace", 60)
        stream = server.open(TEXT, LONG)
        stream.until_text()
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)  # within 0.2 s it would count as the first
        self.assertIsNone(server.process.poll())
        begun = time.monotonic()
        self.assertEqual(server.stop(), 143)
        self.assertLess(time.monotonic() - begun, 3)
        self.assertIn("stopping within 60 seconds, texts on their way: 1; stop again", server.log)
        stream.close()

    def test_it_ends_though_its_log_takes_nothing(self):
        server = self.serve("--grace", 1)
        stream = server.open(TEXT, LONG)
        stream.until_text()
        with server.unread():
            server.process.send_signal(signal.SIGTERM)
            self.assertIn("stopped", list(stream)[-1]["error"]["message"])
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(3), 143)


if __name__ == "__main__":
    main()
