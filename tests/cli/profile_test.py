"""The kept profile of the machine that holds: one that the same code measured, whatever the program's version says."""
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from support import CANOPY, REPO, SMOLLM2, TempDirCase, main, run


class SourceHash(TempDirCase):
    def hash_of(self, flags="Release"):
        out = self.dir / "hash.inc"
        sources = sorted(str(f.relative_to(self.dir / "root")) for f in (self.dir / "root").rglob("*.cc"))
        subprocess.run(["cmake", f"-DROOT={self.dir / 'root'}", f"-DSOURCES={';'.join(sources)}", f"-DFLAGS={flags}",
                        f"-DOUT={out}", "-P", REPO / "cmake" / "hash_sources.cmake"], check=True)
        return out.read_text()

    def test_changes_with_any_source_its_name_and_the_flags_and_with_nothing_else(self):
        root = self.dir / "root" / "kernels"
        root.mkdir(parents=True)
        (root / "a.cc").write_text("int a;\n")
        (root / "b.cc").write_text("int b;\n")
        first = self.hash_of()
        self.assertRegex(first, r'^"[0-9a-f]{16}"\n$')
        (root / "notes.md").write_text("none of it")
        self.assertEqual(self.hash_of(), first)
        self.assertNotEqual(self.hash_of("Debug"), first)
        (root / "b.cc").write_text("int b = 1;\n")
        second = self.hash_of()
        self.assertNotEqual(second, first)
        (root / "b.cc").write_text("int b;\n")
        self.assertEqual(self.hash_of(), first)
        (root / "b.cc").rename(root / "c.cc")
        self.assertNotEqual(self.hash_of(), first)


@unittest.skipUnless(SMOLLM2.exists(), "the model is not here; scripts/get_model fetches it")
class KeptProfiles(TempDirCase):
    def plan(self):
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.dir / "cache")}
        result = run("plan", "-m", SMOLLM2, "--memory", "400M", env=environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stderr

    def test_hold_for_the_code_that_measured_them(self):
        self.assertIn("measuring", self.plan())
        kept, = (self.dir / "cache" / "canopy").glob("hardware-*.json")
        profile = json.loads(kept.read_text())
        kept.write_text(json.dumps(dict(profile, version="another")))
        self.assertNotIn("measuring", self.plan())
        for other in (dict(profile, code="0123456789abcdef"), {k: v for k, v in profile.items() if k != "code"}):
            kept.write_text(json.dumps(other))
            self.assertIn("measured with other code", self.plan())
            self.assertEqual(json.loads(kept.read_text())["code"], profile["code"])

    def measuring(self):
        """A run that measures, which takes seconds, with a line for each step."""
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(self.dir / "cache")}
        words = [CANOPY, "plan", "-m", SMOLLM2, "-md", SMOLLM2, "--memory", "800M", "--progress"]
        return subprocess.Popen([*map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=self.environment)

    def goes_on(self):
        """The log of a run after one that was cut."""
        run = self.measuring()
        log = run.communicate()[1]
        self.assertEqual(run.returncode, 0, log)
        self.assertIn("note: the measurement was cut before: it goes on from there", log)
        self.assertIn("measured, and kept in", log)
        files = [file.name for file in (self.dir / "cache" / "canopy").iterdir()]
        self.assertEqual([name[:8] + name[-5:] for name in files], ["hardware.json"])
        return log

    def test_ctrl_c_cuts_a_measurement_which_the_next_run_goes_on_with(self):
        cut = self.measuring()
        before = ""
        for line in cut.stderr:
            before += line
            if "a sweep of 16 tokens" in line:
                break
        self.assertRegex(line, r"^measuring: a sweep of 16 tokens, \d+\.\d s$")
        cut.send_signal(signal.SIGINT)
        log = cut.communicate()[1]
        self.assertEqual(cut.returncode, 130, log)
        self.assertLess(log.count("measuring: "), 4, log)  # steps that began before the signal came
        self.assertIn("note: the measurement was cut: the next run goes on from there", log)
        # One token is timed again only in a later round, which two tokens are timed before.
        rounds = (before + log + self.goes_on()).split("a sweep of 1 token,")
        self.assertIn("a sweep of 2 tokens,", rounds[1])

    def test_a_killed_run_s_measurement_goes_on_as_well(self):
        killed = self.measuring()
        while not list((self.dir / "cache").glob("canopy/*.cut")):
            self.assertIsNone(killed.poll(), "it ended before it kept anything")
            time.sleep(0.01)
        killed.kill()
        killed.communicate()
        self.goes_on()


if __name__ == "__main__":
    main()
