"""The only door to registry/: ids go in, cards and what is active come out; writes are atomic."""

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import yaml

from cog.atomic import clear_leftovers, write_text_atomically
from cog.card_source import PIN_FORMS
from cog.cards import Card, check_corpus_id, format_card, is_corpus_id, parse_card, resolve_card
from cog.errors import CorpusNotFoundError, InvalidCardError, NothingActiveError, RegistryError
from cog.locks import hold_lock
from cog.paths import ProjectPaths
from cog.reading import read_record
from cog.records import Active
from cog.switch_log import log_change
from cog.yaml_file import open_yaml, parse_yaml

MAX_PREVIOUS = 100
ACTIVE_HEADER = "# What is switched on. Written by `cog switch` and `cog rollback`, newest first.\n"
FETCHED_HEADER = """\
# What files from the web were when they were fetched first. Written by `cog corpus fetch`, which
# refuses another file of the same address; delete a line to trust what is there now.
"""

# The C emitter is ten times faster; PyYAML may be built without it.
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def load_card(paths: ProjectPaths, corpus_id: str) -> Card:
    """Read the card of a corpus as it is written; inherited fields are None."""
    if "+" in corpus_id and all(map(is_corpus_id, corpus_id.split("+"))):
        raise RegistryError(
            "one corpus is wanted here",
            found=f"the union {corpus_id}",
            run=f"the same with {' or '.join(corpus_id.split('+'))}",
        )
    path = paths.card(check_corpus_id(corpus_id))
    if not path.is_file():
        path = paths.shipped_card(corpus_id)
    if not path.is_file():
        path = paths.card(corpus_id)
        raise CorpusNotFoundError(
            f"corpus {corpus_id!r} needs a card",
            found=f"no {path.relative_to(paths.root)}",
            run="cog corpus list",
        )
    file = open_yaml(path, name=path.name, error=InvalidCardError)
    card = parse_card(file.content, path.name, find_line=file.find_line)
    if card.id != corpus_id:
        raise InvalidCardError(f"{path.name}: id must be the name of the file", found=card.id)
    return card


def load_resolved_card(paths: ProjectPaths, corpus_id: str) -> Card:
    """Read the card of a corpus with everything filled in that it takes from another card."""
    card = load_card(paths, corpus_id)
    if card.extends is None:
        return card
    try:
        return resolve_card(card, load_card(paths, card.extends))
    except CorpusNotFoundError:
        raise RegistryError(
            f"card {card.id} extends {card.extends!r}, which needs a card",
            found="no such card",
            run=f"cog corpus add {card.extends} PATH, or edit {paths.card(card.id).name}",
        ) from None


def iter_corpus_ids(paths: ProjectPaths) -> Iterator[str]:
    """Name the corpora that have a card in the project, in alphabetical order."""
    yield from sorted(path.stem for path in paths.cards.glob("*.yaml"))


def iter_shipped_ids(paths: ProjectPaths) -> Iterator[str]:
    """Name the corpora whose card the package ships and the project does not have."""
    shipped = {path.stem for path in paths.shipped_card("*").parent.glob("*.yaml")}
    yield from sorted(shipped - set(iter_corpus_ids(paths)))


def iter_cards(paths: ProjectPaths) -> Iterator[Card]:
    """Read every card as it is written, in the order of their ids."""
    for corpus_id in iter_corpus_ids(paths):
        yield load_card(paths, corpus_id)


def save_card(paths: ProjectPaths, card: Card) -> None:
    """Write a card, replacing one of the same id."""
    content = format_card(card)
    path = paths.card(check_corpus_id(card.id))
    parse_card(parse_yaml(_dump(content)), path.name)
    write_text_atomically(path, _dump(content))


def remove_card(paths: ProjectPaths, corpus_id: str) -> None:
    """Delete a card."""
    paths.card(check_corpus_id(corpus_id)).unlink()


def check_childless(paths: ProjectPaths, corpus_id: str) -> None:
    """Refuse to go on if other cards extend a card; those that cannot be read are passed over."""
    children = []
    for other in iter_corpus_ids(paths):
        with contextlib.suppress(RegistryError):
            if load_card(paths, other).extends == corpus_id:
                children.append(other)
    if children:
        raise RegistryError(
            f"corpus {corpus_id} must not be extended by another to be removed",
            found=f"{', '.join(children)} extends it",
            run=f"cog corpus remove {children[0]}",
        )


