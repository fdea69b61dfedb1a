"""Adding and checking corpora: cards and ids go in, changes or findings come out."""

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

from cog.cards import Card
from cog.corpus.local_files import list_kinds, survey_files
from cog.corpus.next_step import name_build
from cog.corpus.normalisers import get_normaliser
from cog.corpus.readers import fill_in, iter_found
from cog.corpus.sources import (
    RawEntry,
    SourceRecord,
    choose_layout,
    describe_file,
    get_layout,
    list_raw_files,
    load_source_record,
)
from cog.corpus.tally import Tally
from cog.errors import CogError, CorpusError, RegistryError
from cog.locks import hold_lock
from cog.paths import CorpusPaths, ProjectPaths
from cog.pipeline_file import CorpusEntry, add_corpus_entry, load_pipeline, make_entry
from cog.records import Document
from cog.registry import load_card, load_resolved_card, remove_card, save_card


@dataclass(frozen=True, slots=True)
class Finding:
    """What checking a corpus found in one place."""

    corpus: str
    check: str  # `card`, `pipeline`, `raw`, `source` or `documents`
    is_ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Trial:
    """What a look at local files found."""

    files: SourceRecord  # which of them are taken
    first: Document


def add_corpus(paths: ProjectPaths, card: Card) -> Trial | None:
    """Write a card and let the pipeline build it, after a trial of local files; or do nothing."""
    if card.normaliser is not None:
        get_normaliser(card.normaliser)
    trial = None
    if card.source is not None and card.source.path is not None:
        trial = try_source(card, paths.root / card.source.path)
    with hold_lock(paths.pipeline_lock):
        _add_new(paths, card)
    return trial


def _add_new(paths: ProjectPaths, card: Card) -> None:
    source = card.source.path if card.source is not None else None
    if paths.card(card.id).exists() and not _is_begun(paths, card):
        name = paths.card(card.id).relative_to(paths.root)
        raise RegistryError(
            f"corpus {card.id} must be new",
            found="a card of this id",
            run=f"choose another id, or build what {name} describes:"
            f" {name_build(paths.corpus(card.id), source=source or 'DIR_OR_FILE')}",
        )
    save_card(paths, card)
    try:
        add_corpus_entry(paths, card.id, make_entry(load_resolved_card(paths, card.id)))
    except CogError:
        remove_card(paths, card.id)
        raise


def _is_begun(paths: ProjectPaths, card: Card) -> bool:
    # the same was added before, and killed between the card and its entry
    if card.id in load_pipeline(paths).corpora:
        return False
    with contextlib.suppress(CogError):
        return load_card(paths, card.id) == card
    return False


def try_source(card: Card, path: Path) -> Trial:
    """Look at local files and read, normalised, the first document that is not empty."""
    assert card.format is not None
    assert card.source is not None
    assert card.normaliser is not None
    survey = survey_files(path, members=card.source.members, kinds=list_kinds(card.format))
    layout = choose_layout(survey.taken, card.format)
    entries = tuple(RawEntry(name, num_bytes=0, sha256="") for name in survey.taken)
    record = SourceRecord(origin="files", layout=layout, files=entries, left=survey.left)
    normalise = get_normaliser(card.normaliser)
    files = list_raw_files(survey.folder, record)
    tally = Tally(card.format.on_error)
    for found in iter_found(card, files, layout=get_layout(card, record), tally=tally):
        text = normalise(found.text)
        if text:
            return Trial(record, replace(fill_in(found, card), text=text))
    raise CorpusError(
        f"{path} must hold at least one document",
        found="none that has a word",
        run="mend the files, or name another path",
    )


def check_corpus(paths: ProjectPaths, corpus_id: str) -> list[Finding]:
    """Check everything of a corpus that is there, a finding per place."""
    findings = []
    corpus_paths = paths.corpus(corpus_id)

    def note(check: str, is_ok: bool, detail: str) -> None:
        findings.append(Finding(corpus_id, check, is_ok, detail))

    try:
        card = load_resolved_card(paths, corpus_id)
        get_normaliser(card.normaliser or "")
        note("card", True, "follows the schema")
    except CogError as error:
        note("card", False, str(error))
        return findings
    entry = load_pipeline(paths).corpora.get(corpus_id)
    if entry is not None:
        wanted = make_entry(card)
        detail = f"must be {_show(wanted)}: {_show(entry)}" if entry != wanted else "fits the card"
        note("pipeline", entry == wanted, detail)
    if corpus_paths.raw.exists():
        try:
            record = load_source_record(corpus_paths.raw)
            _check_sums(corpus_paths.raw, record)
            note("raw", True, f"{len(record.files)} files as received")
            if record.origin == "files":
                changed = _find_changes(card, paths.root / make_entry(card).source, record)
                note("source", not changed, changed or "as it was fetched")
        except CogError as error:
            note("raw", False, str(error))
    if corpus_paths.documents.exists():
        try:
            note("documents", True, f"{_check_documents(corpus_paths)} documents")
        except CogError as error:
            note("documents", False, str(error))
    return findings


def _show(entry: CorpusEntry) -> str:
    return f"root {entry.root}, source {entry.source}"


def _find_changes(card: Card, path: Path, record: SourceRecord) -> str:
    # what became of local files since; on another machine they need not be there
    if not path.exists() or card.source is None or card.format is None:
        return ""
    survey = survey_files(path, members=card.source.members, kinds=list_kinds(card.format))
    before = {entry.name: entry for entry in record.files}
    names = {
        "added": [name for name in survey.taken if name not in before],
        "removed": [name for name in before if name not in survey.taken],
        "edited": [
            name
            for name in survey.taken
            if name in before and describe_file(survey.folder, name) != before[name]
        ],
    }
    found = [f"{len(each)} {what} ({each[0]})" for what, each in names.items() if each]
    return f"local files changed since they were fetched: {', '.join(found)}" if found else ""


def _check_sums(raw: Path, record: SourceRecord) -> None:
    for entry in record.files:
        found = describe_file(raw, entry.name)
        if found != entry:
            raise CorpusError(
                f"{entry.name} must be as it was received",
                found=f"sha256 {found.sha256} instead of {entry.sha256}",
                run=f"cog corpus fetch {raw.parent.name}",
            )


def _check_documents(corpus_paths: CorpusPaths) -> int:
    from cog.corpus.documents import DocumentStore, digest_records, load_prompts

    store = DocumentStore(corpus_paths.documents)
    report = store.load_report()
    _check_digest(corpus_paths.documents, digest_records(store.iter_documents()), report.digest)
    prompts = digest_records(load_prompts(corpus_paths.prompts))
    _check_digest(corpus_paths.prompts, prompts, report.prompts_digest)
    return store.num_documents


def _check_digest(path: Path, found: str, wanted: str) -> None:
    if found != wanted:
        raise CorpusError(
            f"{path.name} must have the digest of the corpus's report",
            found=f"{found[:16]} instead of {wanted[:16]}",
            run=f"cog corpus prepare {path.parent.name}",
        )
