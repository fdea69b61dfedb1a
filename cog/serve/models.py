"""``/v1/models``: a project goes in, the corpora that can be written from come out."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from starlette.requests import Request

from cog.errors import CogError
from cog.index.records import Manifest
from cog.index.versions.manifest import load_manifest
from cog.index.versions.unions import JOIN, split_active
from cog.paths import ProjectPaths
from cog.registry import iter_corpus_ids, load_active, load_card
from cog.serve.engine import Engine
from cog.serve.errors import ApiError


def tell_models(engine: Engine, _request: Request) -> dict[str, Any]:
    """Every corpus or active union that can be written from."""
    return {"object": "list", "data": list(iter_models(engine))}


def tell_model(engine: Engine, request: Request) -> dict[str, Any]:
    """One of them, or a union of some."""
    wanted = request.path_params["model"]
    found = {each["id"]: each for each in iter_models(engine)}
    if wanted in found:
        return found[wanted]
    if JOIN in wanted:
        version = engine.indexes.resolve(wanted)
        parts = [found[part] for part in version.digests if part in found]
        if len(parts) == len(version.digests):
            return _join(parts, version.corpus, version.index, is_active=False)
    raise ApiError(
        404,
        f"the model must be a corpus that can be written from; found: {wanted[:80]!r}; next: GET "
        "/v1/models lists them",
        code="model_not_found",
    )


def iter_models(engine: Engine) -> Iterator[dict[str, Any]]:
    """Describe what can be written from."""
    paths, model = engine.paths, engine.model.fingerprint
    active = None
    with suppress(CogError):
        active = load_active(paths)
    if active is not None and len(active.corpora) > 1 and active.model == model:
        with suppress(CogError):
            parts = [
                _describe(paths, load_manifest(paths.corpus(part)), is_active=True)
                for part in split_active(active)
            ]
            yield _join(parts, active.corpus, active.index, is_active=True)
    for corpus_id in iter_corpus_ids(paths):
        with suppress(CogError):  # no index, or one that cannot be read
            manifest = load_manifest(paths.corpus(corpus_id))
            if manifest.model == model:
                is_active = active is not None and active.corpus == corpus_id
                yield _describe(paths, manifest, is_active=is_active)


def _describe(paths: ProjectPaths, manifest: Manifest, *, is_active: bool) -> dict[str, Any]:
    card = load_card(paths, manifest.corpus)
    return {
        "id": card.id,
        "object": "model",
        "created": int(datetime.fromisoformat(manifest.built_at).timestamp()),
        "owned_by": "cog",
        "title": card.title,
        "licence": card.licence.id,
        "language": card.language,
        "words": manifest.num_words,
        "documents": manifest.documents.num_indexed,
        "index": manifest.digest,
        "model": manifest.model,
        "is_active": is_active,
    }


def _join(
    parts: Sequence[dict[str, Any]], corpus: str, index: str, *, is_active: bool
) -> dict[str, Any]:
    joined = {
        name: JOIN.join(dict.fromkeys(each[name] for each in parts))
        for name in ("title", "licence", "language")
    }
    sums = {name: sum(each[name] for each in parts) for name in ("words", "documents")}
    created = max(each["created"] for each in parts)
    own = {"id": corpus, "created": created, "index": index, "is_active": is_active}
    return {**parts[0], **own, **joined, **sums}
