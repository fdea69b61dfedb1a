"""A page: a comparison and its texts go in, one self-contained HTML file comes out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cog.decoding.ranking import SourceKey, choose_hue, get_key
from cog.evaluation.compare import Comparison, Row
from cog.evaluation.records import EvaluatedText, EvaluationResult
from cog.records import CORPUS, Segment

TEMPLATE = "page.html.j2"


@dataclass(frozen=True, slots=True)
class Source:
    """A document that a text copies from, as the page lists it."""

    number: int
    hue: str
    name: str
    url: str
    about: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt with the texts that continue it, each with the label of its evaluation."""

    corpus: str
    id: str
    sides: list[tuple[str, EvaluatedText]]


def write_page(
    comparison: Comparison, results: Sequence[EvaluationResult], *, num_prompts: int
) -> str:
    """Write a comparison as a page that needs nothing beside itself."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
    )
    environment.filters |= {
        "number": format_number,
        "interval": format_interval,
        "references": format_references,
        "sources": list_sources,
        "source": get_key,
    }
    # evaluations that continued the same prompt stand side by side
    prompts: dict[tuple[str, str], Prompt] = {}
    for label, result in zip(comparison.labels, results, strict=True):
        for text in result.seeds[0].texts[:num_prompts] if result.seeds else ():
            key = (result.prompt_corpus, text.prompt_id)
            prompts.setdefault(key, Prompt(*key, [])).sides.append((label, text))
    return environment.get_template(TEMPLATE).render(
        comparison=comparison,
        systems=[(a, b.system) for a, b in zip(comparison.labels, results, strict=True)],
        prompts=[*prompts.values()],
    )


def format_number(value: float) -> str:
    """Write a score: three significant digits, all digits of the whole part."""
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def format_interval(row: Row) -> str:
    """Write what stands beside a score, such as ``[0.88, 0.92] n=200``."""
    interval = f"[{format_number(row.low)}, {format_number(row.high)}] "
    return (interval if row.low < row.high else "") + f"n={row.num_texts:,}"


def format_references(rows: Sequence[Row]) -> str:
    """Write the scores of what really follows: one if all continued the same prompts."""
    found = dict.fromkeys(format_number(row.reference) for row in rows if row.reference is not None)
    return " / ".join(found)


def list_sources(text: EvaluatedText) -> dict[SourceKey, Source]:
    """The documents that a text copies from, by what tells them apart, numbered as they come."""
    found: dict[SourceKey, Source] = {}
    for segment in text.generation.segments:
        if segment.origin == CORPUS and get_key(segment) not in found:
            found[get_key(segment)] = _make_source(segment, number=len(found) + 1)
    return found


def _make_source(segment: Segment, *, number: int) -> Source:
    document_id = "" if segment.document_id == segment.title else segment.document_id
    url = segment.url or ""
    return Source(
        number=number,
        hue=f"--hue: {choose_hue(number)}",
        name=segment.title or segment.document_id or "",
        url=url if url.lower().startswith(("http://", "https://")) else "",
        about=" · ".join(part for part in (document_id, segment.licence) if part),
    )
