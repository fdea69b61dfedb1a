"""A page: a comparison and its texts go in, one self-contained HTML file comes out."""

from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import urlsplit

from cog.evaluation.comparison import Comparison, Pair, Row
from cog.evaluation.records import EvaluatedText, EvaluationResult
from cog.records import CORPUS, PROMPT, Segment

GOLDEN_ANGLE = 137.508  # degrees from the hue of one source to the next
STYLE = """
:root { --ink: #1f2933; --soft: #66717d; --line: #d9dee3; --page: #ffffff; --better: #1c6b3c;
  --vivid: 75%; --light: 86%; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --soft: #98a4b0; --line: #38424c;
  --page: #14191e; --better: #7fd6a2; --vivid: 40%; --light: 28%; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem; max-width: 90rem; background: var(--page);
  color: var(--ink); font: 15px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
.soft, small { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.better { color: var(--better); font-weight: 600; }
details > summary { cursor: pointer; }
.prompt { border-top: 1px solid var(--line); padding: 1rem 0; }
.prefix { font-weight: 600; margin: .2rem 0 .8rem; }
.sides { display: grid; gap: 1.2rem; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); }
.side h3 { font-size: .9rem; margin: 0 0 .3rem; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
.copy { position: relative; border-radius: .2rem; cursor: help; box-decoration-break: clone;
  -webkit-box-decoration-break: clone; }
.copy sup { font-size: .65em; line-height: 0; color: var(--soft); }
.copy .from { display: none; position: absolute; left: 0; top: 1.6em; z-index: 2; width: 19rem;
  padding: .5rem .7rem; background: var(--page); border: 1px solid var(--line);
  border-radius: .4rem; box-shadow: 0 4px 14px rgb(0 0 0 / 20%); font-size: .8rem;
  line-height: 1.4; white-space: normal; }
.copy:hover .from, .copy:focus .from { display: block; }
.own { border-bottom: 1px dotted var(--soft); }
.source { background: hsl(var(--hue) var(--vivid) var(--light)); }
ol.sources { font-size: .8rem; color: var(--soft); padding-left: 1.5rem; margin: .6rem 0 0; }
ol.sources b { color: var(--ink); font-weight: 500; padding: 0 .25em; border-radius: .2rem; }
a { color: inherit; }
"""


def write_page(
    comparison: Comparison, results: Sequence[EvaluationResult], *, num_prompts: int
) -> str:
    """Write a comparison as a page that needs nothing beside itself.

    :param comparison: The comparison.
    :param results: Its evaluations, in the order of its labels.
    :param num_prompts: Number of prompts whose texts are shown, at most.
    :returns: HTML.
    """
    title = " · ".join(comparison.labels)
    protocol = comparison.protocol
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">Protocol {escape(protocol.name)} <code>{comparison.digest[:16]}</code>: '
        f"prompts of {protocol.prompt_tokens} tokens, {protocol.generation_tokens} generated. "
        f"Prompts: {escape(comparison.prompts)}.</p>",
        "<h2>Scores</h2>",
        _write_scores(comparison),
        *_write_pairs(comparison.pairs),
        "<details><summary>The whole protocol</summary>",
        _write_protocol(comparison),
        "</details>",
        "<h2>Texts</h2>",
        '<p class="soft">Coloured text is copied; colour and number tell the source. Hover, or '
        "tap, for the citation.</p>",
        *_write_texts(comparison.labels, results, num_prompts=num_prompts),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def format_number(value: float) -> str:
    """Write a score with as many digits as it has use for.

    :param value: The score.
    :returns: Three significant digits, all digits of the whole part.
    """
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def format_score(row: Row) -> str:
    """Write what stands beside a score: its interval, if there is one, and its number of texts.

    :param row: The score.
    :returns: Such as ``[0.88, 0.92] n=200``.
    """
    interval = f"[{format_number(row.low)}, {format_number(row.high)}] "
    return (interval if row.low < row.high else "") + f"n={row.num_texts:,}"


def write_continuation(text: EvaluatedText) -> str:
    """Write one continuation, its copies coloured by source, and the list of its sources.

    :param text: The text.
    :returns: HTML.
    """
    numbers: dict[str, int] = {}
    shown: dict[str, Segment] = {}
    parts = []
    for segment in text.generation.segments:
        if segment.origin != CORPUS:
            parts.append(_write_uncited(segment))
            continue
        document_id = segment.document_id or ""
        number = numbers.setdefault(document_id, len(numbers) + 1)
        shown.setdefault(document_id, segment)
        parts.append(_write_copy(segment, number))
    listed = [_write_source(shown[document_id], numbers[document_id]) for document_id in numbers]
    sources = ""
    if listed:
        count = f"{len(listed)} source{'s' if len(listed) > 1 else ''}"
        ordered = f'<ol class="sources">{"".join(listed)}</ol>'
        sources = f'<details class="soft"><summary>{count}</summary>{ordered}</details>'
    return f'<p class="text">{"".join(parts)}</p>{sources}'


