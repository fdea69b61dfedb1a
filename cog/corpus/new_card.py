"""A card for a new corpus: a path or a hub name and options go in, a checked card comes out."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cog.archives import is_archive
from cog.card_source import is_address
from cog.cards import DEFAULT_NEAR_THRESHOLD, Card, check_corpus_id, parse_card
from cog.corpus.local_files import iter_file_names, tell_kind
from cog.corpus.sources import SUFFIXES, find_kind, is_html
from cog.download import name_file
from cog.errors import CorpusError
from cog.paths import is_member

HUB_PREFIX = "hub:"

_HUB_NAME = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCorpus:
    """What is known of a new corpus; None where the usual value fits.

    Fields are those of a card by their last name; for those of rows, names of columns.
    """

    title: str | None = None
    description: str | None = None
    language: str = "en"
    licence: str = "unknown"
    licence_url: str | None = None
    attribution: str | None = None
    kind: str | None = None
    encoding: tuple[str, ...] = ("utf-8",)
    documents: str | None = None
    heading: str | None = None
    query: str | None = None
    url: str | None = None
    on_error: str = "fail"
    id_field: tuple[str, ...] = ()
    title_field: tuple[str, ...] = ()
    text_field: tuple[str, ...] = ()
    url_field: tuple[str, ...] = ()
    licence_field: tuple[str, ...] = ()
    members: tuple[str, ...] = ()  # empty for the usual endings
    config: str | None = None
    split: tuple[str, ...] = ("train",)
    revision: str | None = None
    normaliser: str = "plain-v1"
    min_words: int = 1
    max_words: int | None = None
    deduplicate: str = "exact"
    near_threshold: float = DEFAULT_NEAR_THRESHOLD
    schema: tuple[str, ...] = ()  # one `NAME=TYPE` each
    held_out: float = 0.0
    seed: int = 0
    index_uri: str | None = None


def build_card(corpus_id: str, place: str, new: NewCorpus, *, project: Path, folder: Path) -> Card:
    """Build a card of a file, a folder (relative to ``folder``), a hub data set or an address."""
    check_corpus_id(corpus_id)
    path = folder / place
    if path.exists():
        members = list(new.members)
        source = {"type": "files", "path": _write_path(path, project), "members": members}
        kind = new.kind or _guess_kind(path, members)
    elif is_address(place):
        path = Path(name_file(place))
        source = {"type": "url", "urls": place, "members": list(new.members)}
        kind = new.kind or _guess_kind_of_address(place, new)
    else:
        source = _read_hub_name(place, new)
        kind = new.kind or "parquet"
    fields: dict[str, Any] = {
        name: list(getattr(new, f"{name}_field")) or None
        for name in ("id", "title", "text", "url", "licence")
    }
    if kind != "text" and fields["text"] is None:
        fields["text"] = "text"
    content = {
        "id": corpus_id,
        "title": new.title or corpus_id,
        "description": new.description or f"Made from {place}.",
        "language": new.language,
        "licence": {"id": new.licence, "url": new.licence_url, "attribution": new.attribution},
        "source": source,
        "format": {
            "kind": kind,
            "encoding": list(new.encoding),
            "fields": fields,
            "query": new.query,
            "documents": new.documents or _guess_rule(kind, path=path, heading=new.heading),
            "heading": new.heading,
            "url": new.url,
            "on_error": new.on_error,
            "local": None,
            "schema": dict(_read_type(each) for each in new.schema) or None,
        },
        "normaliser": new.normaliser,
        "filters": {
            "min_words": new.min_words,
            "max_words": new.max_words,
            "near_threshold": new.near_threshold,
        },
        "deduplicate": new.deduplicate,
        "prompts": {"held_out": new.held_out, "seed": new.seed},
        "extends": None,
        "subset": None,
        "index": {"uri": new.index_uri} if new.index_uri is not None else None,
    }
    return parse_card(content, f"{corpus_id}.yaml")


def _read_type(text: str) -> tuple[str, str]:
    name, mark, kind = text.rpartition("=")
    if not mark:
        raise CorpusError(
            "a field's type is given as NAME=TYPE", found=text, run="--schema body=text"
        )
    return name, kind


def _write_path(path: Path, project: Path) -> str:
    absolute = path.resolve()
    inside = absolute.is_relative_to(project.resolve())
    return absolute.relative_to(project.resolve()).as_posix() if inside else str(absolute)


def _read_hub_name(place: str, new: NewCorpus) -> dict[str, Any]:
    name = place.removeprefix(HUB_PREFIX)
    is_marked = place.startswith(HUB_PREFIX)
    first = Path(place).parts[0] if place else ""
    has_ending = find_kind(place) is not None
    is_name = _HUB_NAME.fullmatch(name) and not has_ending and not Path(first).exists()
    if not is_marked and "://" in place:
        raise CorpusError(
            "what is fetched has an address that begins with http:// or https://",
            found=place,
            run="fetch it by other means, and name the file",
        )
    if not is_marked and not is_name:
        raise CorpusError(
            "a corpus is made from a file, a folder, a hub data set OWNER/NAME or an address",
            found=f"no such path: {place}",
            run="mend the path, or write hub:NAME for a data set",
        )
    return {
        "type": "hub",
        "dataset": name,
        "config": new.config,
        "split": list(new.split),
        "revision": new.revision,
    }


def _guess_kind(path: Path, members: Sequence[str]) -> str:
    folder = path.parent if path.is_file() else path
    names = [path.name] if path.is_file() else list(iter_file_names(path))
    if members:
        names = [name for name in names if is_member(name, members)]
    counts = Counter(tell_kind(folder, name) for name in names)
    kinds = [kind for kind in counts if kind in SUFFIXES]
    if len(kinds) == 1:
        return kinds[0]
    found = ", ".join(f"{count} {kind}" for kind, count in counts.most_common()) or "none"
    if not kinds:
        raise CorpusError(
            f"the files must be of one kind, {', '.join(SUFFIXES)}, told by their endings",
            found=f"{found} in {path}",
            run="make text of them, or pass --format KIND if they are of one of these kinds",
        )
    most = max(kinds, key=lambda kind: counts[kind])
    raise _unclear(f"{found} in {path}", "or name the files that are meant", kind=most)


def _guess_kind_of_address(place: str, new: NewCorpus) -> str:
    names = new.members or (name_file(place),)
    kinds = {find_kind(name) for name in names}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None:
        raise _unclear(", ".join(names), "and name the files of an archive")
    return kind


def _unclear(found: str, others: str, *, kind: str = "KIND") -> CorpusError:
    return CorpusError(
        "the files must be of one kind, told by their endings",
        found=found,
        run=f"pass --format {kind}, {others} with --members '*.ending'",
    )


def _guess_rule(kind: str, *, path: Path, heading: str | None) -> str:
    if heading is not None:
        return "heading"
    if kind != "text":
        return "row"
    # of a file of the web, the name is all there is
    is_one_file = path.is_file() or (not path.exists() and not is_archive(path.name))
    return "blank-line" if is_one_file and not is_html(path.name) else "file"
