"""Options of decoding: what the command line gives goes in, settings over the defaults come out."""

from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import click

from cog.cli.options import PRECISION, FiniteRange, make_type, option
from cog.cli.output import tell
from cog.reading import FieldError, read_field
from cog.records import Decoding

if TYPE_CHECKING:
    from cog.paths import CorpusPaths
    from cog.records import Active

OTHER_OPTIONS = ("max_new_tokens", "seed", "prompts_of")  # of some commands
NO_SETTINGS = ("others", "precision", "untuned")  # among the fields of the record


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingOptions:
    """What the command line gives of a way of decoding; None is what it does not give."""

    decoding: str | None = option(
        "--decoding", type=make_type(Decoding, "method"), help="How a choice is taken."
    )
    top_p: float | None = option(of=Decoding, help="Mass of the nucleus.")
    top_k_documents: int | None = option(
        of=Decoding, help="Chunks retrieved for a prefix; 0 for tokens only."
    )
    max_verbatim_words: int | None = option(
        of=Decoding,
        help="Longest run of words copied from one place of a document; 0 for no limit.",
    )
    phrase_bias: float | None = option(
        of=Decoding, metavar="X", help="Added to the score of every phrase: higher copies more."
    )
    verify: str | None = option(
        of=Decoding, help="When the prefix encoder finds a token too unlikely."
    )
    verify_threshold: float | None = option(
        of=Decoding, metavar="X", help="Threshold of that rule [default: a usual one]."
    )
    min_token_probability: float | None = option(
        "--min-token-probability",
        type=FiniteRange(0, 1),
        metavar="P",
        help="Short for --verify absolute --verify-threshold P.",
    )
    temperature: float | None = option(of=Decoding, help="Divides scores before a draw.")
    others: tuple[str, ...] = option(
        "--set",
        multiple=True,
        metavar="NAME=VALUE",
        help="Any setting of the section `generate`, such as span_words=0; may be repeated.",
    )
    precision: str | None = option("--precision", **PRECISION)
    untuned: bool = option(
        "--untuned", is_flag=True, help="Leave out what cog tune chose for this index."
    )


def take_settings(
    settings: Decoding,
    corpus_paths: "CorpusPaths",
    given: DecodingOptions,
    *,
    active: "Active | None" = None,
) -> Decoding:
    """The settings of a text: the command line's, else what was tuned for the index, else others.

    What was tuned, or why it is left out, is said on standard error.
    """
    from cog.decoding.settings import choose_settings

    changes = collect_settings(given)
    try:
        chosen, word = choose_settings(
            settings, corpus_paths, changes, is_untuned=given.untuned, active=active
        )
    except FieldError as error:
        raise click.UsageError(describe_setting(error)) from None
    if word:
        tell(word)
    return chosen


def collect_settings(given: DecodingOptions) -> dict[str, Any]:
    """The settings of decoding that the command line gives."""
    names = (each.name for each in fields(given) if each.name not in NO_SETTINGS)
    changes = {name: getattr(given, name) for name in names}
    changes = {name: value for name, value in changes.items() if value is not None}
    return changes | dict(_read_setting(text) for text in given.others)


def describe_setting(error: FieldError) -> str:
    """Say what is wrong with a setting, under the name of its option."""
    name = ".".join(error.keys)
    has_option = name in DecodingOptions.__dataclass_fields__ or name in OTHER_OPTIONS
    shown = f"--{name.replace('_', '-')}" if has_option else name
    found = f", found {error.found}" if error.found else f"; {error.run}" if error.run else ""
    return f"{shown} {error.wanted}{found}"


def _read_setting(text: str) -> tuple[str, Any]:
    name, _, written = text.partition("=")
    value: Any = written
    for read in ({"true": True, "false": False}.__getitem__, int, float):
        with suppress(KeyError, ValueError):
            value = read(written)
            break
    try:
        return name, read_field(Decoding, name, value)
    except FieldError as error:
        found = f", found {error.found}" if error.found else f"; {error.run}"
        raise click.BadParameter(f"{error}{found}", param_hint="--set") from None
