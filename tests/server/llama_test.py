"""/completion, as llama-server has it: its names, whole and in pieces, and no [DONE]."""
import json

from serving import ServerCase, main

PATH = "/completion"


class LlamaCompletion(ServerCase):
    FLAGS = ("-c", 300, "--parallel", 3)

    def ask(self, prompt="hello", **more):
        return self.server.post(PATH, {"prompt": prompt, "n_predict": 12, **more})

    def pieces(self, prompt="hello", **more):
        stream = self.server.open(PATH, {"prompt": prompt, "n_predict": 12, **more})
        events = list(stream)
        self.assertFalse(stream.done)
        return events

    def test_the_text_is_that_of_the_other_route(self):
        for more in {}, {"temperature": 1, "seed": 4}, {"n_predict": 1}:
            text = self.server.text("hello", **({"most": more.pop("n_predict", 12)} | more))
            for path in PATH, "/v1/completion":
                reply = self.server.post(path, {"prompt": "hello", "n_predict": len(text), **more})
                self.assertEqual((reply["content"], reply["stop"], reply["stop_type"], reply["stopping_word"]), (text, True, "limit", ""))
        self.assertEqual((reply["model"], reply["prompt"], reply["index"], reply["truncated"]), ("tiny", "hello", 0, False))
        self.assertEqual((reply["tokens_predicted"], reply["tokens_evaluated"], reply["tokens_cached"]), (1, 5, 0))
        self.assertEqual((reply["timings"]["predicted_n"], reply["timings"]["prompt_n"]), (1, 5))
        self.assertNotIn("choices", reply)

    def test_settings_are_told(self):
        settings = self.ask(temperature=0.5, top_k=7, seed=3, stop=["\x01"], repeat_penalty=1.5)["generation_settings"]
        for name, value in {"temperature": 0.5, "top_k": 7, "seed": 3, "stop": ["\x01"], "repeat_penalty": 1.5, "n_predict": 12,
                            "stream": False, "n_probs": 0}.items():
            self.assertEqual(settings[name], value, name)
        self.assertEqual(self.ask()["generation_settings"]["seed"], -1)

    def test_a_stream_brings_the_same_in_pieces(self):
        for more in {}, {"n_predict": 1}, {"stop": [self.ask()["content"][5:7]]}, {"return_tokens": True}:
            whole = self.ask(**more)
            events = self.pieces(**more)
            self.assertEqual("".join(event["content"] for event in events), whole["content"])
            self.assertEqual([event["stop"] for event in events], [False] * (len(events) - 1) + [True])
            for name in "stop_type", "stopping_word", "tokens_predicted", "tokens_evaluated", "prompt", "model":
                self.assertEqual(events[-1][name], whole[name], name)
            self.assertIn("timings", events[-1])
            self.assertNotIn("timings", events[0])
            if "return_tokens" in more:
                self.assertEqual(sum((event["tokens"] for event in events), []), whole["tokens"])
                self.assertEqual(len(whole["tokens"]), 12)
            else:
                self.assertEqual((whole["tokens"], events[0]["tokens"]), ([], []))
        self.assertIn("timings", self.pieces(timings_per_token=True)[0])
        self.assertIn("prompt_progress", self.pieces(return_progress=True)[0])

    def test_what_ended_a_text_is_told(self):
        text = self.ask()["content"]
        reply = self.ask(stop=["\x01", text[3:5], text[8:]])
        self.assertEqual((reply["content"], reply["stop_type"], reply["stopping_word"]), (text[:text.index(text[3:5])], "word", text[3:5]))
        end = json.loads((self.model / "config.json").read_text())["eos_token_id"]
        reply = self.ask(logit_bias=[[end, 1000]])
        self.assertEqual((reply["content"], reply["stop_type"], reply["stopping_word"]), ("", "eos", ""))

    def test_probabilities_of_tokens(self):
        probabilities = self.ask(n_probs=3)["completion_probabilities"]
        self.assertEqual(len(probabilities), 12)
        self.assertEqual("".join(one["token"] for one in probabilities), self.ask()["content"])
        for one in probabilities:
            self.assertEqual(len(one["top_logprobs"]), 3)
            self.assertEqual(one["logprob"], one["top_logprobs"][0]["logprob"])
        self.assertNotIn("completion_probabilities", self.ask(n_probs=0))
        self.assertEqual(sum(len(event.get("completion_probabilities", [])) for event in self.pieces(n_probs=1)), 12)

    def test_many_prompts_have_a_list_of_replies(self):
        replies = self.ask(["hello", "yes"])
        self.assertEqual([reply["content"] for reply in replies], [self.ask("hello")["content"], self.ask("yes")["content"]])
        self.assertEqual([(reply["index"], reply["prompt"], reply["tokens_evaluated"]) for reply in replies], [(0, "hello", 5), (1, "yes", 3)])
        self.assertEqual(self.ask(self.server.post("/tokenize", {"content": "hello"})["tokens"])["content"], self.ask()["content"])

    def test_what_is_refused_or_warned_of(self):
        self.refused(PATH, {}, "prompt")
        self.refused(PATH, {"prompt": "a", "n_probs": 21}, "n_probs")
        self.refused(PATH, {"prompt": "a", "grammar": "root ::= a"}, "grammar")
        self.refused(PATH, {"prompt": "a", "json_schema": {"type": "object", "oneOf": []}}, "json_schema")
        self.refused(PATH, {"prompt": "a", "logprobs": 1}, "logprobs")
        self.assertIn("n_keep", self.ask(n_keep=4)["warnings"][0])


if __name__ == "__main__":
    main()
