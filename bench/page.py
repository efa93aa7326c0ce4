"""One HTML page that needs no other file: its look, its tables, its plots."""
import html
import io

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 74rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2.5rem; } .verdict { font-size: 1.15rem; }
.wide { overflow-x: auto; scrollbar-width: thin; background:
  linear-gradient(to right, white 40%, transparent) 0 0 / 3rem 100% no-repeat local,
  linear-gradient(to left, white 40%, transparent) 100% 0 / 3rem 100% no-repeat local,
  linear-gradient(to right, #0004, transparent) 0 0 / 1rem 100% no-repeat scroll,
  linear-gradient(to left, #0004, transparent) 100% 0 / 1rem 100% no-repeat scroll; }
.wide::-webkit-scrollbar { height: .6rem; } .wide::-webkit-scrollbar-thumb { background: #aaa; border-radius: .3rem; }
.hint { display: none; color: #555; font-size: .85rem; margin: 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem; } small { color: #555; white-space: nowrap; }
th, td { padding: .25rem .5rem; text-align: right; vertical-align: top; border-bottom: 1px solid #ddd; min-width: 4rem; }
th:first-child, td:first-child { text-align: left; min-width: 8rem; } th { border-bottom: 2px solid #888; vertical-align: bottom; }
tr.line th { text-align: left; font-weight: normal; font-style: italic; border-top: 2px solid #222; border-bottom: 1px solid #ddd; }
table.words td { text-align: left; min-width: 10rem; } dl { font-size: .9rem; } dt { font-weight: 600; display: inline; } dt::after { content: ": "; }
dd { margin: 0; display: inline; } dd::after { content: ""; display: block; }
figure { margin: 1rem 0; } figure svg { min-width: 30rem; max-width: 100%; height: auto; } figcaption, .note { color: #555; font-size: .85rem; }
@media (max-width: 48rem) { .hint { display: block; } }
@media print { body { max-width: none; font-size: 10pt; } h2 { break-after: avoid; } figure, table { break-inside: avoid; } .wide { overflow: visible; background: none; } table { font-size: 7.5pt; } }
"""


def markdown(rows):
    rows = list(rows)
    lines = ["| " + " | ".join([*map(str, row), *[""] * (len(rows[0]) - len(row))]) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * lines[0].count(" | ") + "---|", *lines[1:]])


def html_table(rows, kind="numbers"):
    """The first row is the head. A row of a single cell is a line across the table."""
    def cell(text, tag, first):
        text = html.escape(str(text))
        if kind == "numbers" and " (" in text and tag == "td" and not first:  # a range goes below its middle
            text = text.replace(" (", "<br><small>(", 1) + "</small>"
        return f"<{tag}>{text}</{tag}>"

    head, *body = rows

    def line(cells, tag):
        if len(cells) == 1 < len(head):
            return f'<tr class="line"><th colspan="{len(head)}">{html.escape(cells[0])}</th></tr>'
        return "<tr>" + "".join(cell(text, tag, i == 0) for i, text in enumerate(cells)) + "</tr>"

    return ('<p class="hint">The table goes on to the right: scroll it sideways.</p>'
            f'<div class="wide" tabindex="0" role="region" aria-label="table"><table class="{kind}"><thead>' + line(head, "th") +
            "</thead><tbody>" + "".join(line(row, "td") for row in body) + "</tbody></table></div>")


class Page:
    def __init__(self, out):
        self.out, self.parts = out, []

    def add(self, text):
        self.parts.append(text)

    def plot(self, name, caption, size=(6, 3.3), columns=1):
        """A figure's axes, or those of its columns, which share y; the figure goes in when the block ends."""
        page = self

        class Block:
            def __enter__(self):
                self.figure, axes = pyplot.subplots(1, columns, figsize=size, sharey=True)
                for one in self.figure.axes:
                    one.spines[["top", "right"]].set_visible(False)
                return axes

            def __exit__(self, kind, *_):
                if kind is None:
                    self.figure.tight_layout()
                    self.figure.savefig(page.out / f"{name}.png", dpi=150)
                    svg = io.StringIO()
                    self.figure.savefig(svg, format="svg", metadata={"Date": None})
                    inner = svg.getvalue()
                    page.add(f"<figure><div class='wide' tabindex='0' role='img' aria-label='{html.escape(name)}'>"
                             f"{inner[inner.index('<svg'):]}</div><figcaption>{html.escape(caption)}</figcaption></figure>")
                pyplot.close(self.figure)

        return Block()

    def write(self):
        head = ('<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Canopy measured</title>'
                f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>')
        (self.out / "index.html").write_text(head + "\n".join(self.parts) + "</body></html>\n")
