"""A draft that a test adds in one file and one registration, chosen by its name from the command line."""
import os
import subprocess
import unittest

from support import TempDirCase, bytes_model, main, run_json

PROGRAM = os.environ.get("CANOPY_TOY_DRAFT_PROGRAM", "")


@unittest.skipUnless(PROGRAM, "CANOPY_TOY_DRAFT_PROGRAM names no program")
class ToyDraft(TempDirCase):
    def test_it_is_chosen_by_name_planned_and_writes_the_models_text(self):
        tiny = bytes_model(self.dir / "tiny")
        words = ["generate", "-m", tiny, "-p", "one two one two one two", "-n", 32]
        plain, drafted = run_json(*words), run_json(*words, "-md", "look-back", "--spec", "chain", "--tree-size", 5, program=PROGRAM)
        self.assertEqual(drafted["tokens"], plain["tokens"])
        self.assertEqual(drafted["plan"]["model_free_draft"], "look-back")
        self.assertEqual(drafted["plan"]["ledger"]["draft look-back: what it might find"], 1 << 17)
        self.assertEqual(drafted["plan"]["ledger"]["draft look-back: a buffer"], 1 << 16)

    def test_the_program_without_it_takes_the_name_for_a_path(self):
        tiny = bytes_model(self.dir / "tiny")
        refused = subprocess.run([os.environ["CANOPY"], "generate", "-m", tiny, "-p", "a", "-md", "look-back"],
                                 capture_output=True, text=True)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("look-back", refused.stderr)


if __name__ == "__main__":
    main()
