"""``cog index``: a corpus id goes in; its index is built, described or verified."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from cog.cli.main import get_project_of, open_project
from cog.cli.options import FiniteRange, device_option, json_option
from cog.cli.output import echo_result, format_lines
from cog.decoding.tuning import load_tuning_state
from cog.index.records import Manifest
from cog.index.versions.manifest import load_manifest
from cog.params import LOCAL
from cog.progress import show_progress

if TYPE_CHECKING:
    from cog.index.plan import IndexPlan


@click.group("index")
def command() -> None:
    """The phrase index of a corpus."""


@command.command("build")
@click.argument("corpus_id", metavar="ID")
@click.option("--force", is_flag=True, help="Build even if the index is up to date.")
@device_option
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    help="Who encodes: this process, or a Ray cluster [default: index.engine].",
)
@click.option(
    "--address",
    default="",
    metavar="HOST:PORT",
    help="Of the Ray cluster, or auto [default: RAY_ADDRESS, else this machine alone].",
)
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as one JSON object.")
@click.pass_context
def build(
    ctx: click.Context,
    corpus_id: str,
    force: bool,
    device: str,
    engine: str | None,
    address: str,
    as_json: bool,
) -> None:
    """Build the index of a corpus beside the old one, then put it in place.

    A corpus that has no documents yet is fetched and prepared first.
    """
    from cog.pipeline import Builder

    paths, params = open_project(ctx, corpus_id)
    if engine is not None:
        params = replace(params, index=replace(params.index, engine=engine))
    if address and params.index.engine == LOCAL:
        raise click.UsageError("--address is that of a Ray cluster: it needs --engine ray")
    builder = Builder(paths, params, show_progress, device=device, address=address)
    builder.prepare_missing(corpus_id)
    report = builder.index(corpus_id, force=force)
    text = f"{'built' if report.is_new else 'up to date'}\n{_format(report.manifest)}"
    echo_result({"built": report.is_new} | _to_json(report.manifest), text, as_json=as_json)


@command.command("plan")
@click.argument("corpus_id", metavar="ID")
@click.option(
    "--words",
    "num_words",
    type=click.IntRange(1),
    help="Words of the whole source, of which a subset takes its part [default: counted].",
)
@click.option(
    "--workers",
    "num_workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Machines, or GPUs, that encode.",
)
@click.option(
    "--rate",
    type=FiniteRange(0, min_open=True),
    help="Words a second of one worker [default: as measured].",
)
@click.option(
    "--price",
    "price_per_hour",
    type=FiniteRange(0),
    default=0.0,
    help="Of an hour of one worker.",
)
@json_option
@click.pass_context
def plan(
    ctx: click.Context,
    corpus_id: str,
    num_words: int | None,
    num_workers: int,
    rate: float | None,
    price_per_hour: float,
    as_json: bool,
) -> None:
    """Say what an index will take, before anything is built.

    In proportion to the largest index of the project; vectors are those of `index.vector_dtype`.
    """
    from cog.index.project import plan_corpus_index

    paths, params = open_project(ctx, corpus_id)
    planned = plan_corpus_index(
        paths,
        corpus_id,
        params=params,
        num_words=num_words,
        num_workers=num_workers,
        rate=rate,
        price_per_hour=price_per_hour,
    )
    echo_result(asdict(planned), _format_plan(planned), as_json=as_json)


def _format_plan(planned: "IndexPlan") -> str:
    parts = ", ".join(
        f"{name.replace('_', ' ')} {_format_bytes(size)}"
        for name, size in planned.bytes_by_part.items()
        if size
    )
    lines = {
        "corpus": f"{planned.corpus}, {planned.num_words:,} words",
        "units": f"{planned.num_units:,} that may be copied, in {planned.num_chunks:,} chunks",
        "disk": f"{_format_bytes(planned.num_bytes)}: {parts}",
        "build": f"{planned.hours:,.1f} hours at {planned.words_per_second:,.0f} words a second",
        "price": f"{planned.price:,.2f}",
        "search": planned.search,
        "memory": f"{_format_bytes(planned.reader_bytes)} while it is open",
        "a prompt": f"reads {_format_bytes(planned.prompt_bytes)}",
        "measured": f"on the index of {planned.measured_on}",
    }
    if not planned.price:
        del lines["price"]
    return format_lines(lines)


def _format_bytes(size: int) -> str:
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB")):
        if size >= 1000**power:
            return f"{size / 1000**power:.1f} {unit}"
    return f"{size / 1000:.1f} kB"


@command.command("info")
@click.argument("corpus_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as one JSON object.")
@click.pass_context
def info(ctx: click.Context, corpus_id: str, as_json: bool) -> None:
    """Print what the index of a corpus states about itself, and what was tuned for it."""
    paths = get_project_of(ctx, corpus_id)
    place = paths.corpus(corpus_id)
    manifest = load_manifest(place)
    tuning = load_tuning_state(place, index=manifest.digest, model=manifest.model)
    text = _format(manifest) + (f"\n{'tuned':<10} {tuning}" if tuning else "")
    content = _to_json(manifest) | {"tuning": tuning.to_json() if tuning else None}
    echo_result(content, text, as_json=as_json)


@command.command("verify")
@click.argument("corpus_id", metavar="ID")
@json_option
@click.pass_context
def verify(ctx: click.Context, corpus_id: str, as_json: bool) -> None:
    """Check every file, row and word of an index against its manifest and its documents."""
    from cog.index.project import verify_corpus_index

    paths, params = open_project(ctx, corpus_id)
    total = load_manifest(paths.corpus(corpus_id)).num_words
    with show_progress(f"verify {corpus_id}", total=total, unit="units") as progress:
        report = verify_corpus_index(paths, corpus_id, params=params, progress=progress)
    text = (
        f"{report.corpus} is intact: index {report.digest[:16]}, {report.num_files} files, "
        f"{report.num_documents} documents, {report.num_chunks} chunks, {report.num_words} units"
    )
    echo_result({"intact": True} | asdict(report), text, as_json=as_json)


def _to_json(manifest: Manifest) -> dict[str, object]:
    # the list of files is for checks, not for people
    content = asdict(manifest)
    content["files"] = len(manifest.files)
    return content


def _format(manifest: Manifest) -> str:
    documents, search, cost = manifest.documents, manifest.search, manifest.storage_cost
    skipped = ", ".join(
        f"{number} {reason}" for reason, number in documents.skipped.items() if number
    )
    lines = {
        "corpus": manifest.corpus,
        "index": manifest.digest,
        "model": manifest.model,
        "documents": f"{documents.num_indexed} of {documents.num_in}"
        + (f" (skipped: {skipped})" if skipped else ""),
        "chunks": f"{manifest.num_chunks} ({manifest.num_encoded} encoded by this build)",
        "units": f"{manifest.num_words} that may be copied ({manifest.skipped_words} too long)",
        "vectors": f"{manifest.vectors.dtype}, {manifest.vectors.bytes_per_word:.0f} bytes a unit",
        "search": f"{search.kind}, recall@{search.recall_at} {search.recall:.3f}",
        "size": f"{manifest.sizes['total'] / 1e6:.1f} MB in {len(manifest.files)} files",
        "contexts": _format_share(manifest, "contexts"),
        "counts": _format_share(manifest, "word_counts"),
        "built in": f"{manifest.seconds['total']:.1f} s "
        f"({manifest.seconds['words_per_second']:.0f} units a second)",
    }
    if cost is not None:
        lines["cost"] = (
            f"total variation {cost.total_variation_mean:.4f} on average, "
            f"{cost.total_variation_max:.4f} at most, of {cost.num_prefixes} prefixes"
        )
    return format_lines(lines)


def _format_share(manifest: Manifest, part: str) -> str:
    size = manifest.sizes[part]
    return f"{size / 1e6:.1f} MB, {size / manifest.num_words:.1f} bytes a unit"


@command.command("push")
@click.argument("corpus_id", metavar="ID")
@json_option
@click.pass_context
def push(ctx: click.Context, corpus_id: str, as_json: bool) -> None:
    """Copy the index of a corpus to the object store that its card or COG_INDEX_URI names."""
    from cog.index.versions.remote import push_index

    paths = get_project_of(ctx, corpus_id)
    with show_progress(f"push {corpus_id}", total=None, unit="bytes") as progress:
        manifest = push_index(paths, corpus_id, progress=progress)
    _say_moved("pushed", manifest, as_json=as_json)


@command.command("pull")
@click.argument("corpus_id", metavar="ID")
@click.option("--tables", "has_tables", is_flag=True, help="Copy the tables, too.")
@json_option
@click.pass_context
def pull(ctx: click.Context, corpus_id: str, has_tables: bool, as_json: bool) -> None:
    """Take an index from the object store: the manifest, and its tables if asked."""
    from cog.index.versions.remote import pull_index

    paths = get_project_of(ctx, corpus_id)
    with show_progress(f"pull {corpus_id}", total=None, unit="bytes") as progress:
        manifest = pull_index(paths, corpus_id, has_tables=has_tables, progress=progress)
    _say_moved("pulled", manifest, as_json=as_json)


def _say_moved(verb: str, manifest: Manifest, *, as_json: bool) -> None:
    num_bytes = sum(entry.size_bytes for entry in manifest.files.values())
    short = manifest.digest[:16]
    text = f"{verb} index {short} of {manifest.corpus} ({num_bytes / 1e6:.1f} MB)"
    content = {"corpus": manifest.corpus, "digest": manifest.digest, "bytes": num_bytes}
    echo_result(content, text, as_json=as_json)
