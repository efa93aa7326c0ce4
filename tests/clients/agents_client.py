"""openai-agents: an agent that calls a tool, and then answers; streamed, too."""
import asyncio

import agents
import openai
from asked import KEY, MODEL, URL

agents.set_tracing_disabled(True)
called = []


@agents.function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    called.append(city)
    return "rain"


model = agents.OpenAIChatCompletionsModel(model=MODEL, openai_client=openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY))
settings = agents.ModelSettings(tool_choice="required", max_tokens=60, temperature=0)
agent = agents.Agent(name="weatherman", instructions="Be brief.", model=model, tools=[weather], model_settings=settings,
                     tool_use_behavior="stop_on_first_tool")
assert agents.Runner.run_sync(agent, "What is the weather in Paris?").final_output == "rain"
assert len(called) == 1


async def stream():
    plain = agents.Agent(name="talker", model=model, model_settings=agents.ModelSettings(max_tokens=16, temperature=0))
    run = agents.Runner.run_streamed(plain, "What is the weather in Paris?")
    text = "".join([event.data.delta async for event in run.stream_events()
                    if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"])
    assert text and text == run.final_output, (text, run.final_output)


asyncio.run(stream())
