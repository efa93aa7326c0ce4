"""openai: responses whole and streamed, conversations that go on from one, a forced call and its output, a schema, errors."""
import json

import openai
from asked import KEY, MODEL, PARAMETERS, URL, Cat, check

client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
asked = {"model": MODEL, "input": "What is the weather in Paris?", "instructions": "Be brief.", "temperature": 0}
whole = client.responses.create(**asked, max_output_tokens=16, metadata={"a": "b"})
assert (whole.status, whole.incomplete_details.reason, whole.usage.output_tokens) == ("incomplete", "max_output_tokens", 16), whole
assert whole.output_text and whole.metadata == {"a": "b"}, whole
chat = client.chat.completions.create(model=MODEL, max_tokens=16, temperature=0, messages=[
    {"role": "system", "content": asked["instructions"]}, {"role": "user", "content": asked["input"]}])
assert whole.output_text == chat.choices[0].message.content, (whole, chat)
events = list(client.responses.create(**asked, max_output_tokens=16, stream=True))
assert [event.sequence_number for event in events] == list(range(len(events)))
assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
assert (events[0].type, events[-1].type, events[-1].response.output_text) == ("response.created", "response.incomplete", whole.output_text)

assert client.responses.retrieve(whole.id).to_dict() == whole.to_dict()
more = client.responses.create(model=MODEL, input="And tomorrow?", previous_response_id=whole.id, temperature=0, max_output_tokens=8)
turns = [{"role": "user", "content": asked["input"]}, *whole.output, {"role": "user", "content": "And tomorrow?"}]
same = client.responses.create(model=MODEL, input=turns, temperature=0, max_output_tokens=8)
assert (more.output_text, more.usage.input_tokens) == (same.output_text, same.usage.input_tokens), (more, same)

tool = {"type": "function", "name": "weather", "description": "The weather of a city", "parameters": PARAMETERS, "strict": True}
forced = {**asked, "max_output_tokens": 100, "tools": [tool], "tool_choice": {"type": "function", "name": "weather"}}
first = client.responses.create(**forced)
call, = first.output
assert call.type == "function_call" and call.name == "weather" and json.loads(call.arguments)["city"], call
with client.responses.stream(**forced) as stream:
    final = stream.get_final_response()
assert final.output[0].arguments == call.arguments and final.status == "completed", final
output = [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"}]
assert client.responses.create(model=MODEL, input=output, previous_response_id=first.id, tools=[tool], max_output_tokens=8).output

schema = {"type": "json_schema", "name": "cat", "schema": Cat.model_json_schema()}
check(Cat.model_validate_json(client.responses.create(**asked, max_output_tokens=200, text={"format": schema}).output_text))
parsed = client.responses.parse(**{**asked, "input": "Describe a cat."}, max_output_tokens=200, text_format=Cat)
assert parsed.status == "incomplete" or isinstance(parsed.output_parsed, Cat), parsed

client.responses.delete(whole.id)
for wrong, kind in (({"model": "other"}, openai.NotFoundError), ({"temperature": 1000}, openai.BadRequestError),
                    ({"previous_response_id": whole.id}, openai.BadRequestError), ({"tools": [{"type": "web_search"}]}, openai.BadRequestError)):
    try:
        client.responses.create(**{**asked, **wrong}, max_output_tokens=4)
    except kind as error:
        assert error.param and error.body["message"], error.body
    else:
        raise AssertionError(wrong)
assert client.models.retrieve(MODEL).id == MODEL
