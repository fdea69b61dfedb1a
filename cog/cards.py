"""Corpus cards: a mapping read from YAML goes in, a frozen, checked record comes out, and back."""

import codecs
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from cog.card_source import SOURCE_FIELDS, CardText, Source, Texts
from cog.errors import InvalidCardError
from cog.reading import Count, FieldError, Form, Keys, Natural, OneOf, Range, Via, read_record, show

KINDS = ("text", "jsonl", "json", "csv", "parquet", "sqlite")
DOCUMENT_RULES = ("row", "file", "line", "blank-line", "heading")
ON_ERROR = ("fail", "skip")
DEDUPLICATE = ("exact", "near", "none")
FIELD_TYPES = ("text", "text?", "texts", "texts?", "integer", "integer?", "number", "number?") + (
    "boolean",
    "boolean?",
)
DETECT = "detect"
DEFAULT_NEAR_THRESHOLD = 0.8
WIKITEXT_HEADING = "wikitext"
INHERITED = ("source", "format", "normaliser", "filters", "deduplicate")
ID_RULE = (
    "1 to 63 characters of a-z 0-9 . - and begins and ends with a-z or 0-9, without '..' and not a"
    " reserved file name"
)

_SLUG = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")
_INDEX_URI = re.compile(r"s3://[a-z0-9][a-z0-9.-]{2,62}(/[^\s?#]*)?")
# Codecs that are no character encodings of files, or that guess.
_ODD_CODECS = frozenset(
    ("idna", "mbcs", "oem", "palmos", "punycode", "raw-unicode-escape", "undefined")
    + ("unicode-escape",)
)


def is_corpus_id(text: str) -> bool:
    """Whether DVC, Lance, MLflow and every file system take a text as an id."""
    is_slug = _SLUG.fullmatch(text) is not None and ".." not in text
    return is_slug and _RESERVED.fullmatch(text) is None


def _are_encodings(names: tuple[str, ...]) -> bool:
    try:
        for name in () if names == (DETECT,) else names:
            "".encode(name)
            if codecs.lookup(name).name.replace("_", "-") in _ODD_CODECS:
                return False
    except (LookupError, ValueError):
        return False
    return bool(names)


def is_index_uri(uri: str) -> bool:
    """Tell whether an address is ``s3://``, a bucket and perhaps a folder in it."""
    return _INDEX_URI.fullmatch(uri) is not None


CorpusId = Annotated[str, Form(f"a corpus id, which has {ID_RULE}", is_corpus_id)]


@dataclass(frozen=True, slots=True)
class Licence:
    """The terms a corpus may be used under: an SPDX id or a name, where to read, whom to name."""

    id: CardText
    url: CardText | None
    attribution: CardText | None


@dataclass(frozen=True, slots=True)
class Fields:
    """Which columns or keys hold what; several names are joined."""

    id: Texts  # id of the document; empty: file and row number
    title: Texts  # title, joined with a comma
    text: Texts  # text, joined with a line break
    url: Texts
    licence: Texts  # licence of the single document; empty: the card's


@dataclass(frozen=True, slots=True)
class LocalFormat:
    """How raw files are read; in a card, those given with ``--source`` that are of another kind."""

    kind: Annotated[str, OneOf(KINDS)]
    documents: Annotated[str, OneOf(DOCUMENT_RULES)]
    heading: CardText | None

    def __post_init__(self) -> None:
        barred = "row" if self.kind == "text" else "file"
        if self.documents == barred:
            wanted = f"of kind {self.kind} must not be '{barred}'"
            raise FieldError("documents", wanted=wanted, found=show(barred))
        if (self.documents == "heading") != (self.heading is not None):
            wanted = "belongs to documents: heading, which needs it"
            raise FieldError("heading", wanted=wanted, found=show(self.heading))
        try:
            re.compile(self.heading or "")
        except (re.error, OverflowError, RecursionError) as error:
            wanted = "must be a regular expression"
            raise FieldError("heading", wanted=wanted, found=str(error)) from None


