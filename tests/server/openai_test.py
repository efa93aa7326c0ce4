"""The server as OpenAI's own client sees it: what it parses, and the classes of exceptions that it makes of errors."""
import json
import unittest

from serving import ANSWER, NEEDS_REAL_MODEL, REPO, ServerCase, main

try:
    import openai
    import pydantic  # which comes with it
except ImportError:
    openai = None

NEEDS_CLIENT = unittest.skipIf(openai is None, "needs the client: pip install -r tests/server/requirements.txt")
HERMES = REPO / "tests/data/chat_templates/templates/Qwen-Qwen2.5-7B-Instruct.jinja"
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "additionalProperties": False, "required": ["city"], "properties": {"city": {"type": "string", "maxLength": 20}}}}}
USER = [{"role": "user", "content": "greetings"}]


class ClientCase(ServerCase):
    KEY = "none"

    def setUp(self):
        self.client = self.client_of(self.KEY)

    def client_of(self, key):
        client = openai.OpenAI(base_url=f"http://{self.server.host}:{self.server.port}/v1", api_key=key, max_retries=0,
                               timeout=ANSWER)
        self.addCleanup(client.close)
        return client


@NEEDS_CLIENT
class OpenAi(ClientCase):
    KEY, FLAGS = "right", ("-c", 20_000, "--parallel", 2, "--queue", 2, "--api-key", "right")

    def chat(self, **more):
        return self.client.chat.completions.create(**{"model": "tiny", "messages": USER, "max_tokens": 12, **more})

    def complete(self, **more):
        return self.client.completions.create(**{"model": "tiny", "prompt": "hello", "max_tokens": 12, **more})

    def test_models(self):
        model, = self.client.models.list()
        self.assertEqual((model.id, model.object, model.owned_by), ("tiny", "model", "canopy"))
        self.assertIsInstance(model.created, int)

    def test_chat(self):
        reply = self.chat()
        choice = reply.choices[0]
        self.assertEqual((choice.message.role, choice.finish_reason, choice.index), ("assistant", "length", 0))
        self.assertEqual(len(choice.message.content), 12)
        self.assertEqual((reply.usage.prompt_tokens, reply.usage.completion_tokens), (len("u:greetings\na:"), 12))
        self.assertEqual(reply.usage.prompt_tokens_details.cached_tokens, 0)
        self.assertIsNone(choice.message.tool_calls)

    def test_stream(self):
        whole = self.chat().choices[0].message.content
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks if c.choices), whole)
        self.assertEqual([c.choices[0].delta.role for c in chunks if c.choices], ["assistant"] + [None] * (len(chunks) - 2))
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices][-1], "length")
        self.assertEqual([c.usage.completion_tokens for c in chunks if c.usage], [12])

    def test_stream_with_helpers(self):
        whole = self.chat().choices[0].message.content
        with self.client.chat.completions.stream(model="tiny", messages=USER, max_tokens=12, stop=whole[7:9]) as stream:
            text = "".join(event.delta for event in stream if event.type == "content.delta")
            self.assertEqual(stream.get_final_completion().choices[0].message.content, text)
        self.assertEqual(text, whole[:whole.index(whole[7:9])])

    def test_completions(self):
        whole = self.complete()
        self.assertEqual((whole.choices[0].finish_reason, len(whole.choices[0].text)), ("length", 12))
        self.assertEqual("".join(chunk.choices[0].text for chunk in self.complete(stream=True)), whole.choices[0].text)
        both = self.complete(prompt=["hello", "yes"])
        self.assertEqual(both.choices[0].text, whole.choices[0].text)
        self.assertEqual(self.complete(prompt=self.tokens("hello")).choices[0].text, whole.choices[0].text)

    def tokens(self, text):
        return self.server.post("/tokenize", {"content": text}, headers={"X-Api-Key": "right"})["tokens"]

    def test_choices(self):
        reply = self.chat(n=3, temperature=1, seed=5)
        self.assertEqual([choice.index for choice in reply.choices], [0, 1, 2])
        self.assertEqual(len({choice.message.content for choice in reply.choices}), 3)
        texts = ["", "", ""]
        for chunk in self.chat(n=3, temperature=1, seed=5, stream=True):
            texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
        self.assertEqual(texts, [choice.message.content for choice in reply.choices])

    def test_stop(self):
        whole = self.complete().choices[0].text
        for stop in whole[4:6], [whole[4:6], "\x01"]:
            reply = self.complete(stop=stop)
            self.assertEqual((reply.choices[0].text, reply.choices[0].finish_reason), (whole[:whole.index(whole[4:6])], "stop"))

    def test_seed(self):
        def text(seed):
            return self.chat(temperature=1, seed=seed).choices[0].message.content
        self.assertEqual(text(1), text(1))
        self.assertNotEqual(text(1), text(2))

    def test_logprobs(self):
        reply = self.chat(logprobs=True, top_logprobs=3)
        content = reply.choices[0].logprobs.content
        self.assertEqual("".join(token.token for token in content), reply.choices[0].message.content)
        for token in content:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual(token.token, token.top_logprobs[0].token)
        streamed = [token for chunk in self.chat(logprobs=True, top_logprobs=3, stream=True) if chunk.choices[0].logprobs
                    for token in chunk.choices[0].logprobs.content]
        self.assertEqual([token.token for token in streamed], [token.token for token in content])
        columns = self.complete(logprobs=2).choices[0].logprobs
        self.assertEqual((len(columns.tokens), columns.text_offset), (12, list(range(12))))

    def test_fields_beyond_the_api(self):
        whole = self.chat(temperature=2, seed=1, extra_body={"top_k": 1})
        self.assertEqual(whole.choices[0].message.content, self.chat().choices[0].message.content)

    def test_wrong_requests(self):
        for more, param in ({"temperature": 1000}, "temperature"), ({"messages": []}, "messages"), ({"extra_body": {"what": 1}}, "what"):
            with self.assertRaises(openai.BadRequestError) as raised:
                self.chat(**more)
            self.assertEqual((raised.exception.status_code, raised.exception.param, raised.exception.type),
                             (400, param, "invalid_request_error"))
        with self.assertRaises(openai.BadRequestError) as raised:
            self.chat(messages=[{"role": "user", "content": "x" * 20_000}], stream=True)
        self.assertEqual(raised.exception.body["n_ctx"], 20_000)

    def test_a_model_that_is_not_there(self):
        with self.assertRaises(openai.NotFoundError) as raised:
            self.chat(model="gpt-4o")
        self.assertIn("tiny", raised.exception.message)
        with self.assertRaises(openai.NotFoundError):
            self.client.embeddings.create(model="tiny", input="a")

    def test_a_wrong_key(self):
        with self.assertRaises(openai.AuthenticationError):
            self.client_of("wrong").chat.completions.create(model="tiny", messages=USER)
        self.assertTrue(list(self.client_of("wrong").models.list()))

    def test_too_many_texts(self):
        streams = [self.complete(max_tokens=19_000, stream=True, extra_body={"ignore_eos": True}) for _ in range(4)]
        try:
            next(iter(streams[0]))
            with self.assertRaises(openai.RateLimitError) as raised:
                self.chat()
            self.assertGreater(int(raised.exception.response.headers["retry-after"]), 0)
        finally:
            for stream in streams:
                stream.close()

    def test_a_server_that_stops(self):
        with self.start("-c", 20_000, "--grace", 0) as server:
            client = openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none", max_retries=0)
            self.addCleanup(client.close)
            stream = client.completions.create(model="tiny", prompt="hello", max_tokens=19_000, stream=True, extra_body={"ignore_eos": True})
            next(iter(stream))
            server.process.terminate()
            with self.assertRaisesRegex(openai.APIError, "stopped"):
                list(stream)


