"""Texts over HTTP: whole and in pieces the same, the same as `canopy generate` writes, and in the form that clients expect."""
import json

from serving import ServerCase, bytes_model, finish_of, joined, main, piece, run

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
USER = [{"role": "user", "content": "greetings"}]
LONGER = "abcdefghijklmnopqrstuvwxyz, and so on. "  # a text that is remembered takes 32 tokens at least


class Completions(ServerCase):
    FLAGS = ("-c", 400, "--parallel", 4)

    def generate(self, prompt, most, *flags):
        result = run("generate", "-m", self.model, "-p", prompt, "-n", most, "-c", 400, *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.removesuffix("\n")

    def chat(self, **more):
        return self.server.post(CHAT, {"messages": USER, "max_tokens": 12, **more})

    def chat_events(self, **more):
        return self.server.stream(CHAT, {"messages": USER, "max_tokens": 12, **more})

    def complete(self, prompt="hello", **more):
        return self.server.post(TEXT, {"prompt": prompt, "max_tokens": 12, **more})

    def complete_events(self, prompt="hello", **more):
        return self.server.stream(TEXT, {"prompt": prompt, "max_tokens": 12, **more})

    def texts(self, reply):
        self.assertEqual([c["index"] for c in reply["choices"]], list(range(len(reply["choices"]))))
        return [c["text"] if "text" in c else c["message"]["content"] for c in reply["choices"]]

    def test_a_completion_is_what_generate_writes(self):
        for prompt, most in ("hello", 40), ("Once upon a time", 64), ("a", 1), (LONGER * 3, 50):
            reply = self.complete(prompt, max_tokens=most)
            self.assertEqual(self.texts(reply), [self.generate(prompt, most)])
            self.assertEqual(reply["object"], "text_completion")
            self.assertTrue(reply["id"].startswith("cmpl-"))
            self.assertEqual(reply["model"], "tiny")

    def test_a_chat_is_what_generate_writes_of_its_prompt(self):
        turns = [{"role": "system", "content": "be"}, *USER, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "so?"}]
        for messages, prompt in (USER, "u:greetings\na:"), (turns, "s:be\nu:greetings\na:yes\nu:so?\na:"):
            reply = self.chat(messages=messages, max_tokens=40)
            self.assertEqual(self.texts(reply), [self.generate(prompt, 40)])
            self.assertEqual(reply["object"], "chat.completion")
            self.assertTrue(reply["id"].startswith("chatcmpl-"))
            self.assertEqual(reply["choices"][0]["message"]["role"], "assistant")
            self.assertEqual(reply["usage"]["prompt_tokens"], len(prompt))

    def test_streams_bring_the_same_text(self):
        for most in 1, 2, 12, 64:
            whole = self.complete(max_tokens=most)
            events = self.complete_events(max_tokens=most)
            self.assertEqual([joined(events)], self.texts(whole))
            self.assertEqual(finish_of(events), [whole["choices"][0]["finish_reason"]])
            whole = self.chat(max_tokens=most)
            events = self.chat_events(max_tokens=most)
            self.assertEqual([joined(events)], self.texts(whole))
            self.assertEqual(finish_of(events), [whole["choices"][0]["finish_reason"]])

    def test_a_seed_draws_what_generate_draws_with_it(self):
        for seed in 0, 7, 2 ** 40:
            text = self.generate("hello", 24, "--temp", 1, "--seed", seed)
            self.assertEqual(self.texts(self.complete(max_tokens=24, temperature=1, seed=seed)), [text])
            self.assertEqual(joined(self.complete_events(max_tokens=24, temperature=1, seed=seed)), text)

    def test_other_seeds_and_none_draw_other_texts(self):
        def texts(**more):
            return [self.texts(self.complete(max_tokens=24, temperature=1, **more))[0] for _ in range(3)]
        same = texts(seed=7)
        self.assertEqual(same, same[:1] * 3)
        self.assertNotEqual(self.texts(self.complete(max_tokens=24, temperature=1, seed=8)), same[:1])
        self.assertEqual(len(set(texts())), 3)
        self.assertEqual(len(set(texts(seed=-1))), 3)
        chats = [self.texts(self.chat(temperature=1, seed=-1, max_tokens=24))[0] for _ in range(3)]
        self.assertEqual(len(set(chats)), 3)

    def test_settings_of_sampling_are_used(self):
        greedy = self.texts(self.complete(max_tokens=24))
        for settings in {"top_k": 1}, {"top_p": 1e-6}, {"temperature": 0}:
            self.assertEqual(self.texts(self.complete(max_tokens=24, **{"temperature": 2, "seed": 3, **settings})), greedy)
        self.assertNotEqual(self.texts(self.complete(max_tokens=24, temperature=2, seed=3)), greedy)
        for settings in {"top_k": 0}, {"top_k": -1}, {"top_p": 1}:  # off
            self.assertEqual(self.texts(self.complete(max_tokens=24, temperature=2, seed=3, **settings)),
                             self.texts(self.complete(max_tokens=24, temperature=2, seed=3)))

    def test_edits_and_cuts_are_those_of_the_flags(self):
        """Each changes the text, as its flag does."""
        plain, drawn = self.generate("hello", 24), self.generate("hello", 24, "--temp", 1.5, "--seed", 3)
        for field, value, flags in (("presence_penalty", 2, ("--presence-penalty", 2)),
                                    ("frequency_penalty", 1.5, ("--frequency-penalty", 1.5)),
                                    ("repeat_penalty", 3, ("--repeat-penalty", 3)),
                                    ("logit_bias", {"11": 100}, ("--logit-bias", "11+100"))):
            text = self.generate("hello", 24, *flags)
            self.assertEqual(self.texts(self.complete(max_tokens=24, **{field: value})), [text], field)
            self.assertNotEqual(text, plain, field)
        for field, value, flag in (("min_p", 0.4, "--min-p"), ("typical_p", 0.3, "--typical"), ("top_p", 0.3, "--top-p"),
                                   ("top_k", 3, "--top-k")):
            text = self.generate("hello", 24, "--temp", 1.5, "--seed", 3, flag, value)
            reply = self.complete(max_tokens=24, temperature=1.5, seed=3, **{field: value})
            self.assertEqual(self.texts(reply), [text], field)
            self.assertNotEqual(text, drawn, field)

    def test_the_chunks_of_a_chat_come_in_their_order(self):
        events = self.chat_events()
        self.assertEqual(len({event["id"] for event in events}), 1)
        self.assertEqual(len({event["created"] for event in events}), 1)
        for event in events:
            self.assertEqual((event["object"], event["model"]), ("chat.completion.chunk", "tiny"))
            self.assertEqual(len(event["choices"]), 1)
            self.assertNotIn("usage", event)
        choices = [event["choices"][0] for event in events]
        self.assertEqual(choices[0]["delta"], {"role": "assistant", "content": None})
        for choice in choices[1:]:
            self.assertNotIn("role", choice["delta"])
        for choice in choices[:-1]:
            self.assertIsNone(choice["finish_reason"])
        self.assertEqual((choices[-1]["delta"], choices[-1]["finish_reason"]), ({}, "length"))

    def test_the_chunks_of_a_completion_come_in_their_order(self):
        events = self.complete_events()
        self.assertEqual(len({event["id"] for event in events}), 1)
        for event in events[:-1]:
            self.assertEqual(event["object"], "text_completion")
            self.assertIsNone(event["choices"][0]["finish_reason"])
            self.assertIsInstance(event["choices"][0]["text"], str)
        self.assertEqual(events[-1]["choices"][0]["finish_reason"], "length")
        self.assertEqual(events[-1]["choices"][0]["text"], "")

    def test_usage_comes_in_one_chunk_where_it_was_asked_for(self):
        for events, prompt in ((self.chat_events(stream_options={"include_usage": True}), "u:greetings\na:"),
                               (self.complete_events(stream_options={"include_usage": True}), "hello")):
            self.assertEqual([bool(event.get("usage")) for event in events], [False] * (len(events) - 1) + [True])
            self.assertEqual(events[-1]["choices"], [])
            usage = events[-1]["usage"]
            self.assertEqual((usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]),
                             (len(prompt), 12, len(prompt) + 12))
            self.assertEqual(events[-1]["timings"]["predicted_n"], 12)
        for more in {"stream_options": {"include_usage": False}}, {"stream_options": None}, {"stream_options": {}}:
            self.assertFalse([event for event in self.chat_events(**more) if event.get("usage")])

    def test_usage_counts_all_choices(self):
        usage = self.complete("hello", n=3)["usage"]
        self.assertEqual((usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]), (5, 36, 41))
        usage = self.complete(["hello", "yes"], n=2)["usage"]
        self.assertEqual((usage["prompt_tokens"], usage["completion_tokens"]), (8, 48))

    def test_choices_are_texts_of_their_own(self):
        asked = {"n": 3, "temperature": 1, "seed": 5, "max_tokens": 20}
        lines = self.generate("hello", 20, "--temp", 1, "--seed", 5, "--num-samples", 3).splitlines()
        expected = [json.loads(line)["text"] for line in lines]
        self.assertEqual(len(set(expected)), 3)
        self.assertEqual(self.texts(self.complete(**asked)), expected)
        events = self.complete_events(**asked)
        self.assertEqual([joined(events, i) for i in range(3)], expected)
        events, chat = self.chat_events(**asked), self.chat(**asked)
        self.assertEqual([joined(events, i) for i in range(3)], self.texts(chat))
        for i in range(3):
            self.assertEqual(finish_of(events, i), [chat["choices"][i]["finish_reason"]])
            of_choice = [c for event in events for c in event["choices"] if c["index"] == i]
            self.assertEqual([("role" in c["delta"]) for c in of_choice], [True] + [False] * (len(of_choice) - 1))

    def test_several_prompts_have_a_text_each(self):
        prompts = ["hello", "yes", "Once upon a time", "no"]
        alone = [self.texts(self.complete(prompt))[0] for prompt in prompts]
        self.assertEqual(self.texts(self.complete(prompts)), alone)
        events = self.complete_events(prompts)
        self.assertEqual([joined(events, i) for i in range(4)], alone)
        twice = self.texts(self.complete(prompts[:2], n=2))
        self.assertEqual(twice, [alone[0], alone[0], alone[1], alone[1]])

    def test_prompts_can_be_tokens(self):
        tokens = self.server.post("/tokenize", {"content": "hello"})["tokens"]
        alone = self.texts(self.complete("hello"))
        self.assertEqual(self.texts(self.complete(tokens)), alone)
        self.assertEqual(self.texts(self.complete([tokens])), alone)
        self.assertEqual(self.texts(self.complete([tokens, "hello", tokens])), alone * 3)

    def test_a_stop_string_ends_a_text_before_it(self):
        whole = self.texts(self.complete(max_tokens=40))[0]
        for begin, size in (5, 1), (5, 3), (9, 2), (0, 1), (20, 8), (38, 2):
            stop = whole[begin:begin + size]
            expected = whole[:whole.index(stop)]
            for given in stop, [stop], ["no such text", stop], [stop, whole[39:]]:
                reply = self.complete(max_tokens=40, stop=given)
                self.assertEqual(self.texts(reply), [expected], given)
                self.assertEqual(reply["choices"][0]["finish_reason"], "stop")
                events = self.complete_events(max_tokens=40, stop=given)
                self.assertEqual((joined(events), finish_of(events)), (expected, ["stop"]), given)

    def test_what_only_begins_like_a_stop_string_is_text(self):
        whole = self.texts(self.complete(max_tokens=40))[0]
        for begin, size in (5, 3), (30, 9), (38, 2):
            stop = whole[begin:begin + size] + "\x01"
            events = self.complete_events(max_tokens=40, stop=stop)
            self.assertEqual((joined(events), finish_of(events)), (whole, ["length"]), stop)

    def test_no_piece_holds_the_beginning_of_a_stop_string(self):
        whole = self.texts(self.complete(max_tokens=40))[0]
        stop = whole[10:18]
        expected, so_far = whole[:whole.index(stop)], ""
        for event in self.complete_events(max_tokens=40, stop=stop):
            so_far += piece(event["choices"][0])
            self.assertTrue(expected.startswith(so_far), so_far)
        self.assertEqual(so_far, expected)

    def test_stop_strings_of_one_choice_leave_the_others_alone(self):
        asked = {"n": 3, "temperature": 1, "seed": 5, "max_tokens": 20}
        texts = self.texts(self.complete(**asked))
        stop = texts[1][8:11]
        reply = self.complete(**asked, stop=stop)
        self.assertEqual(self.texts(reply), [text.split(stop)[0] for text in texts])
        self.assertEqual(reply["choices"][1]["finish_reason"], "stop")

    def check_logprobs(self, tokens, text, top):
        self.assertEqual("".join(token["token"] for token in tokens), text)
        self.assertEqual(bytes(byte for token in tokens for byte in token["bytes"]).decode(), text)
        for token in tokens:
            self.assertLessEqual(token["logprob"], 0)
            self.assertEqual(len(token["top_logprobs"]), top)
            logprobs = [one["logprob"] for one in token["top_logprobs"]]
            self.assertEqual(logprobs, sorted(logprobs, reverse=True))
            if top:  # greedy
                best = token["top_logprobs"][0]
                self.assertEqual((best["token"], best["bytes"], best["logprob"]), (token["token"], token["bytes"], token["logprob"]))

    def test_logprobs_of_a_chat_are_of_its_tokens(self):
        for top in None, 0, 1, 4, 20:
            asked = {"logprobs": True} | ({} if top is None else {"top_logprobs": top})
            choice = self.chat(**asked)["choices"][0]
            self.check_logprobs(choice["logprobs"]["content"], choice["message"]["content"], top or 0)
            events = self.chat_events(**asked)
            tokens = [token for event in events for c in event["choices"] if c["logprobs"] for token in c["logprobs"]["content"]]
            self.assertEqual(tokens, choice["logprobs"]["content"])
        self.assertIsNone(self.chat()["choices"][0]["logprobs"])
        self.assertIsNone(self.chat(logprobs=False, top_logprobs=0)["choices"][0]["logprobs"])

    def test_logprobs_of_a_completion_are_in_columns(self):
        for top in 0, 1, 5:
            choice = self.complete(logprobs=top)["choices"][0]
            columns = choice["logprobs"]
            self.assertEqual("".join(columns["tokens"]), choice["text"])
            self.assertEqual(columns["text_offset"], list(range(12)))
            for token, logprob, likeliest in zip(columns["tokens"], columns["token_logprobs"], columns["top_logprobs"], strict=True):
                self.assertLessEqual(logprob, 0)
                self.assertEqual(len(likeliest), top)
                if top:
                    self.assertEqual(max(likeliest.values()), likeliest[token])
            streamed = {name: [] for name in columns}
            for event in self.complete_events(logprobs=top):
                for name, values in (event["choices"][0]["logprobs"] or {}).items():
                    streamed[name] += values
            self.assertEqual(streamed, columns)

    def test_logprobs_stay_with_what_a_stop_string_holds_back(self):
        whole = self.texts(self.complete(max_tokens=12))[0]
        stop = whole[5:9] + "\x01"
        events = self.chat_events(logprobs=True, stop=stop)
        tokens = [token for event in events for c in event["choices"] if c["logprobs"] for token in c["logprobs"]["content"]]
        self.check_logprobs(tokens, joined(events), 0)

    def test_the_limit_of_a_text_has_several_names(self):
        for name in "max_tokens", "max_completion_tokens", "n_predict":
            reply = self.server.post(TEXT, {"prompt": "hello", name: 7})
            self.assertEqual((reply["usage"]["completion_tokens"], reply["choices"][0]["finish_reason"]), (7, "length"))
            self.assertEqual(len(reply["choices"][0]["text"]), 7)

    def test_without_a_limit_a_text_goes_on_until_the_context_is_full(self):
        for more in {}, {"max_tokens": None}, {"max_tokens": -1}, {"max_tokens": 10_000}:
            reply = self.server.post(TEXT, {"prompt": "hello", "ignore_eos": True, **more})
            self.assertEqual((reply["usage"]["total_tokens"], reply["choices"][0]["finish_reason"]), (400, "length"))

    def test_an_end_token_ends_a_text_unless_it_is_ignored(self):
        reply = self.complete("Once upon a time", max_tokens=60)
        self.assertEqual(reply["choices"][0]["finish_reason"], "stop")
        self.assertLess(reply["usage"]["completion_tokens"], 60)
        events = self.complete_events("Once upon a time", max_tokens=60)
        self.assertEqual(finish_of(events), ["stop"])
        self.assertEqual(self.complete("Once upon a time", max_tokens=60, ignore_eos=True)["usage"]["completion_tokens"], 60)

    def test_a_prompt_beyond_the_context_is_refused_with_both_counts(self):
        for size in 400, 401, 5000:
            for stream in False, True:
                body = {"prompt": "x" * size, "max_tokens": 4, "stream": stream}
                error = self.server.post(TEXT, body, status=400)["error"]
                self.assertEqual((error["type"], error["n_prompt_tokens"], error["n_ctx"], error["param"]),
                                 ("exceed_context_size_error", size, 400, "prompt"))
                self.assertIn(str(size), error["message"])
                body = {"messages": [{"role": "user", "content": "x" * size}], "stream": stream}
                error = self.server.post(CHAT, body, status=400)["error"]
                self.assertEqual((error["type"], error["n_prompt_tokens"], error["param"]),
                                 ("exceed_context_size_error", size + len("u:\na:"), "messages"))
        self.assertEqual(self.complete("x" * 399)["usage"]["completion_tokens"], 1)

    def test_echo_puts_the_prompt_before_the_text(self):
        self.assertEqual(self.texts(self.complete(echo=True)), ["hello" + self.texts(self.complete())[0]])
        self.assertEqual(joined(self.complete_events(echo=True)), "hello" + self.texts(self.complete())[0])
        both = self.texts(self.complete(["hello", "yes"], echo=True))
        self.assertEqual([text[:5] for text in both], ["hello", "yes" + both[1][3:5]])

    def test_what_is_remembered_of_a_prompt_is_counted_and_changes_nothing(self):
        prompt = "remembered: " + LONGER * 4
        first = self.complete(prompt)
        again = self.complete(prompt)
        other = self.complete(prompt + "and more")
        cached = [reply["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in (first, again, other)]
        self.assertEqual(cached[0], 0)
        for count, reply in zip(cached[1:], (again, other)):
            self.assertGreater(count, len(prompt) - 64)
            self.assertLess(count, reply["usage"]["prompt_tokens"])
            self.assertEqual(reply["timings"]["cache_n"], count)
            self.assertEqual(reply["timings"]["prompt_n"] + count, reply["usage"]["prompt_tokens"])
            self.assertLess(reply["timings"]["prefix_n"] - count, 64)
        changed = prompt[:100] + "#" + prompt[101:]
        parted = self.complete(changed)["timings"]["prefix_n"]
        self.assertEqual((parted, first["timings"]["prefix_n"]), (100, 0))
        self.assertEqual(self.texts(first), self.texts(again))
        self.assertEqual(self.texts(other), [self.generate(prompt + "and more", 12)])
        streamed = self.complete_events(prompt, stream_options={"include_usage": True})
        self.assertEqual(streamed[-1]["usage"]["prompt_tokens_details"]["cached_tokens"], cached[1])

    def test_a_conversation_goes_on_from_what_was_said(self):
        messages = [{"role": "user", "content": LONGER * 2}]
        answer = self.texts(self.chat(messages=messages, max_tokens=60, ignore_eos=True))[0]
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "go on"}]
        reply = self.chat(messages=messages)
        self.assertGreater(reply["usage"]["prompt_tokens_details"]["cached_tokens"], len(LONGER) * 2 + 60 - 40)
        prompt = f"u:{LONGER * 2}\na:{answer}\nu:go on\na:"
        self.assertEqual(self.texts(reply), [self.generate(prompt, 12)])

    def test_a_second_turn_reads_at_most_64_tokens_beyond_the_new_ones(self):
        with self.start("-c", 3000, "--chat-template-file", self.dir / "template.jinja") as server:
            for more in 0, 1, 17, 33, 63:  # wherever the last whole block of 64 ends
                messages = [{"role": "user", "content": f"{more} " + LONGER * 26 + "z" * more}]
                body = {"messages": messages, "max_tokens": 60, "ignore_eos": True}
                first = server.post(CHAT, body)
                messages += [first["choices"][0]["message"], {"role": "user", "content": "and what then?"}]
                second = server.post(CHAT, body)
                behind = first["usage"]["total_tokens"]
                self.assertGreater(behind, 1000)
                new = second["usage"]["prompt_tokens"] - behind
                self.assertLess(new, 64)
                self.assertGreater(new, 0)
                self.assertLessEqual(second["timings"]["prompt_n"], new + 64, more)

    def test_alternating_prompts_are_counted_to_the_last_token(self):
        prompts = [letter * 90 + " of this" for letter in "ABC"]
        expected = [self.generate(prompt, 6) for prompt in prompts]
        for _ in range(3):
            for prompt, text in zip(prompts, expected):
                reply = self.complete(prompt, max_tokens=6)
                self.assertEqual(self.texts(reply), [text])
                self.assertEqual(reply["timings"]["prompt_n"] + reply["timings"]["cache_n"], len(prompt))

    def test_progress_rises_to_the_whole_prompt(self):
        with self.start("-c", 3000) as server:
            prompt = "progress " * 250
            for cache in False, True:
                events = server.stream(TEXT, {"prompt": prompt, "max_tokens": 2, "return_progress": True})
                told = [event["prompt_progress"] for event in events if "prompt_progress" in event]
                self.assertTrue(told)
                self.assertEqual({step["total"] for step in told}, {len(prompt)})
                processed = [step["processed"] for step in told]
                self.assertEqual(processed, sorted(set(processed)))
                self.assertEqual(processed[-1], len(prompt))
                times = [step["time_ms"] for step in told]
                self.assertEqual(times, sorted(times))
                self.assertEqual(told[-1]["cache"] > 2000, cache)
                first_text = next(i for i, event in enumerate(events) if piece(event["choices"][0]))
                self.assertFalse(["prompt_progress" in event for event in events[first_text:]].count(True))

    def test_timings_come_with_each_token_where_they_are_asked_for(self):
        events = self.chat_events(timings_per_token=True)
        for event in events:
            self.assertEqual("timings" in event, bool(piece(event["choices"][0])))
        self.assertFalse([event for event in self.chat_events() if "timings" in event])
        timings = self.chat()["timings"]
        self.assertEqual((timings["predicted_n"], timings["sweeps"], timings["tokens_per_sweep"]), (12, 12, 1))
        self.assertEqual((timings["draft_n"], timings["draft_n_accepted"]), (0, 0))
        with self.start("-md", self.model, "--spec", "chain", "--tree-size", 4, "-c", 200) as server:  # its own draft is always right
            timings = server.post(TEXT, {"prompt": "hello", "max_tokens": 16, "ignore_eos": True})["timings"]
            self.assertEqual((timings["sweeps"], timings["draft_n"], timings["draft_n_accepted"]), (4, 12, 12))

    def test_the_model_is_named_or_left_out(self):
        self.assertEqual(self.chat(model="tiny")["model"], "tiny")
        error = self.server.post(CHAT, {"messages": USER, "model": "other"}, status=404)["error"]
        self.assertEqual((error["type"], error["param"]), ("not_found_error", "model"))
        self.assertIn("tiny", error["message"])

    def test_content_can_come_in_parts(self):
        parts = [{"type": "text", "text": "greet"}, {"type": "text", "text": "ings"}]
        self.assertEqual(self.texts(self.chat(messages=[{"role": "user", "content": parts}])), self.texts(self.chat()))

    def test_fields_that_only_name_a_user_change_nothing(self):
        more = {"user": "somebody", "metadata": {"a": "b"}, "store": False, "safety_identifier": "x", "service_tier": "auto",
                "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}, "stop": None, "cache_prompt": True}
        self.assertEqual(self.texts(self.chat(**more)), self.texts(self.chat()))

    def test_routes_without_a_version_are_the_same(self):
        reply = self.server.post("/completions", {"prompt": "hello", "max_tokens": 12})
        self.assertEqual(self.texts(reply), self.texts(self.complete()))
        reply = self.server.post("/chat/completions", {"messages": USER, "max_tokens": 12})
        self.assertEqual(self.texts(reply), self.texts(self.chat()))


class PaddedVocabulary(ServerCase):
    """The model has 37 ids more than its tokenizer names."""
    FLAGS = ("-c", 400, "--parallel", 2)
    NAMED = 60

    @classmethod
    def tiny_model(cls, to):
        model = bytes_model(to)
        tokenizer = json.loads((model / "tokenizer.json").read_text())
        vocab = tokenizer["model"]["vocab"]
        tokenizer["model"]["vocab"] = {piece: id for piece, id in vocab.items() if id < cls.NAMED}
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        return model

    def test_ids_without_a_name_are_taken_and_have_no_text(self):
        self.assertEqual(self.server.post("/detokenize", {"tokens": [33, 80, 34]})["content"], "AB")
        for temperature in 0, 1:
            body = {"messages": [{"role": "user", "content": "ABC"}], "max_tokens": 64, "temperature": temperature, "seed": 3,
                    "ignore_eos": True, "logprobs": True, "top_logprobs": 5, "logit_bias": {"80": 5}}
            reply = self.server.post(CHAT, body)
            choice = reply["choices"][0]
            tokens = [token["token"] for token in choice["logprobs"]["content"]]
            self.assertEqual((reply["usage"]["completion_tokens"], len(tokens)), (64, 64))
            self.assertIn("", tokens)
            self.assertEqual(choice["message"]["content"], "".join(tokens))
            self.assertEqual(joined(self.server.stream(CHAT, body)), choice["message"]["content"])
            only = {"prompt": "ABC", "max_tokens": 8, "temperature": temperature, "logit_bias": {"80": 100}, "logprobs": 2}
            reply = self.server.post(TEXT, only)
            self.assertEqual((reply["choices"][0]["text"], reply["usage"]["completion_tokens"]), ("", 8))


if __name__ == "__main__":
    main()
