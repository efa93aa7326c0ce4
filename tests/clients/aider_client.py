"""aider: a message about a file, and a reply that is streamed; whole, too."""
import os
import pathlib
import subprocess
import sys
import tempfile

from asked import MODEL, URL

with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "hello.py").write_text('print("hello")\n')
    for way in "--stream", "--no-stream":
        done = subprocess.run(
            [sys.executable, "-m", "aider", "--model", f"openai/{MODEL}", way, "--edit-format", "ask", "--no-git", "--no-pretty",
             "--no-show-model-warnings", "--no-check-update", "--no-show-release-notes", "--analytics-disable", "--yes-always",
             "--map-tokens", "0", "--message", "What does this file print?", "hello.py"],
            cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200,
            env={**os.environ, "HOME": folder, "OPENAI_API_BASE": f"{URL}/v1", "OPENAI_API_KEY": "none"})
        output = done.stdout + done.stderr
        assert done.returncode == 0 and "Tokens: " in output and "litellm." not in output, output
        assert " 0 received" not in output, output
