"""``cog generate``: prefixes go in by option, file or pipe; texts or JSON lines come out, cited."""

import json
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cog.cli.decoding_options import DecodingOptions, take_settings
from cog.cli.main import open_project, open_stage
from cog.cli.options import device_option, option, stage_option, with_options
from cog.cli.output import echo_json, tell
from cog.decoding.settings import set_precision
from cog.errors import CogError, GenerationError
from cog.index.versions.activation import choose_corpus
from cog.records import Decoding, Generation, Segment

if TYPE_CHECKING:
    from cog.cli.render import SegmentWriter
    from cog.decoding.generator import CopyGenerator


@dataclass(frozen=True, slots=True)
class Line:
    """A prefix that was given."""

    prefix: str
    id: Any = None  # what its line calls it; None if it has no name
    where: str | None = None  # file and line; None if it was not given in a file


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions(DecodingOptions):
    """What the command line gives of the decoding of texts."""

    max_new_tokens: int | None = option(of=Decoding, help="Exact number of tokens to append.")
    seed: int | None = option(
        "--seed",
        type=click.IntRange(0),
        help="Seed of the first text of a prefix; the next counts up.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOptions:
    """What may be copied."""

    allow_licence: tuple[str, ...] = option(
        "--allow-licence",
        multiple=True,
        metavar="NAME",
        help="Copy only from documents of this licence.",
    )
    deny_licence: tuple[str, ...] = option(
        "--deny-licence",
        multiple=True,
        metavar="NAME",
        help="Never copy from documents of this licence.",
    )
    exclude_document: tuple[str, ...] = option(
        "--exclude-document",
        multiple=True,
        metavar="DOCUMENT_ID",
        help="Never copy from this document.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How many texts are written, and how they are shown."""

    num_return: int = option(
        "--num-return",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Texts per prefix.",
    )
    batch_size: int | None = option(
        "--batch-size", type=click.IntRange(1), help="Texts decoded together."
    )
    max_sources: int | None = option(
        "--sources",
        type=NumberOrAll(),
        metavar="N|all",
        help="Documents listed below a text [default: as many as fit].",
    )
    is_stream: bool = option(
        "--stream", is_flag=True, help="Print segments as they come, one text at a time."
    )
    is_json: bool = option("--json", is_flag=True, help="Print one JSON object per text.")


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
@with_options(given=TextOptions, licences=RuleOptions, options=Options)
@device_option
@stage_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    prefix: str | None,
    input_path: str | None,
    corpus_id: str | None,
    given: TextOptions,
    licences: RuleOptions,
    options: Options,
    device: str,
    is_stage: bool,
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
    paths, params = open_project(ctx)
    params = set_precision(params, given.precision)
    prefixes = iter([Line(prefix)]) if prefix is not None else _read_prefixes(str(input_path))
    chosen, active = choose_corpus(paths, corpus_id)  # before anything slow is loaded
    from cog.decoding.licences import CopyRule
    from cog.decoding.session import open_generator

    settings = params.generate.decoding
    decoding = take_settings(settings, paths.corpus(chosen), given, active=active)
    rule = CopyRule(*(frozenset(names) for names in astuple(licences)))
    with open_generator(paths, params, corpus_id=corpus_id, device=device, rule=rule) as generator:
        batch_size = options.batch_size or params.generate.batch_size
        _run(generator, prefixes, decoding, options, batch_size=batch_size)


def _run_stage(ctx: click.Context) -> None:
    paths, params, corpus_id = open_stage(ctx)
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
    *,
    batch_size: int,
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
        batch_size=1 if options.is_stream else batch_size,
        on_segment=write_segment if options.is_stream else None,
        say=tell,
    ):
        line, writer = taken.popleft()
        if isinstance(outcome, CogError):
            _tell_failure(outcome, line, failures)
            continue
        if line is not last and (
            unread := generator.num_unread_tokens(Request(line.prefix, decoding))
        ):
            tell(f"the first {unread} tokens of a prefix are beyond the model's context")
        last = line
        _write(outcome, line, writer, options)
    if failures:
        raise GenerationError("every prefix must be usable", found=f"{len(failures)} that are not")


def _tell_failure(error: CogError, line: Line, failures: dict[str, None]) -> None:
    # a line that cannot be used ends alone, and is told once
    if line.where is None:
        raise error
    if line.where not in failures:
        failures[line.where] = None
        tell(f"{line.where}: {error}")


def _write(
    generation: Generation, line: Line, writer: "SegmentWriter | None", options: Options
) -> None:
    from cog.cli.render import write_generation

    if writer is not None:
        writer.finish(generation)
    elif options.is_json:
        named = {} if line.id is None else {"id": line.id}
        echo_json(named | generation.to_json())
    else:
        write_generation(generation, max_sources=options.max_sources)
