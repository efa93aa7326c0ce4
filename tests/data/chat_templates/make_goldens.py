#!/usr/bin/env python3
"""Writes what `transformers` makes of conversations by published chat templates.

    pip install transformers==5.23.0 jinja2==3.1.6
    make_goldens.py [DIRECTORY]

Reads templates/*.jinja and model/tokenizer_config.json of DIRECTORY, which is this folder unless another is given, and
writes conversations.json (the same for all) and goldens.json: for each template a list of what apply_chat_template()
gave for each conversation, {"text"} or {"error"}, Jinja's own message. README.md says where the templates are from.
"""
import datetime
import json
import pathlib
import sys

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent
NOW = datetime.datetime(2026, 3, 7, 9, 5, 2)

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place, \"now\" or <later>.",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "description": "A town, such as Köln"},
        "days": {"type": "integer", "enum": [1, 3, 7], "default": 1},
        "options": {"type": "object", "properties": {"units": {"type": "array", "items": {"type": "string"}}}}}}}}
CLOCK = {"type": "function", "function": {
    "name": "get_time", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}
SYSTEM = {"role": "system", "content": "You are terse.\nAnswer in one line."}
HELLO = {"role": "user", "content": "Hello, Wörld 🌲!"}
CALL = {"role": "assistant", "content": "", "tool_calls": [{
    "id": "abcdef123", "type": "function",
    "function": {"name": "get_weather", "arguments": {"place": "Köln", "days": 3, "options": {"units": ["C", "m/s"]}}}}]}
RESULT = {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": "{\"sky\": \"clear\", \"t\": 21.5}"}

CONVERSATIONS = [
    {"name": "a user's turn", "messages": [HELLO]},
    {"name": "a system prompt", "messages": [SYSTEM, HELLO], "add_generation_prompt": False},
    {"name": "several turns", "messages": [
        SYSTEM, HELLO, {"role": "assistant", "content": " Hello. "}, {"role": "user", "content": "  And\nthen?\n"}]},
    {"name": "tools", "messages": [SYSTEM, {"role": "user", "content": "How is the weather in Köln?"}],
     "tools": [WEATHER, CLOCK]},
    {"name": "a tool's result", "messages": [
        {"role": "user", "content": "How is the weather in Köln?"}, CALL, RESULT], "tools": [WEATHER]},
    {"name": "after a tool's result", "messages": [
        {"role": "user", "content": "How is the weather in Köln?"}, CALL, RESULT,
        {"role": "assistant", "content": "Clear, 21.5 °C."}, {"role": "user", "content": "Thanks."}], "tools": [WEATHER]},
    {"name": "thoughts", "messages": [
        HELLO, {"role": "assistant", "reasoning_content": "They greet me.\nI greet back.", "content": "Hello."},
        {"role": "user", "content": "And then?"},
        {"role": "assistant", "content": "<think>\nI wait.\n</think>\n\nNothing."}, {"role": "user", "content": "Why?"}]},
    {"name": "without thoughts", "messages": [SYSTEM, HELLO], "variables": {"enable_thinking": False, "thinking": False}},
    {"name": "parts", "messages": [
        {"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "text", "text": " this?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "A tree."}]},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "And this?"}]}]},
    {"name": "an answer first", "messages": [{"role": "assistant", "content": "Hello."}, HELLO, HELLO]},
]


class FixedNow(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def expected(tokenizer, conversation):
    try:
        return {"text": tokenizer.apply_chat_template(
            conversation["messages"], tools=conversation.get("tools"), tokenize=False,
            add_generation_prompt=conversation.get("add_generation_prompt", True), **conversation.get("variables", {}))}
    except Exception as e:
        return {"error": str(e)}


def lines(entries):
    return ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)


def main():
    directory = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    chat_template_utils.datetime = FixedNow
    config = json.loads((directory / "model/tokenizer_config.json").read_text())
    specials = {key: value["content"] if isinstance(value, dict) else value for key, value in config.items() if value}
    goldens = []
    for file in sorted((directory / "templates").glob("*.jinja")):
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **specials)
        tokenizer.chat_template = file.read_bytes().decode()
        goldens.append((file.stem, [expected(tokenizer, conversation) for conversation in CONVERSATIONS]))
    (directory / "conversations.json").write_text("[\n" + lines(CONVERSATIONS) + "\n]\n")
    body = ",\n".join(f"{json.dumps(name)}: [\n{lines(results)}\n]" for name, results in goldens)
    (directory / "goldens.json").write_text("{\n" + body + "\n}\n")


if __name__ == "__main__":
    main()
