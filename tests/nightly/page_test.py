"""The page of canopy serve in a browser: a conversation, the machine next to it, by the keyboard, wide and narrow."""
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
from browser import BROWSER, Browser
from serving import SMOLLM2, Server, main

# As large as a model whose layers travel, where somebody has made one; else the tree shows and the link rests.
LARGE = SMOLLM2.parent / "SmolLM2-1G"
SCREENSHOTS = pathlib.Path(os.environ["CANOPY_BUILD"]) / "page"
QUESTION = "Tell me a story about a river."
ANSWER = "(document.querySelector('#turns li:last-child.assistant .body')?.innerText ?? '')"
META = "document.querySelector('#turns li:last-child .meta')?.innerText ?? ''"
RUNNING = "!document.getElementById('stop').hidden"
# Text that stands out too little from its background, by the rule of WCAG 2: 4.5 to 1.
FAINT = """(() => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const [r, g, b, a = 1] = parts(getComputedStyle(node).backgroundColor);
      if (a === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const node of document.querySelectorAll("body *")) {
    if (["SCRIPT", "STYLE"].includes(node.tagName) || !node.checkVisibility()) continue;
    if (![...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim())) continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(parts(node.namespaceURI.endsWith("svg") ? style.fill : style.color)), light(behind(node))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) faint.push([node.outerHTML.slice(0, 80), contrast]);
  }
  return faint;
})()"""
# What is wider than the window, but does not scroll by itself.
BEYOND = """[...document.querySelectorAll("body *")].filter(node => node.checkVisibility() && !node.closest(".unseen, .skip, pre") &&
  node.getBoundingClientRect().right > innerWidth + 1).map(node => node.outerHTML.slice(0, 80))"""
NAMELESS = """[...document.querySelectorAll("button, input, textarea, select, [role=img], [role=group], [role=meter], [role=progressbar]")]
  .filter(node => node.checkVisibility() && !node.ariaLabel && !node.getAttribute("aria-labelledby") && !node.labels?.length && !node.textContent.trim())
  .map(node => node.outerHTML.slice(0, 80))"""


@unittest.skipUnless(BROWSER, "no browser: needs chromium")
@unittest.skipUnless(SMOLLM2.exists(), "needs the small model; scripts/get_model fetches it")
class Page(unittest.TestCase):
    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        SCREENSHOTS.mkdir(exist_ok=True)
        model = (LARGE, "--memory", "800M", "--resident", "none") if LARGE.exists() else (SMOLLM2,)
        cls.server = Server(*model, "-md", SMOLLM2, "--spec", "sequoia", "--tree", "4,3,2,1,1", "-c", 512, *cls.FLAGS)
        cls.addClassCleanup(cls.server.__exit__)
        cls.url = f"http://127.0.0.1:{cls.server.port}/"

    def setUp(self):
        self.browser = Browser()
        self.addCleanup(self.browser.close)
        self.browser.window(1280, 800)
        self.browser.open(self.url)

    def send(self, text):
        self.browser.ask("document.getElementById('message').focus()")
        self.browser.type(text)
        self.browser.press("Enter", "\r")

    def set(self, **settings):
        for name, value in settings.items():
            self.browser.ask(f"(() => {{ const field = document.getElementById('{name}'); field.value = '{value}';"
                             "field.dispatchEvent(new Event('input')); })()")

    def answered(self):
        self.browser.until(f"!({RUNNING})", 300)
        return self.browser.ask(ANSWER)


