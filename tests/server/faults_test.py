"""A model that fails in the middle of a sweep: every client is given an error, and the server stays."""
import os

from serving import Server, TempDirCase, bytes_model, main, run

TEXT = "/v1/completions"


class ModelCut(TempDirCase):
    def test_an_error_is_the_last_event_of_a_stream(self):
        wide = self.dir / "wide"
        made = run("inflate", "-m", bytes_model(self.dir / "model"), "-o", wide, "--size", "3M")
        self.assertEqual(made.returncode, 0, made.stderr)
        weights = wide / "model.safetensors"
        with Server(wide, "--resident", "none", "-c", 2000) as server:  # each sweep reads it from disk
            stream = server.open(TEXT, {"prompt": "x", "max_tokens": 1900, "ignore_eos": True})
            stream.until_text()
            os.truncate(weights, weights.stat().st_size // 2)
            *_, last = stream
            self.assertEqual((last["error"]["code"], last["error"]["type"]), (500, "server_error"))
            # What is noticed first depends on where the sweep is: the missing bytes, or the change.
            self.assertRegex(last["error"]["message"], "the file ends inside the weights|was written to while it was in use")
            self.assertIn("model.safetensors", last["error"]["message"])
            self.assertNotRegex(last["error"]["message"], r"\.(cc|h|cu):\d")
            self.assertFalse(stream.done)
            error = server.post(TEXT, {"prompt": "x", "max_tokens": 3}, status=500)["error"]
            self.assertIn("model.safetensors", error["message"])
            self.assertNotRegex(error["message"], r"\.(cc|h|cu):\d")
            self.assertEqual(server.get("/health"), {"status": "ok"})
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    main()