def load_switches(paths: ProjectPaths) -> tuple[Active | None, list[Active]]:
    """Read what is switched on, if anything is, and what was before, newest first."""
    if not paths.active.is_file():
        return None, []
    name = str(paths.active.relative_to(paths.root))
    run = f"git checkout HEAD {name}, or rm {name} and cog switch --corpus ID"
    wanted = "must be as `cog switch` writes it"
    file = open_yaml(paths.active, name=name, error=RegistryError, wanted=wanted, run=run)
    if file.content is None:
        return None, []
    history = read_record(
        _History, file.content, error=RegistryError, file=name, find_line=file.find_line, run=run
    )
    return history.active, list(history.previous)


def load_active(paths: ProjectPaths) -> Active | None:
    """Read what is switched on; None if nothing has been yet."""
    return load_switches(paths)[0]


def load_previous(paths: ProjectPaths) -> tuple[Active, ...]:
    """Read what was switched on before, newest first."""
    return tuple(load_switches(paths)[1])


def switch_active(paths: ProjectPaths, active: Active, *, command: str = "") -> Active | None:
    """Make others the active ones, atomically, unless they are; gives what was active before."""
    with hold_lock(paths.locks / "active.lock"):
        old, previous = load_switches(paths)
        if old is not None and old.identity == active.identity:
            clear_leftovers(paths.active.parent)  # what is written clears them; this writes nothing
            log_change(paths, old, old, command=command)
            return old
        kept = previous if old is None else [old, *previous]
        _save_history(paths, active, kept[:MAX_PREVIOUS])
        log_change(paths, old, active, command=command)
        return old


def rollback_active(
    paths: ProjectPaths, target: Active | None, *, command: str = ""
) -> tuple[Active, Active]:
    """Go back to what was active before the last switch, atomically.

    That is ``target``, as :func:`load_previous` gave it and as it was checked. Gives what was
    active, and what is now.
    """
    with hold_lock(paths.locks / "active.lock"):
        old, previous = load_switches(paths)
        if old is None or not previous:
            raise NothingActiveError(
                "rollback needs an earlier switch",
                found="nothing before this" if old else "nothing was ever switched on",
                run="cog status",
            )
        if target != previous[0]:
            raise NothingActiveError(
                "rollback needs active.yaml to itself",
                found="another switch at the same time",
                run="cog status",
            )
        _save_history(paths, previous[0], previous[1:])
        log_change(paths, old, previous[0], command=command)
        return old, previous[0]


def forget_previous(paths: ProjectPaths, corpus_id: str) -> None:
    """Let no rollback go back to a corpus, alone or in a union."""
    with hold_lock(paths.locks / "active.lock"):
        active, previous = load_switches(paths)
        kept = [each for each in previous if corpus_id not in each.corpora]
        if active is not None and len(kept) < len(previous):
            _save_history(paths, active, kept)


def load_fetched(paths: ProjectPaths) -> dict[str, str]:
    """Read the sha256 of files from the web, by address, when they were fetched first."""
    path = paths.fetched
    if not path.is_file():
        return {}
    name = str(path.relative_to(paths.root))
    run = f"git checkout HEAD {name}, or rm {name} and fetch again"
    wanted = "must be as `cog corpus fetch` writes it"
    content = open_yaml(path, name=name, error=RegistryError, wanted=wanted, run=run).content
    kind = dict[str, Annotated[str, PIN_FORMS["sha256"]]]
    return read_record(kind, content or {}, error=RegistryError, file=name, run=run)


def record_fetched(paths: ProjectPaths, files: dict[str, str]) -> None:
    """Keep what files from the web were, atomically; what was kept before stays as it is."""
    with hold_lock(paths.locks / "fetched.lock"):
        content = files | load_fetched(paths)
        write_text_atomically(paths.fetched, FETCHED_HEADER + _dump(dict(sorted(content.items()))))


def forget_fetched(paths: ProjectPaths, addresses: Collection[str]) -> None:
    """Keep no longer what the files of addresses were."""
    with hold_lock(paths.locks / "fetched.lock"):
        content = {
            name: value for name, value in load_fetched(paths).items() if name not in addresses
        }
        if content:
            write_text_atomically(paths.fetched, FETCHED_HEADER + _dump(content))
        else:
            paths.fetched.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _History:
    active: Active
    previous: tuple[Active, ...]


def _save_history(paths: ProjectPaths, active: Active, previous: list[Active]) -> None:
    content = {"active": asdict(active), "previous": [asdict(each) for each in previous]}
    write_text_atomically(paths.active, ACTIVE_HEADER + _dump(content))


def _dump(content: dict[str, Any]) -> str:
    text: str = yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text
