"""The package for Python writes, scores and refuses as the command does; its texts share sweeps, and Ctrl-C ends them."""
import json
import logging
import math
import os
import pathlib
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from support import PATIENCE, REPO, bytes_model, main, run, run_json

import canopy

PROMPTS = ["Once upon a time", "The capital of France is", "a"]
TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}{{ ending }}a:"
DOCUMENT = (REPO / "docs" / "python.md").read_text()
LONG = 1900  # tokens: seconds
# A child opens the model that its first argument names, says so, and goes on with what is put after this.
CHILD = """
import sys, canopy
llm = canopy.LLM(sys.argv[1], device="cpu", threads=1, context=2048)
print("open", flush=True)
"""


def seconds_used(pid):
    """The process's own time so far, which does not depend on what else the machine does."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def seconds_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class PackageCase(unittest.TestCase):
    """All cases share a model of random weights."""

    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="canopy_test_"))
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        cls.model = cls.dir / "BIG"
        for name in ("BIG", "SMALL"):
            (bytes_model(cls.dir / name) / "chat_template.jinja").write_text(TEMPLATE)
        cls.llm = cls.open(context=2048)
        cls.addClassCleanup(cls.llm.close)

    @classmethod
    def open(cls, model=None, **options):
        return canopy.LLM(model or cls.model, **{"device": "cpu", "threads": 1, **options})

    def command(self, *words, prompt=PROMPTS[0]):
        return run_json("generate", "-m", self.model, "-p", prompt, "--device", "cpu", *words)


class Texts(PackageCase):
    def test_they_are_the_commands_alone_and_together(self):
        together = self.llm.generate(PROMPTS, max_tokens=32)
        for prompt, text in zip(PROMPTS, together):
            expected = self.command("-n", 32, prompt=prompt)
            self.assertEqual((text.text, text.tokens, text.finish_reason),
                             tuple(expected[key] for key in ("text", "tokens", "finish_reason")))
            self.assertEqual(self.llm.generate(prompt, max_tokens=32).tokens, text.tokens)
            self.assertEqual(self.llm.generate(self.llm.tokenize(prompt), max_tokens=32).text, text.text)
        self.assertGreater(len(together[0].tokens), 8)
        self.assertEqual(self.llm.generate([]), [])
        expected = self.command("-n", 16, "--temp", 1, "--seed", 7)
        self.assertEqual(self.llm.generate(PROMPTS[0], max_tokens=16, temperature=1, seed=7).text, expected["text"])

    def test_a_draft_changes_nothing_of_them(self):
        with self.open(draft=self.dir / "SMALL", method="chain", tree_nodes=4, context=256) as drafted:
            self.assertEqual(drafted.plan()["tree_nodes"], 4)
            text = drafted.generate(PROMPTS[0], max_tokens=32)
        self.assertEqual(text.tokens, self.llm.generate(PROMPTS[0], max_tokens=32).tokens)
        self.assertLess(text.sweeps, len(text.tokens))

    def test_pieces_make_the_text(self):
        whole = self.llm.generate(PROMPTS[0], max_tokens=32)
        stream = self.llm.stream(PROMPTS[0], max_tokens=32)
        pieces = list(stream)
        self.assertGreater(len(pieces), 8)
        self.assertEqual("".join(pieces), whole.text)
        self.assertEqual((stream.result.tokens, str(stream.result)), (whole.tokens, whole.text))
        self.assertEqual(list(stream), [])

    def test_one_that_is_asked_for_later_does_not_wait_for_those_that_run(self):
        with self.llm.stream(PROMPTS[0], max_tokens=LONG, ignore_end=True) as first:
            next(first)
            self.assertEqual(len(self.llm.generate(PROMPTS[1], max_tokens=2).tokens), 2)
        with self.assertRaisesRegex(canopy.Error, "cancelled"):  # it had not ended
            first.result

    def test_threads_share_a_model_and_have_their_own_texts(self):
        expected = {prompt: self.llm.generate(prompt, max_tokens=24).text for prompt in PROMPTS}
        texts = {}

        def write(prompt):
            texts[prompt] = self.llm.generate(prompt, max_tokens=24).text
        threads = [threading.Thread(target=write, args=(prompt,)) for prompt in PROMPTS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(texts, expected)

    def test_the_interpreter_goes_on_meanwhile(self):
        thread = threading.Thread(target=self.llm.generate, args=(PROMPTS[0],), kwargs={"max_tokens": LONG, "ignore_end": True})
        thread.start()
        longest, last = 0.0, time.monotonic()
        while thread.is_alive():
            time.sleep(0.001)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
        self.assertLess(longest, 0.5 * PATIENCE)

    def test_keywords_reach_the_text(self):
        plain = self.llm.generate(PROMPTS[0], max_tokens=32, logprobs=2)
        for one in plain.logprobs:
            self.assertEqual((one.token, one.logprob), one.top[0])
            self.assertEqual(len(one.top), 2)
        word = plain.text[5:7]
        self.assertEqual(self.llm.generate(PROMPTS[0], max_tokens=32, stop=word).text, plain.text[:plain.text.index(word)])
        self.assertEqual(self.llm.generate(PROMPTS[0], max_tokens=3, logit_bias={7: 1e5}).tokens, [7, 7, 7])
        self.assertNotEqual(self.llm.generate(PROMPTS[0], max_tokens=4, logit_bias={plain.tokens[0]: -math.inf}).tokens[0],
                            plain.tokens[0])
        sampled = [self.llm.generate(PROMPTS[0], max_tokens=16, temperature=1, seed=seed).tokens for seed in (1, 2)]
        self.assertNotEqual(*sampled)
        self.assertEqual(self.llm.generate(PROMPTS[0], max_tokens=16, temperature=1, seed=1, top_k=1).tokens, plain.tokens[:16])
        self.assertEqual(pickle.loads(pickle.dumps(plain)), plain)

    def test_tokens_become_text_again(self):
        self.assertEqual(self.llm.detokenize(self.llm.tokenize("ab, cd")), "ab, cd")

    def test_a_conversation_goes_through_the_models_template(self):
        messages = [{"role": "user", "content": "hi"}]
        self.assertEqual(self.llm.detokenize(self.llm.chat_prompt(messages, variables={"ending": "!"})), "u:hi\n!a:")
        expected = self.llm.generate("u:hi\na:", max_tokens=8)
        self.assertEqual(self.llm.chat(messages, max_tokens=8).tokens, expected.tokens)
        self.assertEqual("".join(self.llm.stream_chat(messages, max_tokens=8)), expected.text)


class Scores(PackageCase):
    def test_they_are_those_of_the_texts_own_tokens_alone_and_together(self):
        text = self.llm.generate(PROMPTS[0], max_tokens=16, logprobs=1)
        prompt = self.llm.tokenize(PROMPTS[0])
        score = self.llm.score(prompt + text.tokens, top=1)
        self.assertEqual(score.logprobs[len(prompt) - 1:], text.logprobs)
        self.assertEqual(len(score.logprobs), len(score.tokens) - 1)
        self.assertEqual(score.total, math.fsum(one.logprob for one in score.logprobs))
        together = self.llm.score(PROMPTS)
        self.assertEqual(together, [self.llm.score(prompt) for prompt in PROMPTS])
        self.assertEqual(together[0].tokens, prompt)
        self.assertEqual(together[0].logprobs[0].top, [])
        with self.assertRaisesRegex(ValueError, "no perplexity"):
            together[2].perplexity

    def test_a_perplexity_is_the_commands(self):
        text = self.llm.generate(PROMPTS[0], max_tokens=64, ignore_end=True).text
        (self.dir / "text").write_text(text)
        command = run_json("perplexity", "-m", self.model, "-f", self.dir / "text")
        self.assertAlmostEqual(self.llm.score(text).perplexity, command["perplexity"], delta=1e-9 * command["perplexity"])


class Refusals(PackageCase):
    def test_errors_have_the_commands_words(self):
        told = run("generate", "-m", "nowhere", "-p", "a").stderr.removeprefix("canopy generate: ").strip()
        with self.assertRaises(canopy.Error) as caught:
            self.open("nowhere")
        self.assertEqual(re.sub(r"\n  while ", ", while ", str(caught.exception)), told)

    def test_a_budget_that_is_too_small_is_refused_with_the_ledger(self):
        with self.assertRaises(canopy.BudgetError) as caught:
            self.open(memory="2M")
        self.assertRegex(str(caught.exception), r"budget of 2\.0 MiB is too small for .*BIG: at least [\d.]+ MiB are needed")
        self.assertRegex(str(caught.exception), r"\n  [\d.]+ MiB  .*process")
        self.assertIsInstance(caught.exception, canopy.Error)
        for memory, why in (("4", "did you mean 4G"), ("4X", "'4X' is not a size")):
            with self.assertRaisesRegex(canopy.Error, why):
                self.open(memory=memory)

    def test_arguments_are_refused_by_their_names(self):
        for refused, keywords in ((canopy.Error, {"top_p": 2}), (TypeError, {"top_p": "x"}), (TypeError, {"n_predict": 3}),
                                  (canopy.Error, {"max_tokens": 0})):
            with self.assertRaisesRegex(refused, "max_new_tokens" if "max_tokens" in keywords else next(iter(keywords))):
                self.llm.generate(PROMPTS[0], **keywords)
        with self.assertRaisesRegex(canopy.Error, "does not fit the context of 2048"):
            self.llm.generate([PROMPTS[0], "a" * 2048])
        with self.assertRaisesRegex(canopy.Error, "outside the vocabulary"):
            self.llm.generate([1_000_000])
        with self.assertRaisesRegex(canopy.Error, "messages"):
            self.llm.chat([7])
        with self.assertRaisesRegex(TypeError, "threads"):
            self.open(threads="many")

    def test_a_closed_model_is_refused_and_ends_its_texts(self):
        with self.open(context=2048) as llm:
            stream = llm.stream(PROMPTS[0], max_tokens=LONG, ignore_end=True)
            next(stream)
        with self.assertRaisesRegex(canopy.Error, "its model closed"):
            list(stream)
        for ask in (llm.plan, lambda: llm.generate("a"), lambda: llm.tokenize("a"), lambda: llm.score("a")):
            with self.assertRaisesRegex(canopy.Error, "the model is closed"):
                ask()
        llm.close()


class Plans(PackageCase):
    def test_a_plan_adds_up_and_counts_what_the_interpreter_holds(self):
        plan = self.llm.plan()
        self.assertEqual(sum(plan["ledger"].values()), plan["planned_bytes"])
        self.assertEqual((plan["context"], plan["sequences"], plan["read_bytes"]), (2048, 4, 0))
        self.assertLessEqual(plan["planned_bytes"], plan["memory_bytes"])
        held = [int(self.child("print(llm.plan()['planned_bytes'])", before)[-1]) for before in ("", "held = b'x' * (300 << 20)\n")]
        self.assertGreater(held[1] - held[0], 290 << 20)

    def test_sizes_are_taken_and_weights_stream(self):
        expected = self.llm.generate(PROMPTS[0], max_tokens=16).tokens
        with self.open(memory="512M", resident=0, context=64) as llm:
            plan = llm.plan()
            self.assertEqual((plan["memory_bytes"], plan["resident_bytes"]), (512 << 20, 0))
            self.assertGreater(plan["read_bytes"], 0)
            self.assertEqual(llm.generate(PROMPTS[0], max_tokens=16).tokens, expected)

    def test_what_is_done_while_it_opens_is_shown_and_may_be_refused(self):
        seen = []
        with self.open(context=64, progress=lambda *progress: seen.append(progress)):
            self.assertTrue(seen)
            self.assertTrue(all(isinstance(what, str) and done <= all_ for what, done, all_ in seen), seen)

        def refuse(*_):
            raise KeyError("not now")
        with self.assertRaisesRegex(KeyError, "not now"):
            self.open(context=64, progress=refuse)

    def test_notes_are_warnings(self):
        with self.open(context=2048, sequences=1) as llm:
            memory = llm.plan()["planned_bytes"] + (8 << 20)
        with self.assertLogs("canopy", logging.WARNING) as logs, self.open(memory=memory, context=2048, sequences=64) as llm:
            self.assertIn("texts that share a sweep", " ".join(llm.notes))
            self.assertEqual([record.getMessage() for record in logs.records], llm.notes)

    def child(self, program, before=""):
        done = subprocess.run([sys.executable, "-c", before + CHILD + program, str(self.model)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()


class CtrlC(PackageCase):
    def interrupted(self, program, after="open"):
        """The output of a child that gets SIGINT once it has written that line, what comes after; and its exit code."""
        before = seconds_of_children()
        with subprocess.Popen([sys.executable, "-c", program, str(self.model)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as child:
            while (line := child.stdout.readline().strip()) != after:
                self.assertTrue(line, "it ended before")
            time.sleep(0.3)
            used = seconds_used(child.pid)
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=60 * PATIENCE)
            self.assertLess(seconds_of_children() - before - used, 1 * PATIENCE, err)
        return out, child.returncode, err

    def test_it_ends_a_program_within_a_second(self):
        for ask in ("llm.generate('a', max_tokens=1900, ignore_end=True)",
                    "llm.generate(['a', 'b', 'c', 'd', 'e', 'f'], max_tokens=1900, ignore_end=True)",
                    "list(llm.stream('a', max_tokens=1900, ignore_end=True))",
                    "llm.score(['a' * 2000] * 9)"):
            with self.subTest(ask):
                _, code, error = self.interrupted(CHILD + f"while True: {ask}")
                self.assertEqual(code, -signal.SIGINT, error)
                self.assertIn("KeyboardInterrupt", error)

    def test_the_model_can_be_asked_again(self):
        out, code, error = self.interrupted(CHILD + """