def _write_uncited(segment: Segment) -> str:
    if segment.origin != PROMPT:
        return escape(segment.text)
    citation = (
        f"copied from the prompt, characters {segment.char_start}–{segment.char_end}<br>"  # noqa: RUF001
        f"probability {segment.probability:.3g}"
    )
    return (
        f'<span class="copy own" tabindex="0">{escape(segment.text)}'
        f'<span class="from">{citation}</span></span>'
    )


def _write_copy(segment: Segment, number: int) -> str:
    citation = (
        f"<strong>{escape(segment.title or segment.document_id or '')}</strong><br>"
        f"{escape(segment.document_id or '')}, characters "
        f"{segment.char_start}–{segment.char_end}<br>"  # noqa: RUF001
        f"{escape(segment.licence or '')} · probability {segment.probability:.3g}"
    )
    return (
        f'<span class="copy source" style="{_hue(number)}" tabindex="0">{escape(segment.text)}'
        f"<sup>{number}</sup>"
        f'<span class="from">{citation}</span></span>'
    )


def _write_source(segment: Segment, number: int) -> str:
    name = escape(segment.title or segment.document_id or "")
    if _is_web_address(segment.url):
        name = f'<a href="{escape(segment.url or "")}" rel="noreferrer">{name}</a>'
    document_id = "" if segment.document_id == segment.title else segment.document_id
    known = escape(" · ".join(part for part in (document_id, segment.licence) if part))
    return f'<li><b class="source" style="{_hue(number)}">{name}</b> {known}</li>'


def _hue(number: int) -> str:
    return f"--hue: {(210 + (number - 1) * GOLDEN_ANGLE) % 360:.0f}"


def _is_web_address(url: str | None) -> bool:
    return bool(url) and urlsplit(url).scheme in ("http", "https")


def _write_scores(comparison: Comparison) -> str:
    head = "".join(f"<th>{escape(label)}</th>" for label in comparison.labels)
    lines = []
    for name in comparison.metrics:
        cells = "".join(_write_score(row) for row in comparison.get_rows(name))
        lines.append(f"<tr><th>{escape(name)}</th>{cells}</tr>")
    return (
        f'<div class="wide"><table><thead><tr><th>score</th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
        '<p class="soft">In brackets: 95 % interval. Green: better than every other by more than '
        "chance.</p>"
    )


def _write_score(row: Row) -> str:
    mark = ' class="better"' if row.is_better else ""
    note = f"<br><small>{escape(row.note)}</small>" if row.note else ""
    return f"<td{mark}>{format_number(row.mean)} <small>{format_score(row)}</small>{note}</td>"


def _write_pairs(pairs: Sequence[Pair]) -> Iterable[str]:
    lines = []
    for pair in pairs:
        found = pair.difference
        if found is None:
            continue
        interval = f"[{format_number(found.low)}, {format_number(found.high)}]"
        cells = [
            escape(pair.metric),
            f"{escape(pair.first)} − {escape(pair.second)}",  # noqa: RUF001
            f"{format_number(found.mean)} <small>{interval}</small>",
            f"{found.p_value:.2g}",
            "" if found.win_rate is None else f"{100 * found.win_rate:.0f} %",
            found.method,
            escape(pair.better or ""),
        ]
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    if not lines:
        return
    yield "<h2>Differences</h2>"
    head = "<th>score</th><th>pair</th><th>difference</th><th>p</th><th>wins</th><th>how</th>"
    yield (
        f'<div class="wide"><table><thead><tr>{head}<th>better</th></tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _write_protocol(comparison: Comparison) -> str:
    lines = [
        f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
        for name, value in comparison.rules.items()
    ]
    return f"<table>{''.join(lines)}</table>"


def _write_texts(
    labels: Sequence[str], results: Sequence[EvaluationResult], *, num_prompts: int
) -> Iterable[str]:
    # evaluations that continued the same prompt stand side by side
    chosen: dict[tuple[str, str], list[tuple[str, EvaluatedText]]] = {}
    for label, result in zip(labels, results, strict=True):
        for text in result.seeds[0].texts[:num_prompts]:
            key = (result.prompt_corpus, text.prompt_id)
            chosen.setdefault(key, []).append((label, text))
    for (prompt_corpus, prompt_id), sides in chosen.items():
        first = sides[0][1]
        columns = [_write_side(label, write_continuation(text)) for label, text in sides]
        columns.append(
            _write_side("what really follows", f'<p class="text">{escape(first.reference)}</p>')
        )
        yield (
            f'<section class="prompt"><small>{escape(prompt_corpus)} · {escape(prompt_id)}</small>'
            f'<p class="prefix text">{escape(first.generation.prefix)} …</p>'
            f'<div class="sides">{"".join(columns)}</div></section>'
        )


def _write_side(label: str, content: str) -> str:
    return f'<div class="side"><h3>{escape(label)}</h3>{content}</div>'
