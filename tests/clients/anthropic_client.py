"""anthropic: messages whole and streamed, a forced call, its result, a schema, counts of tokens, errors."""
import anthropic
from asked import KEY, MODEL, PARAMETERS, URL, USER, Cat, check

client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
# The client has no argument for the temperature, which the server reads nevertheless.
asked = {"model": MODEL, "messages": USER, "extra_body": {"temperature": 0}, "system": [{"type": "text", "text": "Be brief."}]}
whole = client.messages.create(**asked, max_tokens=16)
assert (whole.stop_reason, whole.usage.output_tokens) == ("max_tokens", 16) and whole.content[0].text, whole
with client.messages.stream(**asked, max_tokens=16) as stream:
    assert "".join(stream.text_stream) == whole.content[0].text
    assert stream.get_final_message().usage.output_tokens == 16
word = whole.content[0].text.split()[1]
stopped = client.messages.create(**asked, max_tokens=16, stop_sequences=[word])
assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", word), stopped

counted = client.messages.count_tokens(model=MODEL, messages=USER, system=asked["system"]).input_tokens
assert counted == whole.usage.input_tokens + whole.usage.cache_read_input_tokens, (counted, whole)

tool = {"name": "weather", "description": "The weather of a city", "input_schema": PARAMETERS}
forced = {**asked, "max_tokens": 100, "tools": [tool], "tool_choice": {"type": "tool", "name": "weather"}}
call, = client.messages.create(**forced).content
assert call.type == "tool_use" and call.name == "weather" and call.input["city"], call
with client.messages.stream(**forced) as stream:
    message = stream.get_final_message()
assert message.stop_reason == "tool_use" and message.content[0].input == call.input, message
turns = [*USER, {"role": "assistant", "content": message.content},
         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": message.content[0].id, "content": "rain"}]}]
assert client.messages.create(**{**asked, "messages": turns}, tools=[tool], max_tokens=8).content

# `parse` would take the bounds out of the schema, which the model of the tests needs to come to an end.
schema = {"type": "json_schema", "schema": Cat.model_json_schema()}
check(Cat.model_validate_json(client.messages.create(**asked, max_tokens=200, output_config={"format": schema}).content[0].text))
for wrong, kind in (({"model": "other"}, anthropic.NotFoundError), ({"extra_body": {"temperature": 1000}}, anthropic.BadRequestError)):
    try:
        client.messages.create(**{**asked, **wrong}, max_tokens=4)
    except kind as error:
        assert error.body["type"] == "error" and error.body["error"]["message"], error.body
    else:
        raise AssertionError(wrong)
