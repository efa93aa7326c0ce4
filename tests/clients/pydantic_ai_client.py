"""pydantic-ai: chats, streams, calls a tool, parses into a model of pydantic."""
import asyncio

from asked import KEY, MODEL, URL, Cat, check
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{URL}/v1", api_key=KEY))
settings = {"max_tokens": 200, "temperature": 0}
assert Agent(model, model_settings=settings).run_sync("What is the weather in Paris?").output
check(Agent(model, output_type=Cat, model_settings=settings).run_sync("Describe a cat.").output)


async def stream():
    async with Agent(model, model_settings=settings).run_stream("What is the weather in Paris?") as run:
        text = "".join([piece async for piece in run.stream_text(delta=True)])
    assert text


asyncio.run(stream())
