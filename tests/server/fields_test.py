"""Fields of other servers, as clients send them: what changes nothing passes, hints are named, and what would change the text is refused."""
from serving import ServerCase, finish_of, joined, main

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
USER = [{"role": "user", "content": "hello"}]
GUIDELLM = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}, "stop": None, "ignore_eos": True,
            "max_tokens": 6, "max_completion_tokens": 6}
# What SillyTavern sends to a server of llama.cpp's kind where its samplers are off.
SILLY_TAVERN = {
    "prompt": "hello", "model": "tiny", "max_new_tokens": 6, "max_tokens": 6, "temperature": 0.5, "top_p": 1, "typical_p": 1,
    "typical": 1, "sampler_seed": 3, "min_p": 0, "repetition_penalty": 1, "frequency_penalty": 0, "presence_penalty": 0, "top_k": 0,
    "skew": 0, "min_tokens": 0, "add_bos_token": True, "smoothing_factor": 0, "smoothing_curve": 1, "dry_allowed_length": 2,
    "dry_multiplier": 0, "dry_base": 1.75, "dry_sequence_breakers": ["\n", ":", "\"", "*"], "dry_penalty_last_n": 0,
    "max_tokens_second": 0, "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "tfs_z", "xtc", "top_p", "min_p", "temperature"],
    "stopping_strings": ["\nUser:", "\n***"], "stop": ["\nUser:", "\n***"], "truncation_length": 2048, "ban_eos_token": False,
    "skip_special_tokens": True, "include_reasoning": True, "top_a": 0, "tfs": 1, "mirostat_mode": 0, "mirostat_tau": 5,
    "mirostat_eta": 0.1, "custom_token_bans": "", "banned_strings": [], "api_type": "llamacpp", "api_server": "http://localhost/v1",
    "xtc_threshold": 0.1, "xtc_probability": 0, "nsigma": 0, "top_n_sigma": 0, "min_keep": 0, "n": 1, "rep_pen": 1, "rep_pen_range": 0,
    "repetition_penalty_range": 0, "guidance_scale": 1, "negative_prompt": "", "repeat_penalty": 1, "repeat_last_n": 0, "n_predict": 6,
    "num_predict": 6, "num_ctx": 2048, "mirostat": 0, "ignore_eos": False, "rep_pen_slope": 1, "logit_bias": [], "grammar": "",
    "cache_prompt": True, "seed": 3}
# What text-generation-webui sends to llama-server, and a page of its own once sent.
WEBUI = {"temperature": 1, "dynatemp_range": 0, "dynatemp_exponent": 1, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "top_n_sigma": -1,
         "typical_p": 1, "repeat_penalty": 1, "repeat_last_n": 1024, "presence_penalty": 0, "frequency_penalty": 0, "dry_multiplier": 0,
         "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": 1024, "xtc_probability": 0, "xtc_threshold": 0.1, "mirostat": 0,
         "mirostat_tau": 5, "mirostat_eta": 0.1, "grammar": "", "seed": -1, "ignore_eos": False, "n_probs": 0, "post_sampling_probs": False}
BOTH = {"temperature_last": False, "encoder_repetition_penalty": 1, "min_length": 0, "no_repeat_ngram_size": 0, "num_beams": 1,
        "penalty_alpha": 0, "length_penalty": 1, "early_stopping": False, "do_sample": True, "epsilon_cutoff": 0, "eta_cutoff": 0,
        "grammar_string": "", "use_mancer": False, "use_aphrodite": False, "spaces_between_special_tokens": True, "logits_processors": [],
        "prompt_logprobs": None, "truncate_prompt_tokens": None, "stop_token_ids": [], "function_call": "none", "functions": []}