try:
    while True: llm.generate("a", max_tokens=1900, ignore_end=True)
except KeyboardInterrupt:
    print(llm.generate("Once upon a time", max_tokens=8).tokens)
""")
        self.assertEqual(code, 0, error)
        self.assertEqual(json.loads(out), self.llm.generate(PROMPTS[0], max_tokens=8).tokens)

    def test_it_ends_what_comes_before_the_first_text(self):
        _, code, error = self.interrupted("""
import os, sys, canopy
os.environ["XDG_CACHE_HOME"] = sys.argv[1] + "/cache"  # nothing was measured yet
canopy.LLM(sys.argv[1], device="cpu", progress=lambda what, *_: print(what.split()[0], flush=True))
""", after="measuring")
        self.assertEqual(code, -signal.SIGINT, error)


class Document(PackageCase):
    def test_its_examples_run(self):
        examples = re.findall(r"<!-- example: (\w+) -->\n```python\n(.*?)^```$", DOCUMENT, re.S | re.M)
        self.assertEqual(len(examples), DOCUMENT.count("```python"))
        for name, example in examples:
            with self.subTest(name):
                done = subprocess.run([sys.executable, "-c", example], cwd=self.dir, capture_output=True, text=True, timeout=300)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout)

    def test_the_package_is_typed_and_says_what_it_takes(self):
        folder = pathlib.Path(canopy.__file__).parent
        self.assertTrue((folder / "py.typed").exists())
        self.assertIn("class Request:", (folder / "_canopy.pyi").read_text())
        for name in canopy.__all__:
            self.assertTrue(getattr(canopy, name).__doc__, name)
        for name, member in vars(canopy.LLM).items():
            self.assertTrue(name.startswith("_") or member.__doc__, name)
        for keyword in canopy.Sampling.__annotations__:
            self.assertRegex(canopy.Sampling.__doc__, rf"\b{keyword}\b")


if __name__ == "__main__":
    main()
