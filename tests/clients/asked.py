"""Parts that the scripts for clients have in common: where the server is, and what they ask it."""
import os

import pydantic

URL = os.environ["CANOPY_URL"]  # http://127.0.0.1:8080
MODEL, KEY = "tiny", "none"
USER = [{"role": "user", "content": "What is the weather in Paris?"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather of a city", "parameters": PARAMETERS}}


class Cat(pydantic.BaseModel):
    """A cat."""
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=30)
    color: str | None = pydantic.Field(default=None, max_length=12)


def check(cat):
    assert isinstance(cat, Cat) and 0 <= cat.age <= 30 and len(cat.name) <= 12, cat
