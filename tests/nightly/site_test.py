"""scripts/site builds the documents, the commands' reference among them, without a broken link."""
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from support import REPO, main


@unittest.skipUnless(shutil.which("mkdocs"), "needs mkdocs")
class Site(unittest.TestCase):
    def test_every_page_is_there(self):
        result = subprocess.run([REPO / "scripts" / "site", os.environ["CANOPY"]], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        html = REPO / "build" / "site" / "html"
        for page in (REPO / "docs").rglob("*.md"):
            self.assertTrue((html / page.relative_to(REPO / "docs")).with_suffix(".html").exists(), page)
        self.assertIn("--model-draft PATH", (html / "commands.html").read_text())


if __name__ == "__main__":
    main()
