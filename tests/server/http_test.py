"""HTTP as it comes over the wire: requests in pieces, in rows, too large, half sent, and not HTTP at all."""
import json
import os
import re
import socket
import time

from serving import Server, ServerCase, main

ASK = json.dumps({"prompt": "hello", "max_tokens": 4}).encode()
LARGEST_BODY = (1 << 20) + 64 * 4000  # by the context


def post(body=ASK, *headers, path="/v1/completions", version="1.1"):
    lines = [f"POST {path} HTTP/{version}", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Wire:
    """A connection that sends bytes and takes replies apart."""

    def __init__(self, server, timeout=10):
        self.socket, self.left = server.connect(timeout), b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *pieces, pause=0.0):
        for piece in pieces:
            self.socket.sendall(piece)
            time.sleep(pause)

    def until(self, end):
        while end not in self.left:
            got = self.socket.recv(65536)
            if not got:
                raise AssertionError(f"closed after {self.left}")
            self.left += got
        before, self.left = self.left.split(end, 1)
        return before

    def take(self, size):
        while len(self.left) < size:
            got = self.socket.recv(65536)
            if not got:
                raise AssertionError(f"closed after {self.left}")
            self.left += got
        taken, self.left = self.left[:size], self.left[size:]
        return taken

    def reply(self, body=True):
        """Status, headers and body of the next reply."""
        status, *lines = self.until(b"\r\n\r\n").decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
        content = b""
        if body and "content-length" in headers:
            content = self.take(int(headers["content-length"]))
        elif body and headers.get("transfer-encoding") == "chunked":
            while size := int(self.until(b"\r\n"), 16):
                content += self.take(size)
                assert self.take(2) == b"\r\n"
            assert self.take(2) == b"\r\n"
        return int(re.fullmatch(r"HTTP/1\.[01] (\d{3}) .*", status)[1]), headers, content

    def closed(self):
        """True if the server has ended the connection, with nothing more to read."""
        try:
            return self.left + self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


