"""Clients from PyPI against a server on loopback: the scripts of tests/clients, as scripts/test nightly installs what they need."""
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
from serving import NEEDS_REAL_MODEL, PATIENCE, REPO, ServerCase, main  # noqa: E402

FOLDER = REPO / "tests" / "clients"
SCRIPTS = sorted(FOLDER.glob("*_client.py"))
ENVIRONMENT = os.environ.get("CANOPY_CLIENTS", os.path.join(os.environ["CANOPY_BUILD"], "client_env"))


def python_of(script):
    """The interpreter of a script: a client whose packages get along with no other has an environment of its own."""
    name = "-" + script.stem.removesuffix("_client")
    own = name if (FOLDER / f"requirements{name}.txt").exists() else ""
    return pathlib.Path(ENVIRONMENT + own, "bin", "python")


@NEEDS_REAL_MODEL
@unittest.skipUnless(os.path.exists(ENVIRONMENT), f"needs the clients in {ENVIRONMENT}: CONTRIBUTING.md says how to install them")
class Clients(ServerCase):
    REAL = True
    FLAGS = ("-c", 2048, "--chat-template-file", REPO / "tests/data/chat_templates/templates/Qwen-Qwen2.5-7B-Instruct.jinja")

    def test_each_script_ends_well(self):
        for script in SCRIPTS:
            with self.subTest(script.stem):
                done = subprocess.run([python_of(script), script], text=True, capture_output=True, timeout=300 * PATIENCE, env={
                    **os.environ, "CANOPY_URL": f"http://{self.server.host}:{self.server.port}", "OPENAI_API_KEY": "none",
                    "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "*"})
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_scripts_are_in_the_table_of_the_guide(self):
        guide = (REPO / "docs" / "serve.md").read_text()
        for script in SCRIPTS:
            self.assertIn(f"`{script.name}`", guide)


if __name__ == "__main__":
    main()
