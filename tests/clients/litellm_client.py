"""litellm: chats, streams, calls a tool."""
import json

import litellm
from asked import KEY, MODEL, TOOL, URL, USER

asked = {"model": f"openai/{MODEL}", "api_base": f"{URL}/v1", "api_key": KEY, "messages": USER, "temperature": 0}
whole = litellm.completion(**asked, max_tokens=16)
assert whole.choices[0].message.content and whole.usage.completion_tokens == 16, whole
chunks = litellm.completion(**asked, max_tokens=16, stream=True)
assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole.choices[0].message.content
call = litellm.completion(**asked, max_tokens=100, tools=[TOOL], tool_choice="required").choices[0].message.tool_calls[0]
assert call.function.name == "weather" and json.loads(call.function.arguments)["city"]
