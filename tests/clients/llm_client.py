"""llm: chats, streamed and whole, with a schema and a tool offered."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from asked import MODEL, URL

with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "extra-openai-models.yaml").write_text(
        f"- model_id: {MODEL}\n  model_name: {MODEL}\n  api_base: {URL}/v1\n  supports_schema: true\n  supports_tools: true\n")

    def llm(*words):
        return subprocess.run([sys.executable, "-m", "llm", *words, "-m", MODEL, "--key", "none", "-o", "temperature", "0"], check=True,
                              capture_output=True, text=True, env={**os.environ, "LLM_USER_PATH": folder}).stdout

    streamed = llm("prompt", "What is the weather in Paris?", "-o", "max_tokens", "16")
    assert streamed.strip() and streamed == llm("prompt", "--no-stream", "What is the weather in Paris?", "-o", "max_tokens", "16")
    cat = json.loads(llm("prompt", "Describe a cat.", "-o", "max_tokens", "300", "--schema", "name, age int"))
    assert isinstance(cat["age"], int) and isinstance(cat["name"], str), cat
    assert llm("prompt", "Say hello.", "-o", "max_tokens", "30", "--functions", "def add(a: int, b: int) -> int:\n    return a + b") is not None
