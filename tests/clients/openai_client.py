"""openai: chats, streams, calls a tool, parses into a model of pydantic."""
import json

import openai
from asked import KEY, MODEL, TOOL, URL, USER, Cat, check

client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY)
asked = {"model": MODEL, "messages": USER, "temperature": 0}
whole = client.chat.completions.create(**asked, max_tokens=16)
assert whole.choices[0].message.content and whole.usage.completion_tokens == 16, whole
chunks = client.chat.completions.create(**asked, max_tokens=16, stream=True)
assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
call = client.chat.completions.create(**asked, max_tokens=100, tools=[TOOL], tool_choice="required").choices[0].message.tool_calls[0]
assert call.function.name == "weather" and json.loads(call.function.arguments)["city"]
check(client.chat.completions.parse(**asked, max_tokens=200, response_format=Cat).choices[0].message.parsed)
assert client.completions.create(model=MODEL, prompt="Once", max_tokens=4).choices[0].text
assert [model.id for model in client.models.list()] == [MODEL]
