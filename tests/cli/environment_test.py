"""Flags of canopy serve that stand in the environment."""
import os
import unittest

from support import main, run


class Environment(unittest.TestCase):
    def serve(self, *words, command="serve", **variables):
        names = {f"CANOPY_ARG_{name}": value for name, value in variables.items()}
        return run(command, *words, env=os.environ | names)

    def test_a_flag_is_taken_and_a_note_says_so(self):
        done = self.serve(MODEL="nowhere", CTX_SIZE="64")
        self.assertEqual(done.returncode, 1)
        self.assertIn("nowhere", done.stderr)
        for flag in "--model", "--ctx-size":
            self.assertIn(f"note: {flag} is taken from the environment", done.stderr)

    def test_the_words_count_before_it(self):
        done = self.serve("-m", "elsewhere", MODEL="nowhere")
        self.assertIn("elsewhere", done.stderr)
        self.assertNotIn("nowhere", done.stderr)
        self.assertNotIn("note: --model", done.stderr)

    def test_what_is_wrong_there_is_a_mistake_of_usage(self):
        for variables, what in (({"PORT": "x"}, "--port"), ({"PROT": "1"}, "CANOPY_ARG_PROT in the environment: unknown flag --prot"),
                                ({"HELP": "1"}, "CANOPY_ARG_HELP")):
            done = self.serve("-m", "nowhere", **variables)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(what, done.stderr)
        self.assertIn("--port", self.serve("-m", "nowhere", PROT="1").stderr)

    def test_other_commands_do_not_look(self):
        done = self.serve("-m", "elsewhere", "-p", "a", command="generate", MODEL="nowhere", PROT="1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("elsewhere", done.stderr)


if __name__ == "__main__":
    main()
