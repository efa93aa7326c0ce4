"""anthropic: speaks /v1/messages alone, which the server has not; it ends with 404 and does not wait."""
import anthropic
from asked import KEY, MODEL, URL, USER

client = anthropic.Anthropic(base_url=URL, api_key=KEY)
try:
    client.messages.create(model=MODEL, max_tokens=4, messages=USER)
except anthropic.NotFoundError as error:
    assert "/v1/messages" in str(error), error
else:
    raise AssertionError("there is an answer: say so in docs/serve.md")
