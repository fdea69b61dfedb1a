"""``/api/corpora`` and switches: a project goes in, the registry and its corpora come out."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import numpy as np
from starlette.requests import Request

from cog.corpus.documents import DocumentStore
from cog.corpus.listing import ListedCorpus, list_corpora
from cog.corpus.stats import describe_corpus
from cog.doctor.project import examine
from cog.errors import CogError, IndexNotBuiltError, RegistryError
from cog.index.read.diff import compare_versions
from cog.index.records import Manifest
from cog.index.versions.activation import Change, get_status, rollback_corpus, switch_corpus
from cog.index.versions.folders import iter_kept
from cog.index.versions.manifest import load_manifest
from cog.index.versions.resolve import list_versions
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.registry import load_card, load_previous, load_resolved_card
from cog.serve.bodies import EmptyBody, SwitchBody
from cog.serve.documents import read_number
from cog.serve.engine import Engine
from cog.serve.errors import ApiError, state_error
from cog.switch_log import load_history

MAX_SAMPLES = 50
SAMPLE_CHARACTERS = 800
MAX_NAMED = 200  # documents of a kind that a diff names


def tell_registry(engine: Engine, _request: Request) -> dict[str, Any]:
    """The table of corpora, what is switched on, and what a rollback goes back to."""
    paths = engine.paths
    status = get_status(paths)
    previous = None
    with suppress(CogError):
        previous = next(iter(load_previous(paths)), None)
    return {
        "active": asdict(status.active) if status.active else None,
        "rollback_to": asdict(previous) if previous else None,
        "problem": status.problem,
        "run": status.run,
        "corpora": [_describe_row(engine, each) for each in list_corpora(paths)],
    }


def tell_corpus(engine: Engine, request: Request) -> dict[str, Any]:
    """The card of a corpus, and what is built of it."""
    corpus_id = request.path_params["corpus_id"]
    card = load_resolved_card(engine.paths, corpus_id)
    index = None
    with suppress(CogError):
        index = asdict(load_manifest(engine.paths.corpus(corpus_id)))
        index["files"] = len(index["files"])
    (listed,) = [each for each in list_corpora(engine.paths) if each.id == corpus_id]
    content = describe_corpus(engine.paths, card).to_json()
    return {
        "id": corpus_id,
        **{name: content[name] for name in ("card", "fetched", "prepared")},
        "index": index,
        "row": _describe_row(engine, listed),
    }


def tell_samples(engine: Engine, request: Request) -> dict[str, Any]:
    """The beginnings of a few documents, drawn by a seed."""
    paths = _get_paths(engine, request)
    num, seed = read_number(request, "num"), read_number(request, "seed")
    store = DocumentStore(paths.corpus(request.path_params["corpus_id"]).documents)
    num = min(5 if num is None else num, MAX_SAMPLES, store.num_documents)
    random = np.random.default_rng(seed or 0)
    ordinals = random.choice(store.num_documents, size=num, replace=False).tolist()
    found = {}
    for ordinal, document in enumerate(store.iter_documents()):
        if ordinal in ordinals:
            found[ordinal] = {
                "document_id": document.document_id,
                "title": document.title,
                "url": document.url,
                "text": document.text[:SAMPLE_CHARACTERS],
                "num_characters": len(document.text),
            }
        if len(found) == num:
            break
    return {"samples": [found[ordinal] for ordinal in ordinals]}


def tell_versions(engine: Engine, request: Request) -> dict[str, Any]:
    """The built versions of a corpus, wherever they lie."""
    paths = _get_paths(engine, request)
    versions = list_versions(paths, request.path_params["corpus_id"])
    return {"versions": [asdict(each) for each in versions]}


def tell_diff(engine: Engine, request: Request) -> dict[str, Any]:
    """What differs between two versions of a corpus."""
    paths, corpus_id = _get_paths(engine, request), request.path_params["corpus_id"]
    before, after = (request.query_params.get(name) or None for name in ("before", "after"))
    found = asdict(
        compare_versions(paths, corpus_id, params=engine.params, before=before, after=after)
    )
    for name in ("added", "removed", "changed"):
        found[f"num_{name}"] = len(found[name])
        found[name] = found[name][:MAX_NAMED]
    return found


def tell_history(engine: Engine, request: Request) -> dict[str, Any]:
    """Who switched on what when, newest first; of one corpus, if one is named."""
    corpus_id = request.path_params.get("corpus_id")
    if corpus_id is not None:
        load_card(engine.paths, corpus_id)
    entries, _ = load_history(engine.paths)
    kept = [asdict(each) for each in reversed(entries)]
    if corpus_id is not None:
        kept = [each for each in kept if _names(each, corpus_id)]
    return {"entries": kept}


def tell_findings(engine: Engine, request: Request) -> dict[str, Any]:
    """What is wrong with a project, or with one corpus of it; rows of indexes are left unread."""
    corpus_id = request.path_params.get("corpus_id")
    if corpus_id is not None:
        load_card(engine.paths, corpus_id)
    found = examine(engine.paths, corpus_id, progress=SilentProgress(), is_quick=True)
    return {"findings": [asdict(each) for each in found]}


def _get_paths(engine: Engine, request: Request) -> ProjectPaths:
    load_card(engine.paths, request.path_params["corpus_id"])
    return engine.paths


def _names(entry: dict[str, Any], corpus_id: str) -> bool:
    sides = (entry["before"], entry["after"])
    return any(side and corpus_id in side["corpus"].split("+") for side in sides)


def _describe_row(engine: Engine, listed: ListedCorpus) -> dict[str, Any]:
    place = engine.paths.corpus(listed.id)
    manifest, error, run = None, listed.error, None
    try:
        manifest = load_manifest(place) if error is None else None
    except IndexNotBuiltError as missing:
        run = missing.run
    except CogError as broken:
        error, run = str(broken), broken.run
    states = {
        "broken": error is not None,
        "indexed": manifest is not None,
        "prepared": listed.is_prepared,
        "fetched": place.raw.exists(),
        "listed": True,
    }
    state = next(name for name, is_so in states.items() if is_so)
    row = {name: getattr(listed, name) for name in ("id", "title", "language", "licence")}
    row |= {"extends": listed.extends, "source": listed.source, "state": state}
    return {**row, **_describe_index(engine, listed, manifest), "error": error, "run": run}


def _describe_index(
    engine: Engine, listed: ListedCorpus, manifest: Manifest | None
) -> dict[str, Any]:
    place = engine.paths.corpus(listed.id)
    kept = {each.digest for _, each in iter_kept(place)}
    content: dict[str, Any] = dict.fromkeys(("documents", "words", "built_at", "index", "model"))
    if manifest is not None:
        kept.add(manifest.digest)
        content = {
            "documents": manifest.documents.num_indexed,
            "words": manifest.num_words,
            "built_at": manifest.built_at,
            "index": manifest.digest,
            "model": manifest.model,
        }
    return {
        **content,
        "versions": len(kept),
        "is_active": listed.is_active,
        "is_other_model": manifest is not None and manifest.model != engine.model.fingerprint,
    }


def switch(engine: Engine, _request: Request, body: SwitchBody) -> dict[str, Any]:
    """Make a corpus the active one; what was active, and what is."""
    words = f"cog switch {body.corpus}" + (f" --index {body.index}" if body.index else "")
    return _change(lambda: switch_corpus(engine.paths, body.corpus, index=body.index), words=words)


def roll_back(engine: Engine, _request: Request, _body: EmptyBody) -> dict[str, Any]:
    """Go back to what was active before; what was active, and what is."""
    return _change(lambda: rollback_corpus(engine.paths), words="cog rollback")


def _change(work: Callable[[], Change], *, words: str) -> dict[str, Any]:
    try:
        change = work()
    except CogError as error:
        stated = state_error(error)
        if isinstance(error, RegistryError) and stated.status == 400:
            stated = ApiError(409, stated.message, code="refused", run=stated.run)
        raise stated from error
    return {
        "before": asdict(change.before) if change.before else None,
        "after": asdict(change.after),
        "is_change": change.is_change,
        "command": words,
    }