class Chat(Page):
    def test_an_answer_streams_and_says_what_it_took(self):
        self.set(max_tokens=24, temperature=0)
        self.send(QUESTION)
        part = self.browser.until(f"({RUNNING}) && {ANSWER}", 300)
        whole = self.answered()
        self.assertTrue(whole.startswith(part.rstrip()))
        self.assertRegex(self.browser.ask(META), r"^24 tokens in .*; \d+ sweeps?, [\d.]+ tokens each; .*limit on tokens\.$")
        self.assertIn(whole[:20], self.browser.ask("document.getElementById('told').innerText"))
        self.assertEqual(self.browser.errors, [])

    def test_regenerate_answers_the_same_question_again(self):
        self.set(max_tokens=12, temperature=0)
        self.send(QUESTION)
        first = self.answered()
        self.browser.ask("document.getElementById('again').click()")
        self.assertEqual(self.answered(), first)
        self.assertEqual(self.browser.ask("document.querySelectorAll('#turns li').length"), 2)
        self.set(temperature=1.5, seed=7)
        self.browser.ask("document.getElementById('again').click()")
        self.assertNotEqual(self.answered(), first)
        self.assertEqual(self.browser.errors, [])

    def test_escape_stops_an_answer_and_keeps_what_there_is(self):
        self.send(QUESTION)
        self.browser.until(f"({RUNNING}) && {ANSWER}", 300)
        self.browser.press("Escape")
        self.answered()
        self.assertEqual(self.browser.ask(META), "Stopped.")
        self.assertEqual(self.server.until_texts(0, 30), 0)
        self.assertEqual(self.browser.errors, [])

    def test_the_conversation_survives_a_reload_and_ends_with_a_new_one(self):
        self.set(max_tokens=8, temperature=0)
        self.browser.ask("document.getElementById('message').focus()")
        self.browser.type("One line,")
        self.browser.press("Enter", shift=True, text="\r")
        self.browser.type("another.")
        self.browser.press("Enter", "\r")
        answer = self.answered()
        self.browser.reload()
        self.assertEqual(self.browser.ask("document.querySelector('.user .body').innerText"), "One line,\nanother.")
        self.assertEqual(self.browser.ask(ANSWER), answer)
        self.assertEqual(self.browser.ask("document.getElementById('max_tokens').value"), "8")
        self.browser.ask("document.getElementById('new').click()")
        self.assertEqual(self.browser.ask("document.querySelectorAll('#turns li').length"), 0)
        self.browser.ask("document.getElementById('back').click()")
        self.assertEqual(self.browser.ask(ANSWER), answer)
        self.assertEqual(self.browser.errors, [])

    def test_markup_in_a_text_is_shown_and_code_stands_in_a_block(self):
        self.browser.ask("""(() => {
          turns = [{ role: "user", content: "<img src=x onerror=alert(1)>" },
                   { role: "assistant", content: "Here:\\n```python\\nprint('<b>')\\n```\\nand `so`." }];
          showAll();
        })()""")
        self.assertEqual(self.browser.ask("document.querySelector('.user .body').innerText"), "<img src=x onerror=alert(1)>")
        self.assertEqual(self.browser.ask("[...document.querySelectorAll('.assistant .body > *')].map(e => [e.tagName, e.textContent])"),
                         [["P", "Here:"], ["PRE", "print('<b>')"], ["P", "and `so`."]])
        self.assertEqual(self.browser.ask("document.querySelectorAll('#turns img, #turns b').length"), 0)

    def test_what_the_server_refuses_is_said_as_text(self):
        self.send("word " * 600)
        self.browser.until("document.querySelector('.assistant .error')?.innerText.includes('tokens')")
        self.assertEqual(self.browser.ask("document.getElementById('again').innerText"), "Try again")


