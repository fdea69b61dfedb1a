"""``cog paper segment``: a corpus goes in; its documents are cut into phrases of others."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cog.cli.main import open_project
from cog.cli.output import echo_result, format_lines
from cog.progress import show_progress

if TYPE_CHECKING:
    from cog.training.segmentation.job import Segmentation


@click.command("segment")
@click.option("--corpus", "corpus_id", metavar="ID", required=True, help="The corpus.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.pass_context
def command(ctx: click.Context, corpus_id: str, as_json: bool) -> None:
    """Count the phrases of each document that other documents hold: what a corpus can give.

    Forward maximum matching on words: the longest phrase that can be copied from another document,
    else the next word. The report lies in corpora/ID/segments.json, too.
    """
    from cog.corpus.documents import DocumentStore
    from cog.training.segmentation.job import segment_corpus

    paths, params = open_project(ctx, corpus_id)
    total = DocumentStore(paths.corpus(corpus_id).documents).num_documents
    with show_progress(f"segment {corpus_id}", total=total, unit="documents") as progress:
        done = segment_corpus(paths, corpus_id, params=params, progress=progress)
    content = asdict(done.report) | {
        "copied_share": done.report.copied_share,
        "seconds": done.seconds,
        "words_per_second": done.words_per_second,
    }
    echo_result(content, _format(done), as_json=as_json)


def _format(done: "Segmentation") -> str:
    report = done.report
    lines = {
        "corpus": report.corpus,
        "documents": str(report.num_documents),
        "words": f"{report.num_words}, {report.copied_share:.1%} copied",
        "phrases": str(report.num_phrases),
        "took": f"{done.seconds['total']:.1f} s ({done.words_per_second:.0f} words a second)",
    }
    text = format_lines(lines)
    if not report.num_phrases:
        reason = "there is one document" if report.num_documents == 1 else "no phrase is repeated"
        return f"{text}\nnothing can be copied: {reason}"
    most = max(report.lengths.values())
    bars = (
        f"{length:>2} words {number:>9} {'█' * round(40 * number / most)}"
        for length, number in report.lengths.items()
    )
    return "\n".join([text, *(bar.rstrip() for bar in bars)])
