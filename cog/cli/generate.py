"""``cog generate``.

Prefixes go in by option, file or pipe; cited texts come out as text or JSON lines.
"""

import json
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cog.cli.decoding_options import take_settings, with_decoding_options
from cog.cli.main import check_stage, get_project, get_project_of
from cog.cli.numbers import make_type
from cog.cli.options import device_option, stage_option
from cog.decoding.settings import set_precision
from cog.errors import CogError, GenerationError
from cog.index.versions.activation import choose_corpus
from cog.params import load_params
from cog.records import Decoding, Generation, Segment

if TYPE_CHECKING:
    from cog.cli.render import SegmentWriter
    from cog.decoding.generator import CopyGenerator


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for beside the decoding.

    :param num_return: Number of texts per prefix, with seeds that count up.
    :param batch_size: Number of texts decoded together.
    :param is_stream: Print segments as they come.
    :param is_json: Print JSON lines.
    :param max_sources: Number of documents that are listed; None for as many as fit.
    """

    num_return: int
    batch_size: int
    is_stream: bool
    is_json: bool
    max_sources: int | None


@dataclass(frozen=True, slots=True)
class Line:
    """A prefix that was given.

    :param prefix: The prefix.
    :param id: What its line calls it; None if it has no name.
    :param where: File and line; None if it was not given in a file.
    """

    prefix: str
    id: Any = None
    where: str | None = None


class NumberOrAll(click.ParamType[int]):
    """A number from 0 on, or ``all``, which is as many as a list can hold."""

    name = "N|all"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Read what was given."""
        if value == "all":
            return sys.maxsize
        if not str(value).isdecimal():
            self.fail(f"{value!r} is neither a number from 0 on nor 'all'.", param, ctx)
        return int(value)


@click.command("generate")
@click.option("--prefix", help="Text to continue; may be empty.")
@click.option(
    "--input", "input_path", metavar="FILE.jsonl|-", help='JSON lines, each with a "prefix".'
)
@click.option(
    "--corpus",
    "corpus_id",
    metavar="ID[+ID]...",
    help="Corpus to copy from, or several [default: what is active].",
)
@click.option("--decoding", type=make_type(Decoding, "method"), help="How a choice is taken.")
@click.option("--top-p", type=make_type(Decoding, "top_p"), help="Mass of the nucleus.")
@click.option(
    "--max-new-tokens",
    type=make_type(Decoding, "max_new_tokens"),
    help="Exact number of tokens to append.",
)
@click.option(
    "--num-return", type=click.IntRange(1), default=1, show_default=True, help="Texts per prefix."
)
@click.option(
    "--seed", type=click.IntRange(0), help="Seed of the first text of a prefix; the next counts up."
)
@click.option(
    "--top-k-documents",
    type=make_type(Decoding, "top_k_documents"),
    help="Chunks retrieved per prefix; 0 for tokens only.",
)
@with_decoding_options
@click.option(
    "--allow-licence",
    multiple=True,
    metavar="NAME",
    help="Copy only from documents of this licence.",
)
@click.option(
    "--deny-licence",
    multiple=True,
    metavar="NAME",
    help="Never copy from documents of this licence.",
)
@click.option(
    "--exclude-document",
    multiple=True,
    metavar="DOCUMENT_ID",
    help="Never copy from this document.",
)
@click.option(
    "--max-verbatim-words",
    type=make_type(Decoding, "max_verbatim_words"),
    help="Longest run of words copied from one place of a document; 0 for no limit.",
)
@click.option("--batch-size", type=click.IntRange(1), help="Texts decoded together.")
@device_option
@click.option(
    "--sources",
    "max_sources",
    type=NumberOrAll(),
    metavar="N|all",
    help="Documents listed below a text [default: as many as fit].",
)
@click.option(
    "--stream", "is_stream", is_flag=True, help="Print segments as they come, one text at a time."
)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object per text.")
@stage_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    prefix: str | None,
    input_path: str | None,
    is_stage: bool,
    **given: Any,  # noqa: ANN401
) -> None:
    """Write cited text by copying phrases from a corpus.

    What is not given is taken from what `cog tune` chose for the index, then from the section
    `generate` of params.yaml.
    """
    if is_stage:
        _run_stage(ctx)
        return
    if (prefix is None) == (input_path is None):
        raise click.UsageError(
            "give either --prefix TEXT or --input FILE.jsonl (- for standard input)"
        )
    paths = get_project(ctx)
    params = set_precision(load_params(paths.params), given["precision"])
    options = Options(
        given["num_return"],
        given["batch_size"] or params.generate.batch_size,
        given["is_stream"],
        given["is_json"],
        given["max_sources"],
    )
    prefixes = iter([Line(prefix)]) if prefix is not None else _read_prefixes(str(input_path))
    chosen, active = choose_corpus(paths, given["corpus_id"])  # before anything slow is loaded
    from cog.decoding.licences import CopyRule
    from cog.decoding.session import open_generator

    settings = params.generate.decoding
    decoding = take_settings(settings, paths.corpus(chosen), given, active=active)
    names = ("allow_licence", "deny_licence", "exclude_document")
    rule = CopyRule(*(frozenset(given[name]) for name in names))
    with open_generator(
        paths, params, corpus_id=given["corpus_id"], device=given["device"], rule=rule
    ) as generator:
        _run(generator, prefixes, decoding, options)