class Machine(Page):
    def test_the_machine_is_shown_in_words_and_units(self):
        self.set(max_tokens=24, temperature=0)
        self.send(QUESTION)
        self.browser.until("document.getElementById('status').innerText === 'sweeping'", 60)
        self.browser.until("/^Sweep [\\d,]+: (layer \\d+ of \\d+|the head)/.test(document.getElementById('layer-text').innerText)", 300)
        self.browser.until("document.querySelectorAll('#layers .past, #layers .now').length > 0", 60)
        self.answered()
        self.browser.until("document.getElementById('status').innerText === 'idle'")
        shown = self.browser.ask("document.getElementById('machine').innerText")
        for words in (r"At rest after [\d,]+ sweeps", r"\d m?s\n", r"on average since the server began", r"blocks in use, \d+ tokens each",
                      r"guessed in \d+ levels?;", r"planned of a budget of [\d.]+ [MG]iB", r"at most \d+ texts can", "draft weights"):
            self.assertRegex(shown, words)
        if LARGE.exists():
            self.assertRegex(shown, r"Read from disk\n+[\d.]+ [MG]B/s")
            self.assertRegex(shown, r"Link busy\n+\d+ %")
        self.assertEqual(self.browser.errors, [])

    def test_the_keyboard_walks_down_the_tree(self):
        self.set(max_tokens=12, temperature=0)
        self.send(QUESTION)
        self.answered()
        self.browser.until("document.querySelector('#tree svg') && document.getElementById('status').innerText === 'idle'")
        self.browser.ask("document.getElementById('tree').focus()")
        self.assertIn("the text's last token", self.browser.ask("document.getElementById('looked').innerText"))
        self.browser.press("ArrowRight")
        self.assertRegex(self.browser.ask("document.getElementById('looked').innerText"), "(accepted|refused) at level 1, ")

    def test_wide_and_narrow_light_and_dark_nothing_is_cut_or_faint(self):
        self.set(max_tokens=40, temperature=0)
        self.send("Write a short Python function that adds two numbers.")
        self.browser.until(f"({RUNNING}) && {ANSWER}", 300)
        self.browser.screenshot(SCREENSHOTS / "running-1280.png")
        self.answered()
        for width, height in ((1280, 800), (390, 844)):
            for scheme in ("light", "dark"):
                with self.subTest(width=width, scheme=scheme):
                    self.browser.window(width, height, scheme)
                    self.browser.ask("new Promise(done => setTimeout(done, 600))")
                    self.assertEqual(self.browser.ask(BEYOND), [])
                    self.assertLessEqual(self.browser.ask("document.documentElement.scrollWidth"), width)
                    self.assertEqual(self.browser.ask(FAINT), [])
                    self.assertEqual(self.browser.ask(NAMELESS), [])
                    reach = self.browser.ask("(r => [r.top, r.bottom])(document.getElementById('message').getBoundingClientRect())")
                    self.assertTrue(0 < reach[0] < reach[1] <= height, reach)
                    self.browser.screenshot(SCREENSHOTS / f"{scheme}-{width}.png")
                    self.browser.ask("document.querySelector('#tree-title').scrollIntoView()")
                    self.browser.screenshot(SCREENSHOTS / f"{scheme}-{width}-tree.png")
                    self.browser.ask("document.querySelector('#memory-title').scrollIntoView()")
                    self.browser.screenshot(SCREENSHOTS / f"{scheme}-{width}-memory.png")
                    self.browser.ask("scrollTo(0, 0)")
        self.assertEqual(self.browser.errors, [])

    def test_the_tab_key_comes_by_everything_in_order(self):
        seen = []
        self.browser.ask("document.activeElement.blur()")
        for _ in range(7):
            self.browser.press("Tab")
            seen.append(self.browser.ask("document.activeElement.id || document.activeElement.className || document.activeElement.tagName"))
        self.assertEqual(seen[:5], ["skip", "new", "SUMMARY", "message", "send"], seen)


class Keys(Page):
    FLAGS = ("--api-key", "open sesame")

    def test_the_page_asks_for_a_key_and_keeps_it_for_the_tab(self):
        self.browser.until("!document.getElementById('key-form').hidden")
        self.browser.ask("document.getElementById('key').focus()")
        self.browser.type("open sesame")
        self.browser.press("Enter", "\r")
        self.browser.until("document.getElementById('status').innerText === 'idle'")
        self.browser.reload()
        self.browser.until("document.getElementById('status').innerText === 'idle'")
        self.assertTrue(self.browser.ask("document.getElementById('key-form').hidden"))


del Page  # which has no test of its own
if __name__ == "__main__":
    main()