class OverTheWire(ServerCase):
    FLAGS = ("-c", 4000)

    def wire(self):
        wire = Wire(self.server)
        self.addCleanup(wire.socket.close)
        return wire

    def test_a_connection_takes_one_request_after_another(self):
        wire = self.wire()
        for _ in range(50):
            wire.send(post())
            status, headers, body = wire.reply()
            self.assertEqual((status, json.loads(body)["usage"]["completion_tokens"]), (200, 4))
            self.assertNotEqual(headers.get("connection"), "close")

    def test_a_connection_is_closed_where_the_client_asks_for_it(self):
        wire = self.wire()
        wire.send(post(ASK, "Connection: close"))
        self.assertEqual(wire.reply()[0], 200)
        self.assertTrue(wire.closed())

    def test_requests_in_a_row_are_answered_in_their_order(self):
        wire = self.wire()
        stream = json.dumps({"prompt": "hello", "max_tokens": 3, "stream": True}).encode()
        wire.send(post() + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + post(stream) + post() +
                  b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
        replies = [wire.reply() for _ in range(5)]
        self.assertEqual([status for status, *_ in replies], [200, 200, 200, 200, 404])
        self.assertEqual(json.loads(replies[1][2]), {"status": "ok"})
        self.assertTrue(replies[2][2].endswith(b"data: [DONE]\n\n"))

    def test_requests_come_in_pieces(self):
        wire = self.wire()
        request = post()
        wire.send(*[request[i:i + 1] for i in range(len(request))])
        self.assertEqual(wire.reply()[0], 200)
        wire.send(request[:20], request[20:-9], request[-9:], pause=0.1)
        self.assertEqual(wire.reply()[0], 200)

    def test_bodies_come_in_chunks(self):
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        for ends in b"0\r\n\r\n", b"0\r\nX-Sum: 1\r\n\r\n":
            wire = self.wire()
            wire.send(head, *[b"%x;more=1\r\n%s\r\n" % (len(ASK[i:i + 7]), ASK[i:i + 7]) for i in range(0, len(ASK), 7)], ends)
            self.assertEqual(wire.reply()[0], 200)
            wire.send(post())
            self.assertEqual(wire.reply()[0], 200)

    def test_a_client_that_asks_may_send_its_body(self):
        wire = self.wire()
        request = post(ASK, "Expect: 100-continue")
        wire.send(request[:-len(ASK)])
        self.assertEqual(wire.reply()[0], 100)
        wire.send(ASK)
        self.assertEqual(wire.reply()[0], 200)
        wire.send(request)  # without waiting
        self.assertIn(wire.reply()[0], (100, 200))

    def test_head_has_the_headers_alone(self):
        wire = self.wire()
        for path in "/health", "/v1/models", "/props":
            wire.send(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\nGET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            status, headers, _ = wire.reply(body=False)
            self.assertEqual(status, 200)
            self.assertEqual(wire.reply()[1]["content-length"], headers["content-length"])

    def test_old_clients_get_what_they_understand(self):
        wire = self.wire()
        wire.send(b"GET /health HTTP/1.0\r\n\r\n")
        status, headers, body = wire.reply()
        self.assertEqual((status, json.loads(body)), (200, {"status": "ok"}))
        self.assertTrue(wire.closed())
        stream = json.dumps({"prompt": "hello", "max_tokens": 3, "stream": True}).encode()
        for header in "Connection: close", "Connection: keep-alive":
            wire = self.wire()
            wire.send(post(stream, header, version="1.0"))
            status, headers, _ = wire.reply()
            self.assertEqual(status, 200)
            self.assertNotIn("transfer-encoding", headers)
            self.assertNotEqual(headers.get("connection"), "keep-alive")  # the body ends with the connection
            self.assertTrue(wire.until(b"data: [DONE]\n\n").startswith(b"data: {"))
            self.assertTrue(wire.closed())
        wire = self.wire()
        wire.send(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        self.assertEqual(wire.reply()[0], 200)
        wire.send(b"GET /health HTTP/1.0\r\n\r\n")
        self.assertEqual(wire.reply()[0], 200)

    def test_a_body_at_the_limit_is_taken_and_one_beyond_is_not(self):
        prompt = b'{"prompt": "a", "max_tokens": 1}'
        wire = self.wire()
        wire.send(post(prompt + b" " * (LARGEST_BODY - len(prompt))))
        self.assertEqual(wire.reply()[0], 200)
        too_large = post(prompt + b" " * (LARGEST_BODY + 1 - len(prompt)))
        for _ in range(5):
            wire = self.wire()
            wire.send(too_large)
            status, headers, body = wire.reply()
            self.assertEqual((status, headers["connection"]), (413, "close"))
            error = json.loads(body)["error"]
            self.assertEqual(error["code"], 413)
            self.assertIn(f"more than {LARGEST_BODY} bytes", error["message"])

    def test_a_large_body_in_chunks_is_refused_too(self):
        wire = self.wire()
        wire.send(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
                  *[b"100000\r\n" + b" " * 0x100000 + b"\r\n"] * 8, b"100\r\n" + b" " * 0x100 + b"\r\n0\r\n\r\n")
        self.assertEqual(wire.reply()[0], 413)

    def test_a_client_that_asks_is_told_before_it_sends_too_much(self):
        for size in LARGEST_BODY + 1, 10 ** 15:
            wire = self.wire()
            wire.send(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                      b"Content-Length: %d\r\n\r\n" % size)
            self.assertEqual(wire.reply()[0], 413)

    def test_large_headers_are_refused(self):
        wire = self.wire()
        wire.send(post(ASK, "X-Large: " + "x" * 12_000))
        self.assertEqual(wire.reply()[0], 200)
        for header in "X-Large: " + "x" * 20_000, "\r\n".join(f"X-{i}: x" for i in range(3000)), "X-Huge: " + "x" * 3_000_000:
            wire = self.wire()
            wire.send(post(ASK, header))
            self.assertEqual(wire.reply()[0], 431)
        wire = self.wire()
        wire.send(b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n")
        self.assertEqual(wire.reply()[0], 431)

    def test_what_is_not_http_is_refused(self):
        for request in (b"nonsense\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), b"GET /health HTTP/9.9\r\n\r\n",
                        b"GET\r\n\r\n", b"GET /health HTTP/1.1\r\nno colon\r\n\r\n", post(ASK, "Content-Length: 3"),
                        b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 1e3\r\n\r\n",
                        b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"):
            wire = self.wire()
            wire.send(request)
            self.assertEqual(wire.reply()[0], 400, request[:60])
            self.assertTrue(wire.closed())

    def test_two_lengths_of_one_body_are_refused(self):
        wire = self.wire()
        wire.send(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
                  b"0\r\n\r\nGET /health HTTP/1.1\r\n\r\n")
        self.assertEqual(wire.reply()[0], 400)
        self.assertTrue(wire.closed())

    def test_a_client_that_has_nothing_more_to_say_gets_its_reply(self):
        wire = self.wire()
        wire.send(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wire.socket.shutdown(socket.SHUT_WR)
        self.assertEqual(wire.reply()[0], 200)
        self.assertTrue(wire.closed())

    def test_streams_are_sent_for_browsers_and_proxies(self):
        wire = self.wire()
        wire.send(post(json.dumps({"prompt": "hello", "max_tokens": 3, "stream": True}).encode()))
        headers = wire.reply()[1]
        self.assertEqual((headers["content-type"], headers["cache-control"], headers["x-accel-buffering"]),
                         ("text/event-stream", "no-cache", "no"))

    def test_too_many_connections_are_told_to_come_again(self):
        with self.start("--connections", 4) as server:
            wires = [Wire(server) for _ in range(4)]
            for wire in wires:
                wire.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                self.assertEqual(wire.reply()[0], 200)
            for _ in range(5):
                with Wire(server) as one_more:
                    one_more.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    status, headers, body = one_more.reply()
                    self.assertEqual((status, headers["connection"]), (503, "close"))
                    self.assertGreater(int(headers["retry-after"]), 0)
                    self.assertEqual(headers["x-should-retry"], "true")
                    self.assertEqual(json.loads(body)["error"]["type"], "unavailable_error")
            # What still arrives after the refusal does not take it away from the client.
            with Wire(server) as talker:
                time.sleep(0.2)
                talker.send(post()[:200])
                time.sleep(0.2)
                talker.send(post()[200:])
                self.assertEqual(talker.reply()[0], 503)
            for wire in wires:
                wire.socket.close()
            deadline = time.monotonic() + 5
            while (status := server.ask("GET", "/health").status) != 200 and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertEqual(status, 200)

    def test_a_thousand_connections_leave_nothing_behind(self):
        def descriptors():
            return len(os.listdir(f"/proc/{self.server.process.pid}/fd"))
        for i in range(1000):
            with Wire(self.server) as wire:
                if i % 3:
                    wire.send(post()[:100] if i % 3 == 1 else b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            if i == 20:
                time.sleep(0.3)
                before = descriptors()
        deadline = time.monotonic() + 5
        while descriptors() > before + 3 and time.monotonic() < deadline:
            self.server.get("/health")
            time.sleep(0.05)
        self.assertLessEqual(descriptors(), before + 3)


class HalfSent(ServerCase):
    def test_half_a_request_is_given_up_and_holds_nobody_up(self):
        with Wire(self.server, 60) as nothing, Wire(self.server, 60) as half_a_head, Wire(self.server, 60) as half_a_body:
            half_a_head.send(post()[:40])
            half_a_body.send(post()[:-5])
            begun = time.monotonic()
            slowest = 0
            while time.monotonic() - begun < 14:
                asked = time.monotonic()
                self.server.text("hello", 2)
                slowest = max(slowest, time.monotonic() - asked)
                time.sleep(0.1)
            self.assertLess(slowest, 5)
            self.assertTrue(nothing.closed())
            self.assertLess(time.monotonic() - begun, 25)
            for wire in half_a_head, half_a_body:
                self.assertEqual(wire.reply()[0], 408)
                self.assertTrue(wire.closed())
            self.assertLess(time.monotonic() - begun, 45)


class Hosts(ServerCase):
    def test_it_listens_where_it_was_told_to(self):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            self.skipTest("there is no IPv6")
        with Server(self.model, "--host", "::1") as server:
            self.assertIn("http://[::1]:", server.log)
            self.assertEqual(server.ask("GET", "/health", headers={"Host": f"[::1]:{server.port}"}).status, 200)


if __name__ == "__main__":
    main()