def _run_stage(ctx: click.Context) -> None:
    corpus_id = check_stage(ctx)
    paths = get_project_of(ctx, corpus_id)
    params = load_params(paths.params)
    from cog.decoding.stage import generate_corpus
    from cog.progress import show_progress

    total = params.generate.num_prompts
    with show_progress(f"generate {corpus_id}", total=total, unit="texts") as progress:
        generate_corpus(paths, corpus_id, params, progress)


def _read_prefixes(path: str) -> Iterator[Line]:
    name = "standard input" if path == "-" else path
    with ExitStack() as stack:
        try:
            file = sys.stdin.buffer if path == "-" else stack.enter_context(Path(path).open("rb"))
        except OSError as error:
            raise GenerationError(
                "--input must name a file", found=f"{path}: {error.strerror}"
            ) from None
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield _read_line(line, where=f"{name}, line {number}")


def _read_line(line: bytes, *, where: str) -> Line:
    try:
        content = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise GenerationError(
            f"{where} must be UTF-8",
            found=f"byte {error.object[error.start]:#04x} at offset {error.start}",
        ) from None
    except ValueError as error:
        raise GenerationError(f"{where} must be a JSON object", found=str(error)) from None
    if not isinstance(content, dict) or not isinstance(content.get("prefix"), str):
        raise GenerationError(
            f'{where} must be a JSON object with a text "prefix"', found=line.decode().strip()[:80]
        )
    return Line(content["prefix"], content.get("id"), where)


def _run(
    generator: "CopyGenerator",
    prefixes: Iterator[Line],
    decoding: Decoding,
    options: Options,
) -> None:
    from cog.cli.render import SegmentWriter
    from cog.decoding.in_order import write_in_order
    from cog.decoding.request import Request, repeat_request

    generator.check(Request(" ", decoding))  # what is wrong for all is said once
    taken: deque[tuple[Line, SegmentWriter | None]] = deque()  # and not written yet

    def take_requests() -> Iterator[Request]:
        for line in prefixes:
            for each in repeat_request(Request(line.prefix, decoding), options.num_return):
                writer = None
                if options.is_stream:  # one text at a time, so those before are finished
                    writer = SegmentWriter(
                        line.prefix, is_json=options.is_json, max_sources=options.max_sources
                    )
                taken.append((line, writer))
                yield each

    def write_segment(number: int, segment: Segment) -> None:
        _, writer = taken[0]
        assert writer is not None
        writer.write(number, segment)

    failures: dict[str, None] = {}  # lines, in order
    last: Line | None = None
    for outcome in write_in_order(
        generator,
        take_requests(),
        batch_size=1 if options.is_stream else options.batch_size,
        on_segment=write_segment if options.is_stream else None,
        say=_say,
    ):
        line, writer = taken.popleft()
        if isinstance(outcome, CogError):
            _tell_failure(outcome, line, failures)
            continue
        if line is not last and (
            unread := generator.num_unread_tokens(Request(line.prefix, decoding))
        ):
            _say(f"the first {unread} tokens of a prefix are beyond the model's context")
        last = line
        _write(outcome, line, writer, options)
    if failures:
        raise GenerationError("every prefix must be usable", found=f"{len(failures)} that are not")


def _say(message: str) -> None:
    click.echo(f"cog: {message}", err=True)


def _tell_failure(error: CogError, line: Line, failures: dict[str, None]) -> None:
    # a line that cannot be used ends alone, and is told once
    if line.where is None:
        raise error
    if line.where not in failures:
        failures[line.where] = None
        _say(f"{line.where}: {error}")


def _write(
    generation: Generation, line: Line, writer: "SegmentWriter | None", options: Options
) -> None:
    from cog.cli.render import write_generation

    if writer is not None:
        writer.finish(generation)
    elif options.is_json:
        named = {} if line.id is None else {"id": line.id}
        click.echo(json.dumps(named | generation.to_json(), ensure_ascii=False))
    else:
        write_generation(generation, max_sources=options.max_sources)
