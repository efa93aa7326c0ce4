"""A server under load: 200 connections that read slowly, send half a request or too much, or leave at any moment. At the
end nothing is left of them. CANOPY_LOAD_SECONDS says how long, 600 by default; CANOPY_LOAD_SEED what they do."""
import collections
import contextlib
import http.client
import os
import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
from serving import ServerCase, Stream, finish_of, joined, main  # noqa: E402

SECONDS = float(os.environ.get("CANOPY_LOAD_SECONDS", 600))
SEED = int(os.environ.get("CANOPY_LOAD_SEED", time.time_ns() % 10 ** 6))
CONNECTIONS = 200
TEXT = "/v1/completions"
PROMPTS = 40
REFUSED = (429, 503)


class Load(ServerCase):
    FLAGS = ("-c", 4000, "--parallel", 8, "--queue", 120, "--connections", 190, "--sse-ping", 1)

    def prompt(self, i):
        return f"<marker {i}> " + "and so on " * (i % 20)

    def resident_bytes(self):
        pages = int(pathlib.Path(f"/proc/{self.server.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.server.process.pid}/fd"))

    def check_text(self, i, text, size):
        """A prompt and the text that is this prompt's alone."""
        expected = self.prompt(i) + self.alone[i][:size]
        if text != expected:
            raise AssertionError(f"prompt {i}: {text!r}, not {expected!r}")

    # What a client does. Each is one connection.

    def ask(self, rng, i, size):
        reply = self.server.ask("POST", TEXT, self.body(i, size))
        if reply.status in REFUSED:
            return "refused"
        if reply.status != 200:
            raise AssertionError(f"{reply.status}: {reply.body}")
        self.check_text(i, reply.json["choices"][0]["text"], size)
        return "whole"

    def read(self, rng, i, size, pause=0.0, leave=None):
        connection, response = self.server.send("POST", TEXT, {**self.body(i, size), "stream": True})
        with contextlib.closing(connection):
            if response.status in REFUSED:
                return "refused"
            stream, events = Stream(connection, response), []
            for event in stream:
                events.append(event)
                if leave is not None and len(events) > leave:
                    stream.close()
                    return "left"
                if pause:
                    time.sleep(pause)
            if not stream.done or finish_of(events) != ["length"]:
                raise AssertionError(f"a stream ended with {events[-1]}")
            self.check_text(i, joined(events), size)
            return "slow" if pause else "streamed"

    def read_slowly(self, rng, i, size):
        return self.read(rng, i, min(size, 60), pause=rng.random() * 0.1)

    def leave_the_stream(self, rng, i, size):
        return self.read(rng, i, 3000, leave=rng.randrange(20))

    def leave_the_wait(self, rng, i, size):
        with contextlib.suppress(TimeoutError):
            reply = self.server.ask("POST", TEXT, self.body(i, 3000), timeout=rng.random() * 0.5 + 0.01)
            if reply.status not in REFUSED:
                raise AssertionError(f"a long text in no time: {reply.status} {reply.body[:200]}")
        return "gave up"

    def send_half(self, rng, i, size):
        request = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{\"prompt\": \"a"
        with self.server.connect() as connection:
            connection.sendall(request[:rng.randrange(len(request))])
            time.sleep(rng.random() * 3)
        return "half"

    def send_too_much(self, rng, i, size):
        reply = self.server.ask("POST", TEXT, b" " * ((8 << 20) + 1 + rng.randrange(1 << 20)))
        if reply.status not in (413, *REFUSED):
            raise AssertionError(f"too large, and {reply.status}")
        return "too large"

    def send_large_headers(self, rng, i, size):
        with contextlib.suppress(ConnectionError):  # what it did not read resets the connection
            reply = self.server.ask("GET", "/health", headers={"X-Large": "x" * rng.randrange(20_000, 200_000)})
            if reply.status not in (431, *REFUSED):
                raise AssertionError(f"headers too large, and {reply.status}")
        return "large headers"

    def send_deep_json(self, rng, i, size):
        begin = rng.choice(("[", '{"a":', '{"prompt":['))
        reply = self.server.ask("POST", TEXT, begin.encode() * rng.randrange(100, 100_000))
        if reply.status not in (400, *REFUSED):
            raise AssertionError(f"nested too deep, and {reply.status}")
        return "deep JSON"

    def send_nonsense(self, rng, i, size):
        with self.server.connect() as connection:
            connection.sendall(rng.randbytes(rng.randrange(1, 3000)))
            connection.recv(100)
        return "nonsense"

    def look(self, rng, i, size):
        path = rng.choice(("/health", "/v1/models", "/slots", "/metrics", "/canopy/state", "/props"))
        if self.server.ask("GET", path).status not in (200, *REFUSED):
            raise AssertionError(path)
        return "looked"

    def body(self, i, size):
        return {"prompt": self.prompt(i), "max_tokens": size, "echo": True, "ignore_eos": True}

    def client(self, number):
        rng = random.Random(f"{SEED} {number}")
        kinds = [self.ask] * 3 + [self.read] * 3 + [self.read_slowly, self.leave_the_stream, self.leave_the_wait, self.send_half,
                                                  self.send_large_headers, self.send_deep_json, self.send_nonsense, self.look]
        if number % 10 == 0:
            kinds.append(self.send_too_much)
        while time.monotonic() < self.until:
            kind = rng.choice(kinds)
            try:
                done = kind(rng, rng.randrange(PROMPTS), rng.choice((1, 5, 20, 60)))
            except (ConnectionError, http.client.BadStatusLine, TimeoutError) as error:
                done = f"connection: {type(error).__name__}"  # refused connections may be reset
                if isinstance(error, TimeoutError):
                    self.wrong.append(f"{kind.__name__}: no answer in time")
            except Exception as error:  # noqa: BLE001: reported at the end
                self.wrong.append(f"{kind.__name__}: {error}")
                return
            with self.lock:
                self.done[done] += 1
            if done == "refused":
                time.sleep(rng.random())

    def run_clients(self, seconds):
        self.until = time.monotonic() + seconds
        threads = [threading.Thread(target=self.client, args=(i,)) for i in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertFalse(self.wrong, f"seed {SEED}: {self.wrong[:5]}")
        self.assertEqual(self.server.until_texts(0, within=10), 0)

    def test_nothing_is_left_of_many_clients(self):
        self.lock, self.done, self.wrong = threading.Lock(), collections.Counter(), []
        idle = self.descriptors()
        self.alone = [self.server.text(self.prompt(i), 60, ignore_eos=True) for i in range(PROMPTS)]
        self.run_clients(SECONDS / 4)  # until all that is kept is there
        warm = self.resident_bytes()
        self.run_clients(SECONDS * 3 / 4)
        for kind in ("whole", "streamed", "slow", "left", "gave up", "half", "too large", "large headers", "deep JSON", "nonsense",
                     "looked"):
            self.assertGreater(self.done[kind], 0, self.done)
        deadline = time.monotonic() + 40  # what was sent by half is given up after 30 s
        while self.descriptors() > idle and time.monotonic() < deadline:
            time.sleep(0.5)
        self.assertEqual(self.descriptors(), idle)
        grown = self.resident_bytes() - warm
        print(f"seed {SEED}: {dict(self.done)}; {idle} descriptors; {warm >> 20} MiB, and {grown >> 10} KiB more at the end",
              file=sys.stderr)
        self.assertLess(grown, 32 << 20)
        self.assertEqual([self.server.text(self.prompt(i), 60, ignore_eos=True) for i in range(PROMPTS)], self.alone)
        streams = [self.server.open(TEXT, self.body(i, 3000)) for i in range(40)]
        streams[0].until_text()
        begun = time.monotonic()
        self.assertEqual(self.server.stop(within=20), 0)
        self.assertLess(time.monotonic() - begun, 10)
        for stream in streams:
            stream.close()


if __name__ == "__main__":
    main()
