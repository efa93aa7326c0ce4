"""Parts that the tests of canopy serve share: a server as a process of its own, and clients that check all they are sent."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from support import CANOPY, PATIENCE, REPO, SMOLLM2, TempDirCase, bytes_model, main, run  # noqa: F401, E402: for the tests

TEMPLATE = ("{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}a:{% endif %}")
NEEDS_REAL_MODEL = unittest.skipUnless(SMOLLM2.exists(), "needs the small model; scripts/get_model fetches it")
ANSWER = 60 * PATIENCE  # seconds to wait for one


class Reply:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self):
        return json.loads(self.body)


class Stream:
    """Server-sent events as they come. Anything but data, bare comments and empty lines is an error."""

    def __init__(self, connection, response):
        self.connection, self.response, self.status = connection, response, response.status
        self.comments, self.done = 0, False

    def __iter__(self):
        while line := self.response.readline():
            if line == b":\n":
                self.comments += 1
            else:
                if not line.startswith(b"data: "):
                    raise AssertionError(f"not an event: {line}")
                if self.done:
                    raise AssertionError(f"after [DONE]: {line}")
                self.done = line == b"data: [DONE]\n"
            if (empty := self.response.readline()) != b"\n":
                raise AssertionError(f"an event of more than a line: {line} {empty}")
            if line.startswith(b"data: ") and not self.done:
                yield json.loads(line[6:].decode())
        self.close()

    def until_text(self):
        """Reads up to the first piece of text."""
        return next(event for event in self if event.get("choices") and piece(event["choices"][0]))

    def close(self):
        self.response.close()
        self.connection.close()


def quoting_model(to, special):
    """A random model that may write quotes, which its copy ends a text with, and these special tokens by id."""
    model = bytes_model(to)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer["added_tokens"] = [{"id": id, "content": name, "special": True, "single_word": False, "lstrip": False,
                                  "rstrip": False, "normalized": False} for id, name in special.items()]
    for piece in [piece for piece, id in tokenizer["model"]["vocab"].items() if id in special]:
        del tokenizer["model"]["vocab"][piece]
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    (model / "tokenizer_config.json").write_text(json.dumps({"bos_token": "^", "eos_token": "~"}))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"eos_token_id": 94}))  # '~'; the copy's is a quote
    return model


def piece(choice):
    """The text in one choice of a chunk."""
    return choice["text"] if "text" in choice else choice["delta"].get("content") or ""


def joined(events, index=0):
    """The text of a choice of a stream."""
    return "".join(piece(c) for e in events for c in e.get("choices", []) if c["index"] == index)


def finish_of(events, index=0):
    return [c["finish_reason"] for e in events for c in e.get("choices", [])
            if c["index"] == index and c["finish_reason"]]


class Server:
    """A running `canopy serve`. Its model's name for clients is "tiny"."""

    def __init__(self, model, *flags, env=None, wait=True, alias="tiny", launcher=()):
        words = [*launcher, CANOPY, "serve", "-m", model, "--port", 0, *flags]
        if alias is not None:
            words += ["--alias", alias]
        if model != SMOLLM2:  # threads that wait for each other at every product are slow where others compute
            words += ["--threads", 1]
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)
        self.log = ""
        self.listens, self.serves, self.reads = threading.Event(), threading.Event(), threading.Event()
        self.reads.set()
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()
        self.await_(self.serves if wait else self.listens)

    def read_log(self):
        with self.process.stderr:
            for line in self.process.stderr:
                self.log += line
                if found := re.search(r"listening on http://([^ ]*):(\d+)", line):
                    self.host, self.port = found[1].strip("[]"), int(found[2])
                    self.listens.set()
                if line.startswith("serving "):
                    self.serves.set()
                self.reads.wait()
        self.process.wait()
        self.listens.set()
        self.serves.set()

    def await_(self, event):
        if not event.wait(2 * ANSWER) or self.process.poll() is not None:
            self.process.kill()
            raise AssertionError(f"the server did not start: {self.log}")

    def stop(self, how=signal.SIGTERM, within=15):
        """Ends it and returns its exit code."""
        self.process.send_signal(how)
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.reader.join()

    @contextlib.contextmanager
    def unread(self):
        """Nobody reads its log, which has no room for another byte."""
        self.reads.clear()
        try:
            log = os.open(f"/proc/{self.process.pid}/fd/2", os.O_WRONLY | os.O_NONBLOCK)
            read = len(self.log)
            os.write(log, b"\n")  # which the reader waits for
            while len(self.log) == read:
                time.sleep(0.01)
            for piece in bytes(4096), bytes(1):
                with contextlib.suppress(BlockingIOError):
                    while True:
                        os.write(log, piece)
            os.close(log)
            yield
        finally:
            self.reads.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

    def connect(self, timeout=ANSWER):
        """A bare connection."""
        return socket.create_connection((self.host, self.port), timeout)

    def send(self, method, path, body=None, headers=None, timeout=ANSWER):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        try:
            connection.request(method, path, body, headers or {})
            return connection, connection.getresponse()
        except OSError:
            connection.close()
            raise

    def ask(self, method, path, body=None, headers=None, timeout=ANSWER):
        connection, response = self.send(method, path, body, headers, timeout)
        with contextlib.closing(connection):
            return Reply(response)

    def get(self, path):
        reply = self.ask("GET", path)
        if reply.status != 200:
            raise AssertionError(f"{path}: {reply.status} {reply.body}")
        return reply.json

    def post(self, path, body, status=200, **options):
        """The JSON that this is answered with."""
        reply = self.ask("POST", path, body, **options)
        if reply.status != status:
            raise AssertionError(f"{path}: {reply.status}, not {status}: {reply.body}")
        return reply.json

    def open(self, path, body, **options):
        """A stream whose events are still to come."""
        connection, response = self.send("POST", path, {**body, "stream": True}, **options)
        if response.status != 200 or response.getheader("Content-Type") != "text/event-stream":
            raise AssertionError(f"{path}: {response.status} {response.read()}")
        return Stream(connection, response)

    def stream(self, path, body, **options):
        """All events of a stream that must end as it should."""
        stream = self.open(path, body, **options)
        events = list(stream)
        if not stream.done:
            raise AssertionError(f"no [DONE] after {events[-1:]}")
        return events

    def text(self, prompt, most=16, **more):
        return self.post("/v1/completions", {"prompt": prompt, "max_tokens": most, **more})["choices"][0]["text"]

    def until_texts(self, count, within=2):
        """Waits until that many texts wait or run, by /metrics; returns their number then."""
        deadline = time.monotonic() + within
        while (now := sum(self.gauges())) != count and time.monotonic() < deadline:
            time.sleep(0.02)
        return now

    def gauges(self):
        """Texts that run, texts that wait."""
        text = self.ask("GET", "/metrics").body.decode()
        return [int(re.search(rf"^canopy_num_requests_{what} (\d+)$", text, re.M)[1]) for what in ("running", "waiting")]


class ServerCase(unittest.TestCase):
    """All cases of a class share a server."""
    FLAGS = ()
    REAL = False
    TEMPLATE = TEMPLATE

    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="canopy_test_"))
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        cls.model, template = SMOLLM2, ()
        if not cls.REAL:
            cls.model = cls.tiny_model(cls.dir / "tiny")
            (cls.dir / "template.jinja").write_text(cls.TEMPLATE)
            template = ("--chat-template-file", cls.dir / "template.jinja")
        cls.server = cls.start(*template, *cls.FLAGS)

    @classmethod
    def tiny_model(cls, to):
        """A model of random weights in this folder: what is served unless it is the real one."""
        return bytes_model(to)

    @classmethod
    def start(cls, *flags, **options):
        server = Server(cls.model, *flags, **options)
        cls.addClassCleanup(server.__exit__)
        return server

    def refused(self, path, body, param, status=400, **options):
        """Checks that this is refused in OpenAI's form, naming that member; the message."""
        error = self.server.post(path, body, status=status, **options)["error"]
        self.assertEqual((error["param"], error["code"]), (param, status), error)
        self.assertTrue(error["type"].endswith("_error"), error)
        self.assertIsInstance(error["message"], str)
        return error["message"]
