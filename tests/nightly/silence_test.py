"""A stream that waits for its place for half a minute: some clients end one that has no chunk for so long."""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
from serving import ServerCase, main  # noqa: E402

TEXT = "/v1/completions"


class Silence(ServerCase):
    FLAGS = ("-c", 20_000, "--parallel", 1)

    def test_a_chunk_comes_at_least_every_thirty_seconds(self):
        before = [self.server.open(TEXT, {"prompt": "hello", "max_tokens": 19_000, "ignore_eos": True}) for _ in range(20)]
        stream = self.server.open("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2})
        events = iter(stream)
        self.assertEqual(next(events)["choices"][0]["delta"], {"role": "assistant", "content": None})
        waited = time.monotonic()
        self.assertEqual(next(events)["choices"][0]["delta"], {})
        self.assertTrue(20 < time.monotonic() - waited < 30)
        self.assertGreaterEqual(stream.comments, 4)
        for one in [*before, stream]:
            one.close()
        self.assertEqual(self.server.until_texts(0), 0)


if __name__ == "__main__":
    main()
