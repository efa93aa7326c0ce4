"""bench/report in a browser, as wide as a phone and as a desk: nothing but what scrolls goes beyond the page."""
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import unittest

REPO = pathlib.Path(__file__).resolve().parents[2]
RESULTS = REPO / "docs/results/compare/2026-11-22-xeon-avx512.jsonl"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
SKIPPED = 77
# In a frame, as a browser's own window is never as narrow as a phone.
ASK = """<body><iframe srcdoc="%s" width="%d" height="1000"></iframe><script>
onload = () => {
  const page = document.querySelector("iframe").contentDocument, root = page.documentElement;
  const tables = [...page.querySelectorAll(".wide:has(table)")];
  const beyond = [...page.querySelectorAll("body *")].filter(e => !e.closest(".wide") && e.getBoundingClientRect().right > root.clientWidth + 1);
  document.body.innerText = "ANSWER" + JSON.stringify({width: root.scrollWidth, window: root.clientWidth, beyond: beyond.map(e => e.outerHTML.slice(0, 80)),
    scrolling: tables.filter(t => t.scrollWidth > t.clientWidth).length, tables: tables.length,
    hints: [...page.querySelectorAll(".hint")].filter(h => h.offsetHeight > 0).length}) + "END";
};
</script>"""


def ask(folder, page, width):
    """Lists what of the page goes beyond a window of that width, and counts the tables that scroll and say so."""
    asking = folder / "ask.html"
    asking.write_text(ASK % (page.replace("&", "&amp;").replace('"', "&quot;"), width))
    words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={folder}/profile",
             "--virtual-time-budget=10000", "--dump-dom", asking.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    return json.loads(re.search("ANSWER(.*?)END", done.stdout)[1].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))


class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        subprocess.run([sys.executable, REPO / "bench/report", RESULTS, "-o", cls.folder], check=True, stdout=subprocess.DEVNULL)
        cls.page = (cls.folder / "index.html").read_text()

    def test_on_a_phone_tables_scroll_and_say_so_and_nothing_else_is_wider(self):
        seen = ask(self.folder, self.page, 390)
        self.assertEqual((seen["width"], seen["beyond"]), (seen["window"], []))
        self.assertEqual(seen["hints"], seen["tables"])
        self.assertGreater(seen["scrolling"], 0)

    def test_on_a_desk_no_table_needs_to_scroll(self):
        seen = ask(self.folder, self.page, 1280)
        self.assertEqual((seen["width"], seen["beyond"]), (seen["window"], []))
        self.assertEqual((seen["scrolling"], seen["hints"]), (0, 0))

    def test_every_figure_says_how_much_memory_and_every_mark_has_its_footnote(self):
        captions = re.findall("<figcaption>(.*?)</figcaption>", self.page, re.S)
        self.assertGreater(len(captions), 8)
        for caption in captions:
            self.assertRegex(caption, "measured peak at most|no limit on it")
        for section in self.page.split("<h2>")[1:]:
            self.assertEqual(" *</td>" in section, "* Loading needs more" in section, section[:60])
        self.assertIn("takes 0.65 s per token, the least of all", self.page)
        self.assertIn("2 runs are left out", self.page)
        self.assertNotIn("nan", re.sub("<[^>]*>", "", self.page).split())

    def test_a_perfect_plain_reader_reads_the_file_at_the_disks_rate_once_a_token(self):
        runs = [json.loads(line) for line in RESULTS.read_text().splitlines()]
        times = [r["model_bytes"] / r["disk_bytes_per_second"] / r["seconds_per_token"] for r in runs
                 if (r["group"], r.get("system"), r.get("temperature")) == ("headline", "canopy", 0) and not r["commit"].endswith("-dirty")]
        table = (self.folder / "table.md").read_text()
        row = next(line for line in table.split("headline")[1].splitlines() if "a perfect plain reader" in line)
        self.assertIn(f"{statistics.median(times):.1f}", row.split("|")[3])
        self.assertIn(f"a perfect plain reader would take {statistics.median(times):.2g} times as long", self.page)


if __name__ == "__main__":
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        BROWSER = None
    if BROWSER is None:
        print("needs chromium and matplotlib: scripts/test nightly installs them")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