@NEEDS_CLIENT
@NEEDS_REAL_MODEL
class Formats(ClientCase):
    """Through the client's own helpers, which write the schemas and parse the answers."""
    REAL, FLAGS = True, ("-c", 1024, "--parallel", 2, "--chat-template-file", HERMES)

    def test_a_model_of_pydantic_is_filled(self):
        class Cat(pydantic.BaseModel):
            name: str = pydantic.Field(max_length=12)
            age: int = pydantic.Field(ge=0, le=30)

        reply = self.client.chat.completions.parse(model="tiny", messages=[{"role": "user", "content": "Describe a cat."}],
                                                   response_format=Cat, max_tokens=120, temperature=1, seed=3)
        cat = reply.choices[0].message.parsed
        self.assertIsInstance(cat, Cat)
        self.assertEqual(reply.choices[0].finish_reason, "stop")

    def test_a_tool_is_called(self):
        asked = {"model": "tiny", "messages": [{"role": "user", "content": "What is the weather in Paris?"}], "max_tokens": 120,
                 "tools": [WEATHER], "tool_choice": "required", "temperature": 1, "seed": 5}
        choice = self.client.chat.completions.create(**asked).choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        call, = choice.message.tool_calls
        self.assertEqual((call.type, call.function.name), ("function", "weather"))
        self.assertEqual(list(json.loads(call.function.arguments)), ["city"])
        with self.client.chat.completions.stream(**asked) as stream:
            for _ in stream:
                pass
            streamed, = stream.get_final_completion().choices[0].message.tool_calls
        self.assertEqual((streamed.function.name, streamed.function.arguments), (call.function.name, call.function.arguments))


if __name__ == "__main__":
    main()
