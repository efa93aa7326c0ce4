"""openai-agents: an agent that calls a tool, and then answers; streamed, too; by chats, and by responses."""
import asyncio
import json

import agents
import openai
from asked import KEY, MODEL, URL, Cat, check

agents.set_tracing_disabled(True)
called = []


@agents.function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    called.append(city)
    return "rain"


client = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY)
QUESTION = "What is the weather in Paris?"


async def stream(agent):
    run = agents.Runner.run_streamed(agent, QUESTION)
    text = "".join([event.data.delta async for event in run.stream_events()
                    if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"])
    assert text
    return text, run.final_output


chats = agents.OpenAIChatCompletionsModel(model=MODEL, openai_client=client)
responses = agents.OpenAIResponsesModel(model=MODEL, openai_client=client)  # what agents use unless it is named
for model in chats, responses:
    called.clear()
    settings = agents.ModelSettings(tool_choice="required", max_tokens=60, temperature=0)
    agent = agents.Agent(name="weatherman", instructions="Be brief.", model=model, tools=[weather], model_settings=settings,
                         tool_use_behavior="stop_on_first_tool")
    assert agents.Runner.run_sync(agent, QUESTION).final_output == "rain"
    assert len(called) == 1

plain = agents.Agent(name="talker", model=chats, model_settings=agents.ModelSettings(max_tokens=16, temperature=0))
text, final = asyncio.run(stream(plain))
assert text == final, (text, final)

# A streamed response that is cut off is an error for agents: this one comes to its end.
format = {"type": "json_schema", "name": "cat", "schema": Cat.model_json_schema()}
settings = agents.ModelSettings(max_tokens=200, temperature=0, extra_args={"text": {"format": format}})
described = agents.Agent(name="describer", model=responses, model_settings=settings)
text, final = asyncio.run(stream(described))
assert text == final, (text, final)
check(Cat.model_validate(json.loads(final)))
first = agents.Runner.run_sync(described, "Describe a cat.")
again = agents.Runner.run_sync(described, "And another.", previous_response_id=first.last_response_id)
check(Cat.model_validate_json(again.final_output))