@dataclass(frozen=True, slots=True)
class Format:
    """How raw bytes become documents."""

    kind: Annotated[str, OneOf(KINDS)]  # `text`, `jsonl`, `json`, `csv`, `parquet` or `sqlite`
    encoding: Annotated[
        Texts, Form("an encoding such as utf-8 or cp1252, several, or detect alone", _are_encodings)
    ]  # encodings tried in order, file by file; the first that fits is taken; or `detect`
    fields: Fields  # names of columns or keys (all kinds but text)
    query: CardText | None  # SQL whose columns the fields name (sqlite)
    # `row`, `file`, `line`, `blank-line` or `heading`
    documents: Annotated[str, OneOf(DOCUMENT_RULES)]
    # `wikitext`, or a regular expression a whole heading line must match, with optional groups
    # `title` and `id`
    heading: CardText | None
    # template of the address where no field has it; `{id}` and `{title}` are filled
    url: CardText | None
    # `fail` stops at the first malformed record, `skip` counts it
    on_error: Annotated[str, OneOf(ON_ERROR)]
    # how files given with `--source` are read when they are of another kind
    local: LocalFormat | None
    # columns or keys and the type of each, in the order of the card: `text`, `texts`, `integer`,
    # `number` or `boolean`, with `?` where it may be null or missing
    schema: dict[str, Annotated[str, OneOf(FIELD_TYPES)]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        LocalFormat(self.kind, self.documents, self.heading)  # which has the same rules
        if self.kind != "text" and not self.fields.text:
            raise FieldError("fields", "text", wanted="must name a column", found="null")
        if (self.kind == "sqlite") != (self.query is not None):
            wanted = "belongs to kind sqlite, which needs it"
            raise FieldError("query", wanted=wanted, found=show(self.query))


@dataclass(frozen=True, slots=True)
class Filters:
    """Which documents are kept."""

    min_words: Natural  # fewest white-space separated words
    max_words: Annotated[int, Range(at_least=1)] | None  # most words; None for no limit
    # share of 5-word runs that two documents have in common, from which the later one counts as a
    # near duplicate
    near_threshold: Annotated[float, Range(at_least=0.5, at_most=1)] = DEFAULT_NEAR_THRESHOLD
    exclude: Texts = ()  # ids of documents that are left out

    def __post_init__(self) -> None:
        if self.max_words is not None and self.max_words < self.min_words:
            wanted = f"must be min_words ({self.min_words}) or more"
            raise FieldError("max_words", wanted=wanted, found=str(self.max_words))


@dataclass(frozen=True, slots=True)
class PromptRule:
    """The proportion of the documents that prompts are cut from; they are never indexed."""

    held_out: Annotated[float, Range(at_least=0, below=1)]
    seed: Natural


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several equal shares of the documents of a subset, no two of which overlap."""

    number: Count  # from 1 on
    of: Count

    def __post_init__(self) -> None:
        if self.number > self.of:
            wanted = f"must be at most of ({self.of})"
            raise FieldError("number", wanted=wanted, found=show(self.number))


@dataclass(frozen=True, slots=True)
class Subset:
    """A random part of the documents; of one seed, a smaller part lies in a larger one."""

    proportion: Annotated[float, Range(above=0, at_most=1)]
    seed: Natural
    shard: Shard | None = None  # a share of that part; None for all of it

    @property
    def share(self) -> float:
        """The share of all documents."""
        return self.proportion / (self.shard.of if self.shard else 1)


@dataclass(frozen=True, slots=True)
class IndexAddress:
    """Where the index lies beside this machine: ``s3://``, a bucket and a folder in it."""

    uri: Annotated[
        str,
        Via(
            Annotated[str, Form("a bucket and a folder in it: s3://BUCKET/FOLDER", is_index_uri)],
            lambda uri: uri.rstrip("/"),
        ),
    ]


@dataclass(frozen=True, slots=True)
class Card:
    """The record of one corpus."""

    id: CorpusId  # corpus id; the name of the file
    title: CardText  # what a person calls it
    description: CardText  # one or two sentences
    language: CardText  # BCP 47 tag
    licence: Licence
    source: Source | None  # where the bytes come from; None if inherited
    format: Format | None  # how they become documents; None if inherited
    normaliser: CardText | None  # named and versioned text normaliser; None if inherited
    filters: Filters | None  # which documents are kept; None if inherited
    # `exact`, `near` (exact ones too) or `none`; None if inherited
    deduplicate: Annotated[str, OneOf(DEDUPLICATE)] | None
    prompts: PromptRule | None  # held-out documents; None for no prompts
    extends: CorpusId | None  # the corpus whose source and format this one takes
    subset: Subset | None  # a random part; None for everything
    index: IndexAddress | None = None  # the object store that its index is pushed to; None for none

    @property
    def root(self) -> str:
        """Id of the card that names the source."""
        return self.extends or self.id


def check_corpus_id(corpus_id: str) -> str:
    """The same id, if DVC, Lance, MLflow and every file system take it; else it is refused."""
    if not is_corpus_id(corpus_id):
        shown = corpus_id if len(corpus_id) <= 80 else f"{corpus_id[:77]}..."
        raise InvalidCardError(
            f"a corpus id has {ID_RULE}", found=repr(shown), run="choose an id such as 'law-mt'"
        )
    return corpus_id


def parse_card(
    content: object, where: str, *, find_line: Callable[[Keys], int | None] = lambda _: None
) -> Card:
    """Check the content of a card file."""
    return read_record(
        Card,
        content,
        error=InvalidCardError,
        file=where,
        find_line=find_line,
        check=_check_inherited,
    )


def format_card(card: Card) -> dict[str, Any]:
    """A card as plain values in the order of the file, which ``parse_card`` reads."""
    content = asdict(card)
    if card.source is not None:  # the fields of its type only
        needed, allowed = SOURCE_FIELDS[card.source.type]
        content["source"] = {name: content["source"][name] for name in ("type", *needed, *allowed)}
    return {key: _plain(value) for key, value in content.items()}


def resolve_card(card: Card, root: Card) -> Card:
    """Fill in what a card takes from the one it extends, which must not extend another itself."""
    if root.extends is not None:
        raise InvalidCardError(
            f"card {card.id}: extends may name only a card with a source of its own",
            found=f"{root.id} extends {root.extends}",
            run=f"set extends: {root.extends}",
        )
    return replace(card, **{name: getattr(root, name) for name in INHERITED})


def _check_inherited(card: Card) -> None:
    for name in INHERITED:
        is_there = getattr(card, name) is not None
        if card.extends is not None and is_there:
            raise FieldError(
                name, wanted=f"must be null: it comes from {card.extends}", found="a value"
            )
        if card.extends is None and not is_there:
            raise FieldError(name, wanted="may be null only with extends", found="null")
    if card.extends == card.id:
        raise FieldError("extends", wanted="must name another card", found=card.id)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()} or None
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else list(value) if value else None
    return value
