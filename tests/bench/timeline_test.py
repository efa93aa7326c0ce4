"""bench/timeline draws the steps that were asked for, each lane with what it did in them."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

TIMELINE = pathlib.Path(__file__).resolve().parents[2] / "bench" / "timeline"
LINK, MODEL, DRAFT, STEPS = range(4)


def span(lane, name, begin, end):
    return {"ph": "X", "name": name, "pid": 1, "tid": lane, "ts": begin, "dur": end - begin}


class TimelineTest(unittest.TestCase):
    def draw(self, *flags, steps=3):
        events = [{"ph": "M", "name": "thread_name", "pid": 1, "tid": 0, "args": {"name": "link"}}]
        for i in range(steps):
            at = 1000 * i
            events += [span(STEPS, f"step: {i + 1} tokens", at, at + 1000), span(LINK, "layer", at, at + 900),
                       span(DRAFT, "layer", at, at + 100), span(MODEL, "layer", at + 100, at + 800)]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(events, file)
            file.flush()
            return subprocess.run([sys.executable, TIMELINE, file.name, *flags], capture_output=True, text=True)

    def test_draws_the_steps_that_were_asked_for(self):
        picture = xml.fromstring(self.draw("--first", "-2", "--steps", "2").stdout)
        words = " ".join(picture.itertext())
        self.assertNotIn("1 tokens", words)
        self.assertIn("2 tokens", words)
        self.assertIn("3 tokens", words)
        lanes = [path.get("d") for path in picture.iter("{http://www.w3.org/2000/svg}path") if path.get("fill")]
        self.assertEqual([lane.count("M") for lane in lanes], [2, 2, 2])
        ends = [[float(x) for x in re.findall(r"[MH]([\d.]+)", lane)] for lane in lanes]
        for link, model, draft in zip(*[iter(lane[::3]) for lane in ends]):
            self.assertEqual(link, draft)
            self.assertLess(draft, model)

    def test_says_that_a_trace_has_no_such_steps(self):
        result = self.draw("--first", "3")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no such steps", result.stderr)


if __name__ == "__main__":
    unittest.main()
