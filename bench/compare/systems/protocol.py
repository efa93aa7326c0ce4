"""The protocol between compare.py and a system under measurement.

An adapter is a program: one JSON job on stdin, JSON lines on stdout, nothing else there. A job has `model` and `draft`
(paths), `prompt` (token ids), `new_tokens`, `temperature`, `seed`, `memory` (bytes that the process may use, page cache
included), `threads`, `folder` (for files that the system makes of the model; kept between runs) and `settings` (the
adapter's own, by name). The lines, with times of time.monotonic():

  {"versions": {...}, "settings": {...}, "loaded": time}    the model is ready, nothing computed yet
  {"token": id, "time": time}                               as each token comes; or all in the end, and
  {"first": time}                                           when the first has come
  {"failed": reason}                                        instead of the rest
"""
import contextlib
import json
import os
import sys
import time


class Channel:
    """The lines to compare.py. What libraries print goes to stderr from here on."""

    def __init__(self):
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.job = json.load(sys.stdin)

    def _say(self, **line):
        print(json.dumps(line), file=self._out, flush=True)

    def loaded(self, versions, settings, at=None):
        self._say(versions=versions, settings=settings, loaded=at or time.monotonic())

    def first(self):
        self._say(first=time.monotonic())

    def token(self, token, at=None):
        self._say(token=int(token), time=at or time.monotonic())

    @contextlib.contextmanager
    def failures(self):
        """Whatever goes wrong inside is said in one line, for the table."""
        try:
            yield self
        except Exception as error:  # noqa: BLE001: of a system that is not ours anything may come
            self._say(failed=f"{type(error).__name__}: {error}"[:500])
            raise


def transformers_generate(channel, model):
    """Continues the job's prompt with a transformers model, telling of each token."""
    import torch
    from transformers.generation.streamers import BaseStreamer

    class Tokens(BaseStreamer):
        prompt_seen = False

        def put(self, value):
            if self.prompt_seen:
                channel.token(value.reshape(-1)[0])
            self.prompt_seen = True

        def end(self):
            pass

    job = channel.job
    torch.manual_seed(job["seed"])
    how = {"do_sample": True, "temperature": job["temperature"], "top_k": 0, "top_p": 1.0} if job["temperature"] else {
        "do_sample": False}
    prompt = torch.tensor([job["prompt"]])
    with torch.inference_mode():
        model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=job["new_tokens"],
                       min_new_tokens=job["new_tokens"], streamer=Tokens(), use_cache=True, **how)
