"""Flags that edit logits before tokens are drawn: penalties, bias, min-p, typical-p."""
import unittest

from support import SMOLLM2, TempDirCase, bytes_model, main, run, run_json

PROMPT = "Once upon a time, there was a"


class Edits(TempDirCase):
    def test_a_biased_token_is_forced_and_a_banned_one_is_never_taken(self):
        model = bytes_model(self.dir / "model")
        words = ["generate", "-m", model, "--tokens", "5,6,7", "-n", 6, "--ignore-eos"]
        own = run_json(*words)["tokens"]
        self.assertEqual(run_json(*words, "--logit-bias", "11+1000")["tokens"], [11] * 6)
        bans = [word for token in set(own) for word in ("--logit-bias", f"{token}-inf")]
        self.assertFalse(set(own) & set(run_json(*words, *bans)["tokens"]))
        # Each token that was forced once costs more than the bias gives: the next one has its turn.
        both = ["--logit-bias", "11+1000", "--logit-bias", "12+990", "--presence-penalty", 500]
        self.assertEqual(run_json(*words, *both)["tokens"][:2], [11, 12])
        self.assertEqual(run_json(*words, *both, "-md", model)["tokens"][:2], [11, 12])

    def test_min_p_and_typical_p_of_almost_nothing_leave_one_token(self):
        model = bytes_model(self.dir / "model")
        words = ["generate", "-m", model, "--tokens", "5,6,7", "-n", 8, "--ignore-eos", "--temp", 1.5]
        greedy = run_json(*words[:-2])["tokens"]
        self.assertEqual(run_json(*words, "--min-p", 1)["tokens"], greedy)
        self.assertEqual(run_json(*words, "--typical", "0.000001")["tokens"],
                         run_json(*words, "--typical", "0.000001", "--seed", 7)["tokens"])

    def test_says_which_flag_is_out_of_range(self):
        model = bytes_model(self.dir / "model")
        words = ["generate", "-m", model, "--tokens", "5"]
        for flag, value in (("--repeat-penalty", "0"), ("--repeat-penalty", "nan"), ("--presence-penalty", "2e6"),
                            ("--frequency-penalty", "-2e6"), ("--min-p", "1.5"), ("--min-p", "-1"), ("--typical", "0"),
                            ("--typical", "2"), ("--temp", "1e9"), ("--logit-bias", "5"), ("--logit-bias", "x+1"),
                            ("--logit-bias", "5+"), ("--logit-bias", "5+-1"), ("--logit-bias", "5+inf"),
                            ("--logit-bias", "5+2000000"), ("--logit-bias", "99999+1")):
            result = run(*words, flag, value)
            self.assertEqual(result.returncode, 2, (flag, value, result.stderr))
            self.assertIn(flag, result.stderr)
        for command in (["plan", "-m", model], ["bench", "-m", model], ["calibrate", "acceptance", "-m", model, "-md", model]):
            self.assertEqual(run(*command, "--repeat-penalty", 2).returncode, 2, command)  # they could not honour it


@unittest.skipUnless(SMOLLM2.exists(), "the model is not here; scripts/get_model fetches it")
class OfARealModel(TempDirCase):
    def test_a_draft_does_not_change_penalised_text(self):
        words = ["generate", "-m", SMOLLM2, "-p", PROMPT, "-n", 48, "--temp", 0, "--repeat-penalty", 1.3]
        plain = run_json(*words, "--spec", "none")
        drafted = run_json(*words, "-md", SMOLLM2, "--spec", "sequoia", "--tree", "2,1,1,1")
        self.assertEqual(drafted["tokens"], plain["tokens"])
        # The draft is the model itself, and is penalised like it: nothing is refused.
        self.assertEqual(set(drafted["step_tokens"]), {5})
        self.assertNotEqual(plain["tokens"], run_json(*words[:-2], "--spec", "none")["tokens"])


if __name__ == "__main__":
    main()
