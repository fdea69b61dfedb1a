"""Options of decoding: what the command line gives goes in, settings over the defaults come out."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cog.cli.numbers import FiniteRange, make_type
from cog.reading import FieldError, read_field
from cog.records import PRECISIONS, Decoding

if TYPE_CHECKING:
    from cog.paths import CorpusPaths
    from cog.records import Active

Function = TypeVar("Function", bound=Callable[..., Any])
NAMES = (
    "decoding",
    "top_p",
    "max_new_tokens",
    "seed",
    "top_k_documents",
    "phrase_bias",
    "verify",
    "verify_threshold",
    "min_token_probability",
    "temperature",
    "max_verbatim_words",
)


def with_decoding_options(function: Function) -> Function:
    """Give a command the options that ``cog tune`` can choose, and the one that leaves it out.

    Gives the same with its options.
    """
    options = [
        click.option(
            "--phrase-bias",
            type=make_type(Decoding, "phrase_bias"),
            metavar="X",
            help="Added to the score of every phrase.",
        ),
        click.option(
            "--verify",
            type=make_type(Decoding, "verify"),
            help="When the prefix encoder finds a token too unlikely.",
        ),
        click.option(
            "--verify-threshold",
            type=make_type(Decoding, "verify_threshold"),
            metavar="X",
            help="Threshold of that rule [default: a usual one].",
        ),
        click.option(
            "--min-token-probability",
            type=FiniteRange(0, 1),
            metavar="P",
            help="Short for --verify absolute --verify-threshold P.",
        ),
        click.option(
            "--temperature",
            type=make_type(Decoding, "temperature"),
            help="Divides scores before a draw.",
        ),
        click.option(
            "--set",
            "others",
            multiple=True,
            metavar="NAME=VALUE",
            help="Any setting of the section `generate`, such as span_words=0; may be repeated.",
        ),
        click.option(
            "--precision",
            type=click.Choice(PRECISIONS),
            help="Of the prefix encoder's matrices [default: auto, what is fast here].",
        ),
        click.option(
            "--untuned", is_flag=True, help="Leave out what cog tune chose for this index."
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def take_settings(
    settings: Decoding,
    corpus_paths: "CorpusPaths",
    given: dict[str, Any],
    *,
    active: "Active | None" = None,
) -> Decoding:
    """The settings of a text: the command line's, else what was tuned for the index, else others.

    What was tuned, or why it is left out, is said on standard error.

    :param settings: Section ``generate`` of params.yaml.
    :param corpus_paths: The corpus that is copied from.
    :param given: What the command line gives; an option may be missing.
    :param active: What is copied from; None for the index in place.
    :returns: The settings.
    :raises click.UsageError: If two options contradict each other.
    """
    from cog.decoding.settings import choose_settings

    changes = collect_settings(given)
    try:
        chosen, word = choose_settings(
            settings, corpus_paths, changes, is_untuned=given["untuned"], active=active
        )
    except FieldError as error:
        raise click.UsageError(describe_setting(error)) from None
    if word:
        click.echo(f"cog: {word}", err=True)
    return chosen


def collect_settings(given: dict[str, Any]) -> dict[str, Any]:
    """The settings of decoding that the command line gives; options may be missing."""
    changes = {name: given[name] for name in NAMES if given.get(name) is not None}
    return changes | dict(_read_setting(text) for text in given.get("others", ()))


def describe_setting(error: FieldError) -> str:
    """Say what is wrong with a setting, under the name of its option."""
    name = ".".join(error.keys)
    shown = f"--{name.replace('_', '-')}" if name in (*NAMES, "prompts_of") else name
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
