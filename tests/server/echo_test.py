"""Completions that begin with their prompt: echo, with the log probabilities of the prompt's tokens."""
import json

from serving import ServerCase, finish_of, joined, main, run

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
COLUMNS = ["text_offset", "token_logprobs", "tokens", "top_logprobs"]
LONG = "The quick brown fox jumps over the lazy dog, and then it sleeps until the next morning comes. "


class Echo(ServerCase):
    FLAGS = ("-c", 400, "--parallel", 4)

    def ask(self, prompt, most=1, top=2, **more):
        return self.server.post(TEXT, {"prompt": prompt, "max_tokens": most, "echo": True, "logprobs": top, "temperature": 0, **more})

    def columns(self, prompt, most=1, top=2, **more):
        return self.columns_of(self.ask(prompt, most, top, **more)["choices"][0])

    def columns_of(self, choice):
        found = choice["logprobs"]
        self.assertEqual(sorted(found), COLUMNS)
        self.assertEqual(len({len(column) for column in found.values()}), 1)
        self.assertEqual("".join(found["tokens"]), choice["text"])
        self.assertEqual(found["text_offset"], list(range(len(choice["text"]))))  # a token is a character here
        self.assertEqual((found["token_logprobs"][0], found["top_logprobs"][0]), (None, None))
        for logprob, top in zip(found["token_logprobs"][1:], found["top_logprobs"][1:]):
            self.assertLess(logprob, 0)
            self.assertLessEqual(logprob, max(top.values(), default=0))
        return found

    def ids(self, text):
        return self.server.post("/tokenize", {"content": text})["tokens"]

    def test_columns_hold_the_prompt_and_the_text(self):
        for most in 0, 1, 5:
            reply = self.ask("hello", most)
            choice = reply["choices"][0]
            self.assertEqual(len(self.columns_of(choice)["tokens"]), 5 + most)
            self.assertEqual(choice["finish_reason"], "length")
            self.assertEqual((reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]), (5, most))
            self.assertTrue(choice["text"].startswith("hello"))
        self.assertEqual(choice["text"][5:], self.server.text("hello", 5, temperature=0))

    def test_a_prompt_of_one_token_has_no_log_probability(self):
        self.assertEqual(self.columns("a", 0), {"tokens": ["a"], "token_logprobs": [None], "top_logprobs": [None], "text_offset": [0]})

    def test_an_echo_without_log_probabilities_may_have_no_text(self):
        choice = self.server.post(TEXT, {"prompt": "hello", "max_tokens": 0, "echo": True})["choices"][0]
        self.assertEqual((choice["text"], choice["finish_reason"], choice["logprobs"]), ("hello", "length", None))

    def test_prompts_may_be_texts_or_tokens_one_or_many(self):
        first, second = LONG * 2, "another prompt"
        alone = [self.columns(prompt) for prompt in (first, second)]
        for prompts in [first, second], [self.ids(first), self.ids(second)], [first, self.ids(second)]:
            self.assertEqual([self.columns_of(choice) for choice in self.ask(prompts)["choices"]], alone)
        self.assertEqual(self.columns(self.ids(first)), alone[0])

    def test_each_choice_has_its_prompt(self):
        choices = self.ask(["hello", "yes"], 3, n=2, temperature=1, seed=3, ignore_eos=True)["choices"]
        self.assertEqual([choice["text"][:3] for choice in choices], ["hel", "hel", "yes", "yes"])
        found = [self.columns_of(choice) for choice in choices]
        self.assertEqual(found[0]["token_logprobs"][:5], found[1]["token_logprobs"][:5])
        self.assertEqual(found[2]["top_logprobs"][:3], found[3]["top_logprobs"][:3])

    def test_a_token_is_as_likely_in_a_prompt_as_in_a_text(self):
        for prompt in "hello", LONG:
            written = self.columns(prompt, 8, 1)
            text = "".join(written["tokens"])
            self.assertEqual(self.columns(text, 0, 1), written)
            # The model chose each: its number is the best one's, which is how clients find out.
            for logprob, top in list(zip(written["token_logprobs"], written["top_logprobs"]))[len(prompt):]:
                self.assertEqual(logprob, max(top.values()))

    def test_alternatives_are_the_likeliest(self):
        most = self.columns(LONG, 0, 20)
        for top in 0, 1, 5:
            fewer = self.columns(LONG, 0, top)
            self.assertEqual(fewer["token_logprobs"], most["token_logprobs"])
            for a, b in list(zip(fewer["top_logprobs"], most["top_logprobs"]))[1:]:
                self.assertEqual(len(a), top)
                self.assertEqual(sorted(a.values()), sorted(b.values())[len(b) - top:])

    def test_numbers_do_not_depend_on_what_is_remembered_or_shares_the_sweep(self):
        alone = self.columns(LONG, 2)
        self.server.text(LONG, 4)  # all its keys and values are there from now on
        self.assertEqual(self.columns(LONG, 2), alone)
        prompts = [LONG, LONG + "Once", "x", LONG[:70], LONG, "yy", LONG + "Twice", LONG]
        for index, choice in enumerate(self.ask(prompts, 2)["choices"]):
            if prompts[index] == LONG:
                self.assertEqual(self.columns_of(choice), alone)
            elif prompts[index].startswith(LONG):
                self.assertEqual(self.columns_of(choice)["token_logprobs"][:len(LONG)], alone["token_logprobs"][:len(LONG)])

    def test_their_sum_is_what_perplexity_says(self):
        (self.dir / "text").write_text(LONG * 3)
        asked = run("perplexity", "-m", self.model, "-f", self.dir / "text", "-c", 400, "--json")
        self.assertEqual(asked.returncode, 0, asked.stderr)
        loss = json.loads(asked.stdout)
        total = 0.0
        for logprob in self.columns(LONG * 3, 0)["token_logprobs"][1:]:
            total -= logprob
        self.assertEqual((total / loss["tokens"], len(LONG) * 3 - 1), (loss["nll"], loss["tokens"]))

    def test_a_stream_brings_the_same(self):
        for most, top in (0, 2), (1, 0), (6, 2):
            for prompt in "hello", LONG:
                choice = self.ask(prompt, most, top)["choices"][0]
                events = self.server.stream(TEXT, {"prompt": prompt, "max_tokens": most, "echo": True, "logprobs": top, "temperature": 0})
                self.assertEqual(joined(events), choice["text"])
                self.assertEqual(finish_of(events), ["length"])
                columns = {name: [] for name in COLUMNS}
                for event in events:
                    for found in (c["logprobs"] for c in event["choices"] if c["logprobs"]):
                        for name in COLUMNS:
                            columns[name] += found[name]
                self.assertEqual(columns, choice["logprobs"])

    def test_a_stream_of_many_choices_brings_each_its_own(self):
        body = {"prompt": ["hello", LONG], "max_tokens": 3, "echo": True, "logprobs": 1, "temperature": 0, "n": 2}
        whole = self.server.post(TEXT, body)["choices"]
        events = self.server.stream(TEXT, body)
        for index, choice in enumerate(whole):
            self.assertEqual(joined(events, index), choice["text"])

    def test_what_cannot_be_is_refused(self):
        for body, param in (({"prompt": "a", "max_tokens": 0}, "max_tokens"),
                            ({"prompt": "a", "max_tokens": 0, "echo": False}, "max_tokens"),
                            ({"prompt": "a", "max_tokens": 0, "logprobs": 1}, "max_tokens"),
                            ({"prompt": "a", "max_tokens": -2, "echo": True}, "max_tokens"),
                            ({"prompt": "a", "echo": "yes", "logprobs": 1}, "echo"),
                            ({"prompt": "a", "echo": True, "logprobs": 21}, "logprobs"),
                            ({"prompt": "a", "echo": True, "logprobs": True}, "logprobs"),
                            ({"prompt": "", "echo": True, "logprobs": 1, "max_tokens": 0}, "prompt"),
                            ({"prompt": [], "echo": True, "logprobs": 1, "max_tokens": 0}, "prompt"),
                            ({"prompt": [5, 97], "echo": True, "logprobs": 1, "max_tokens": 0}, "prompt"),
                            ({"prompt": [[5], []], "echo": True, "logprobs": 1, "max_tokens": 0}, "prompt"),
                            ({"prompt": "x" * 500, "echo": True, "logprobs": 1, "max_tokens": 0}, "prompt")):
            self.refused(TEXT, body, param)
        self.refused(CHAT, {"messages": [{"role": "user", "content": "a"}], "max_tokens": 0}, "max_tokens")
        self.refused(CHAT, {"messages": [{"role": "user", "content": "a"}], "echo": True, "logprobs": True}, "echo")
        self.refused("/completion", {"prompt": "a", "n_predict": 0}, "n_predict")


class EchoWithADraft(Echo):
    FLAGS = ("-c", 400, "--parallel", 4, "-md", "copy")


if __name__ == "__main__":
    main()
