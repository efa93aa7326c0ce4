"""instructor: parses into a model of pydantic, by a forced call and by a schema."""
import instructor
import openai
from asked import KEY, MODEL, URL, Cat, check

for mode in instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA:
    client = instructor.from_openai(openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY), mode=mode)
    check(client.chat.completions.create(model=MODEL, response_model=Cat, max_tokens=200, temperature=0, max_retries=0,
                                         messages=[{"role": "user", "content": "Describe a cat."}]))
