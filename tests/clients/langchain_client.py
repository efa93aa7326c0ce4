"""langchain-openai: chats, streams, calls a tool, parses into a model of pydantic."""
from asked import KEY, MODEL, PARAMETERS, URL, Cat, check
from langchain_openai import ChatOpenAI

model = ChatOpenAI(base_url=f"{URL}/v1", api_key=KEY, model=MODEL, temperature=0, max_tokens=100)
whole = model.invoke("What is the weather in Paris?")
assert whole.content and whole.usage_metadata["output_tokens"] > 0, whole
assert "".join(chunk.content for chunk in model.stream("What is the weather in Paris?")) == whole.content
tool = {"title": "weather", "description": "The weather of a city", **PARAMETERS}
call = model.bind_tools([tool], tool_choice="required").invoke("What is the weather in Paris?").tool_calls[0]
assert call["name"] == "weather" and call["args"]["city"], call
for method in "json_schema", "function_calling":
    check(model.with_structured_output(Cat, method=method).invoke("Describe a cat."))