class Fields(ServerCase):
    FLAGS = ("-c", 200)

    def complete(self, **more):
        return self.server.post(TEXT, {"prompt": "hello", "max_tokens": 6, **more})

    def chat(self, **more):
        return self.server.post(CHAT, {"messages": USER, "max_tokens": 6, **more})

    def test_what_guidellm_sends(self):
        for path, asked in (TEXT, {"prompt": "hello"}), (CHAT, {"messages": USER}):
            events = self.server.stream(path, {**asked, **GUIDELLM})
            self.assertEqual(len(joined(events)), 6)
            counts = [event["usage"]["completion_tokens"] for event in events if event["choices"] and event.get("usage")]
            self.assertTrue(counts and counts == sorted(counts) and counts[-1] == 6, events)
            self.assertEqual(events[-1]["usage"]["completion_tokens"], 6)
            self.assertFalse(any("warnings" in event for event in events))

    def test_what_clients_for_text_send(self):
        plain = self.complete(temperature=0.5, seed=3)["choices"][0]["text"]
        for body in SILLY_TAVERN, {**SILLY_TAVERN, **BOTH}:
            reply = self.server.post(TEXT, body)
            self.assertEqual(reply["choices"][0]["text"], plain)
            named = [warning.split("'")[1] for warning in reply["warnings"]]
            self.assertEqual({"truncation_length", "num_ctx", "include_reasoning"}, set(named))
            events = self.server.stream(TEXT, body)
            self.assertEqual((joined(events), finish_of(events)), (plain, ["length"]))
            self.assertEqual([event["warnings"] for event in events if "warnings" in event], [reply["warnings"]])
        self.complete(**WEBUI)

    def test_null_is_absent_whatever_the_field(self):
        for name in "truncate_prompt_tokens", "guided_json", "audio", "prediction", "no_such_field", "mirostat", "echo", "stop":
            self.assertNotIn("warnings", self.complete(**{name: None}), name)
            self.assertNotIn("warnings", self.chat(**{name: None}), name)
        self.chat(tools=None, tool_choice=None, response_format=None, stream_options=None, logprobs=None, top_logprobs=None)

    def test_values_that_change_nothing_pass(self):
        for fields in ({"min_tokens": 0}, {"mirostat": 0}, {"dry_multiplier": 0.0}, {"stop_token_ids": []}, {"echo": False}, {"tfs": 1.0},
                       {"function_call": "none"}, {"functions": []}, {"add_special_tokens": False}, {"cfg_scale": 1}, {"lora": []}):
            self.assertNotIn("warnings", self.chat(**fields), fields)

    def test_hints_are_named(self):
        for fields in ({"verbosity": "low"}, {"service_tier": "flex"}, {"cache_prompt": False}, {"prediction": {"type": "content", "content": "a"}},
                       {"id_slot": 2}, {"priority": 1}):
            warning, = self.chat(**fields)["warnings"]
            self.assertIn(f"'{next(iter(fields))}' is not followed", warning)
        events = self.server.stream(CHAT, {"messages": USER, "max_tokens": 2, "verbosity": "low"})
        self.assertIn("verbosity", events[0]["warnings"][0])
        self.assertFalse(any("warnings" in event for event in events[1:]))

    def test_what_would_change_the_text_is_refused(self):
        for fields in ({"mirostat": 2}, {"dry_multiplier": 0.8}, {"xtc_probability": 0.5}, {"stop_token_ids": [97]}, {"stop_token_ids": 3}, {"min_tokens": 20, "max_tokens": 3},
                       {"min_tokens": 2, "ignore_eos": True, "stop_token_ids": [3]}, {"truncate_prompt_tokens": 5}, {"tfs": 0.9}, {"top_n_sigma": 1}, {"grammar": "root ::= x"}, {"guided_regex": "a+"},
                       {"skip_special_tokens": False}, {"num_beams": 4}, {"smoothing_factor": 0.1}, {"negative_prompt": "a"},
                       {"functions": [{"name": "f"}]}, {"function_call": {"name": "f"}}, {"repeat_last_n": 64, "repeat_penalty": 1.1},
                       {"rep_pen_range": 64, "rep_pen": 1.1}, {"no_such_field": 0}, {"banned_strings": ["a"]}, {"mirostat": False}):
            for path, asked in (TEXT, {"prompt": "hello"}), (CHAT, {"messages": USER}):
                self.refused(path, {**asked, **fields}, next(iter(fields)))
        self.refused(TEXT, {"prompt": "a", "add_special_tokens": False}, "add_special_tokens")
        self.refused(CHAT, {"messages": USER, "echo": True}, "echo")
        self.refused(CHAT, {"messages": USER, "min_tokens": 2, "response_format": {"type": "json_object"}}, "min_tokens")
        for more in {}, {"add_generation_prompt": True}:
            self.refused(CHAT, {"messages": [*USER, {"role": "assistant", "content": "a"}], "continue_final_message": True, **more},
                         "continue_final_message")
        for messages in USER, [*USER, {"role": "assistant", "content": None}]:
            self.refused(CHAT, {"messages": messages, "continue_final_message": True, "add_generation_prompt": False}, "continue_final_message")
        self.refused(TEXT, {"prompt": "a", "continue_final_message": True}, "continue_final_message")
        self.assertIn('0 or -1', self.refused(TEXT, {"prompt": "a", "top_n_sigma": 3}, "top_n_sigma"))

    def test_an_order_of_samplers_that_draws_the_same_passes(self):
        last = ["penalties", "top_k", "typ_p", "top_p", "min_p", "temperature"]
        for fields in ({"samplers": last, "temperature": 1, "top_p": 0.5}, {"samplers": last, "temperature": 0.7, "top_k": 5},
                       {"samplers": last, "temperature": 0, "top_p": 0.5, "min_p": 0.1}, {"samplers": last, "temperature": 1, "repeat_penalty": 2},
                       {"samplers": ["temperature", "top_k", "top_p", "min_p", "typ_p"], "temperature": 0.7, "top_k": 5, "top_p": 0.5, "min_p": 0.1},
                       {"samplers": ["temperature", "min_p", "top_k"], "temperature": 0.7, "top_k": 5, "min_p": 0.1},
                       {"samplers": [], "temperature": 1}, {"samplers": ["dry"], "temperature": 1},
                       {"sampler_priority": ["top_p", "temperature"], "temperature": 1, "top_p": 0.5}, {"sampler_priority": [], "temperature": 0.5},
                       {"sampler_order": [6, 5, 0, 2, 4, 1, 3], "temperature": 0.7, "top_k": 5, "top_p": 0.5, "rep_pen": 2},
                       {"temperature_last": False, "temperature": 0.7, "top_p": 0.5}, {"temperature_last": True, "temperature": 0.7, "top_k": 5}):
            drawn = {"max_tokens": 12, "seed": 7, **fields}
            reply = self.complete(**drawn)
            self.assertNotIn("warnings", reply, fields)
            plain = {name: value for name, value in drawn.items() if not name.startswith("sampler") and name != "temperature_last"}
            self.assertEqual(reply["choices"], self.complete(**plain)["choices"])

    def test_a_default_order_of_samplers_that_draws_otherwise_is_named(self):
        # SillyTavern's default preset; a 400 would lock out all who never asked for an order.
        preset = {"temperature": 0.7, "top_p": 0.5, "top_k": 40, "repetition_penalty": 1.2, "rep_pen": 1.2}
        samplers = ["top_k", "tfs_z", "typical_p", "top_p", "min_p", "temperature"]
        warning, = [w for w in self.server.post(TEXT, {**SILLY_TAVERN, **preset, "samplers": samplers, "repeat_last_n": -1})["warnings"]
                    if "samplers" in w]
        self.assertIn("temperature after top_p", warning)
        self.assertIn("penalties, temperature, top_k, top_p, min_p, typical_p", warning)
        for fields in ({"samplers": SILLY_TAVERN["samplers"], "min_p": 0.1}, {"temperature_last": True, "typical_p": 0.5},
                       {"sampler_order": [6, 0, 1, 3, 4, 2, 5], "top_p": 0.5},
                       {"sampler_priority": ["temperature", "dynamic_temperature", "quadratic_sampling", "top_k", "top_p", "typical_p",
                                             "epsilon_cutoff", "eta_cutoff", "tfs", "top_a", "min_p", "mirostat"], "min_p": 0.1, "typical_p": 0.5}):
            warning, = self.complete(temperature=0.7, **fields)["warnings"]
            self.assertIn(f"'{next(iter(fields))}' is not followed", warning)

    def test_another_order_of_samplers_is_refused(self):
        for fields, why in (({"samplers": ["top_p", "temperature"], "top_p": 0.5}, "temperature after top_p"),
                            ({"samplers": ["top_p", "temperature", "penalties"], "repeat_penalty": 2}, "penalties after temperature"),
                            ({"samplers": ["top_k"]}, "no temperature"), ({"samplers": [], "temperature": 0}, "no temperature"),
                            ({"sampler_order": [2, 5], "top_p": 0.5}, "temperature after top_p"),
                            ({"sampler_order": [5, 2, 0], "top_p": 0.5, "top_k": 5}, "top_k after top_p"),
                            ({"sampler_priority": ["temperature", "typical_p", "min_p"], "typical_p": 0.5, "min_p": 0.1}, "min_p after typical_p"),
                            ({"samplers": ["typ_p", "temperature"], "typical_p": 0.5, "temperature": 0}, "temperature after typical_p"),
                            ({"samplers": "kp"}, "list of names"), ({"samplers": [1]}, "names of samplers"),
                            ({"sampler_order": [7]}, "0 to 6"), ({"sampler_order": [-1]}, "0 to 6"), ({"sampler_order": ["a"]}, "0 to 6"),
                            ({"temperature_last": 1}, "true or false")):
            self.assertIn(why, self.refused(TEXT, {"prompt": "a", "temperature": 0.7, **fields}, next(iter(fields))), fields)

    def test_other_names_mean_the_same(self):
        drawn = {"temperature": 1, "seed": 5, "max_tokens": 20}
        plain = self.complete(**drawn)["choices"][0]["text"]
        self.assertEqual(self.complete(temperature=1, sampler_seed=5, max_tokens=None, num_predict=20)["choices"][0]["text"], plain)
        self.assertEqual(self.complete(**drawn, do_sample=False)["choices"][0]["text"],
                         self.complete(temperature=0, max_tokens=20)["choices"][0]["text"])
        self.assertEqual(self.complete(**drawn, typical=0.3)["choices"][0]["text"], self.complete(**drawn, typical_p=0.3)["choices"][0]["text"])
        self.assertEqual(self.complete(**drawn, rep_pen=3)["choices"][0]["text"], self.complete(**drawn, repeat_penalty=3)["choices"][0]["text"])
        self.assertEqual(self.complete(**drawn, repeat_penalty=3, repeat_last_n=0)["choices"][0]["text"], plain)
        for name in "stopping_strings", "stop_sequence":
            choice = self.complete(**drawn, **{name: [plain[4:6]], "stop": ["\x01", plain[4:6]]})["choices"][0]
            self.assertEqual((choice["text"], choice["finish_reason"]), (plain[:plain.index(plain[4:6])], "stop"))


class Effort(ServerCase):
    TEMPLATE = "{{ reasoning_effort }}{% for m in messages %}{{ m.content }}{% endfor %}"

    def test_the_template_is_told_the_effort(self):
        def prompt(**more):
            return self.server.post("/apply-template", {"messages": USER, **more})["prompt"]
        self.assertEqual(prompt(reasoning_effort="high"), "highhello")
        self.assertEqual(prompt(reasoning_effort="high", chat_template_kwargs={"reasoning_effort": "low"}), "lowhello")
        self.assertEqual(prompt(reasoning_effort=None), "hello")
        self.assertNotIn("warnings", self.server.post(CHAT, {"messages": USER, "max_tokens": 1, "reasoning_effort": "low"}))
        self.refused(CHAT, {"messages": USER, "reasoning_effort": 3}, "reasoning_effort")


if __name__ == "__main__":
    main()
