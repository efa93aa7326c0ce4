"""The report of `canopy bench decode --json` as a section of bench/report's page: exact methods above a line, the others below."""
import html

from page import html_table, markdown

TITLE = "Methods of the papers beside each other"
NEEDED = ("target", "draft", "sampling", "prompts", "new_tokens", "rows")
TERMS = {
    "exact": "the texts are the target's own, or drawn from its distribution; a method marked ~ changes them",
    "tokens per step": "tokens that one pass over the target's weights gives, with their 95 % interval over the texts",
    "target rows, draft rows": "positions that the target, and the draft, compute for each token of the text",
    "drafted share": "share of the text's tokens that were the draft's guesses",
    "read": "bytes that came from the disk",
    "ms per step": "growing the trees, the target's arithmetic, and the rest: waiting for weights, verification, texts",
    "perplexity": "of the method's texts under the target's own distribution, nothing warped; at a temperature above 0 it varies with "
                  "the texts that were drawn",
    "equal": "share of tokens that are plain decoding's in the same place, at temperature 0",
    "ROUGE-1, -2, -L": "F1 of words, of pairs of words, and of the longest common subsequence, against the prompts' references",
}
EXACT, INEXACT = "#1b7837", "#b35806"
# Head, key, form, scale; "always" is there where no row has a value, too.
COLUMNS = (("nodes", "tree_size", "{:.0f}", 1), ("tokens per step", "tokens_per_step", "{:.2f}", 1),
           ("target rows per token", "rows_per_token", "{:.1f}", 1), ("draft rows per token", "draft_rows_per_token", "{:.1f}", 1),
           ("drafted share", "drafted_share", "{:.3f}", 1), ("read per token, GB", "bytes_per_token", "{:.2f}", 1e-9),
           ("s per token", "seconds_per_token", "{:.3g}", 1), ("ms per step", "step_parts", "{}", 1),
           ("J per token", "joules_per_token", "{:.1f}", 1),
           ("perplexity", "perplexity", "{:.2f}", 1), ("equal", "equal_to_plain", "{:.3f}", 1),
           ("ROUGE-1", "rouge_1", "{:.3f}", 1), ("ROUGE-2", "rouge_2", "{:.3f}", 1), ("ROUGE-L", "rouge_l", "{:.3f}", 1))
ALWAYS = "joules_per_token"  # where it is missing, a note says why


def is_methods(result):
    return isinstance(result, dict) and all(result.get(key) for key in NEEDED)


def exact_first(rows):
    """The exact ones and the others, each with the most tokens per step first."""
    order = sorted(rows, key=lambda r: -r["tokens_per_step"])
    return [r for r in order if r["exact"]], [r for r in order if not r["exact"]]


def step_parts(row):
    """The milliseconds of a step in three parts; None where a result was kept without its times."""
    if row["draft_seconds"] is None:
        return None
    draft, target = row["draft_seconds"], row["compute_seconds"]
    return " + ".join(f"{1e3 * part:.0f}" for part in (draft, target, row["seconds_per_step"] - draft - target))


def label(row):
    return ("" if row["exact"] else "~") + row["method"]


def table_of(rows):
    """A head, a line for each row, and a line of one cell before those that are not exact."""
    rows = [row | {"step_parts": step_parts(row)} for row in rows]
    columns = [c for c in COLUMNS if c[1] == ALWAYS or any(r.get(c[1]) is not None for r in rows)]
    yield ("", *(head for head, *_ in columns))

    def cell(row, key, form, scale):
        if row.get(key) is None:
            return "-"
        within = row["tokens_per_step_half_width"] if key == "tokens_per_step" else 0
        return form.format(row[key] * scale) + (f" (± {within:.2f})" if within else "")

    for part, line in zip(exact_first(rows), (None, "not exact:")):
        if part and line:
            yield (line,)
        yield from ((label(r), *(cell(r, *column[1:]) for column in columns)) for r in part)


def draw(page, result, name):
    exact, inexact = exact_first(result["rows"])
    rows = exact + inexact
    caption = ("Left: tokens per step, with 95 % intervals over the texts; 1 is plain decoding. Right: what they took, in rows of the "
               f"target and of the draft for each token. {conditions(result)}")
    if inexact:
        caption += " Below the line and hollow: not exact."
    with page.plot(name, caption, (8.5, 1.2 + 0.27 * len(rows)), columns=2) as (gain, cost):
        for part, mark, shade, first in ((exact, "o", EXACT, 0), (inexact, "D", INEXACT, len(exact))):
            y = [first + i for i in range(len(part))]
            of = lambda key: [r[key] for r in part]
            face = shade if part is exact else "white"
            gain.errorbar(of("tokens_per_step"), y, xerr=of("tokens_per_step_half_width"), fmt=mark, color=shade, markerfacecolor=face,
                          markersize=5, linewidth=1)
            cost.plot(of("rows_per_token"), y, "s", color="#2166ac", markerfacecolor="#2166ac" if part is exact else "white",
                      label="target" if part is exact else None)
            cost.plot(of("draft_rows_per_token"), y, "^", color="#b2182b", markerfacecolor="#b2182b" if part is exact else "white",
                      label="draft" if part is exact else None)
        gain.axvline(1, color="#999", linewidth=1, linestyle=":")
        for axes in (gain, cost) if exact and inexact else ():
            axes.axhline(len(exact) - 0.5, color="#222", linewidth=1)
        gain.set_yticks(range(len(rows)), [f"{label(r)}, {r['tree_size']}" for r in rows], fontsize=8)
        gain.invert_yaxis()
        gain.set(xlabel="tokens per step", xlim=(0, None))
        cost.set(xlabel="rows per token", xlim=(0, None))
        cost.legend(frameon=False, fontsize=8, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))


def conditions(result):
    references = f", {result['references']} with a reference" if result.get("references") else ""
    return (f"{result['target']} with {result['draft']} as its draft, {result['sampling']}, {result['prompts']} prompts{references}, "
            f"{result['new_tokens']} tokens each.")


def notes(result):
    """Yields what each method that is not exact changes, and why there is no energy."""
    rows = result["rows"]
    for changed in dict.fromkeys((label(r), r["changes"]) for r in rows if not r["exact"]):
        yield f"{changed[0]} is not exact: {changed[1]}."
    if all(r["joules_per_token"] is None for r in rows):
        yield "No energy: " + "; ".join(result["energy_missing"]) + "."


def add_methods(page, results, heading):
    """A section under headings of that level, with a part for each result; their tables as Markdown."""
    rouge = any("rouge_1" in r for result in results for r in result["rows"])
    words = "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in TERMS.items() if rouge or "ROUGE" not in k)
    page.add(f"<h{heading}>{TITLE}</h{heading}><p>Every method of speculation on the same prompts. Each table has the most tokens per "
             "step first, and exact methods above those that change the text. Seconds are of these runs, on this machine beside what else "
             "it did; tokens, rows and shares are of the method.</p>"
             f"<details open><summary>What the words mean</summary><dl>{words}</dl></details>")
    tables = []
    for i, result in enumerate(results):
        page.add(f"<h{heading + 1}>{html.escape(result['sampling'].capitalize())}</h{heading + 1}>")
        draw(page, result, f"methods-{i + 1}")
        rows = list(table_of(result["rows"]))
        page.add(html_table(rows) + "".join(f'<p class="note">{html.escape(note)}</p>' for note in notes(result)))
        tables.append(f"{TITLE}: {conditions(result)}\n\n{markdown(rows)}\n")
    return tables
