"""A session.

A project goes in, a generator on its active or a named corpus comes out, checked and ready.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from cog.corpus.documents import documents_digest
from cog.decoding.generator import CopyGenerator
from cog.decoding.licences import LicenceRule, check_rule
from cog.errors import IndexMismatchError, NothingActiveError
from cog.index.activation import get_model_folder
from cog.index.reader import PhraseIndex, open_index
from cog.model.fingerprint import fingerprint_model
from cog.model.load import load_model
from cog.params import Params
from cog.paths import ProjectPaths
from cog.records import Active
from cog.registry import load_active, load_card

OPEN_RULE = LicenceRule()


def choose_corpus(paths: ProjectPaths, corpus_id: str | None) -> tuple[str, Active | None]:
    """Say which corpus is meant.

    :param paths: The project.
    :param corpus_id: A corpus id, or None for the active one.
    :returns: The corpus id, and what is active if that was asked for.
    :raises NothingActiveError: If no id was given and nothing is switched on.
    """
    if corpus_id is not None:
        return load_card(paths, corpus_id).id, None
    active = load_active(paths)
    if active is None:
        raise NothingActiveError(
            "a corpus must be switched on or named",
            found="none",
            run="cog switch --corpus <id>, or pass --corpus <id>",
        )
    return active.corpus, active


@contextmanager
def open_generator(
    paths: ProjectPaths,
    params: Params,
    *,
    corpus_id: str | None,
    device: str,
    licences: LicenceRule = OPEN_RULE,
) -> Iterator[CopyGenerator]:
    """Load the model and open an index for as long as the block runs.

    :param paths: The project.
    :param params: Its parameters.
    :param corpus_id: A corpus id, or None for the active one.
    :param device: ``cpu``, ``cuda`` or ``auto``.
    :param licences: Which documents may be copied from.
    :yields: The generator.
    :raises IndexMismatchError: If the active index was rebuilt since it was switched on.
    """
    chosen, active = choose_corpus(paths, corpus_id)
    corpus_paths = paths.corpus(chosen)
    folder = get_model_folder(paths, params)
    documents = corpus_paths.documents
    with open_index(
        corpus_paths,
        locks=paths.locks,
        corpus_id=chosen,
        model_fingerprint=fingerprint_model(folder),
        documents_digest=documents_digest(documents) if documents.is_file() else None,
    ) as index:
        if active is not None and active.index != index.manifest.digest:
            raise IndexMismatchError(
                f"the active index of {chosen} is {active.index[:12]}",
                found=f"{index.manifest.digest[:12]}, which was built since",
                run=f"cog switch --corpus {chosen}",
                about=chosen,
            )
        allowed = _allowed_chunks(index, licences, corpus_id=chosen)
        yield CopyGenerator(load_model(folder, device=device), index, allowed_chunks=allowed)


def _allowed_chunks(
    index: PhraseIndex, rule: LicenceRule, *, corpus_id: str
) -> NDArray[np.bool_] | None:
    if rule.is_open:
        return None
    licences = index.document_licences()
    check_rule(rule, licences, corpus_id=corpus_id)
    is_admitted = np.array([rule.admits(licence) for licence in licences])
    return is_admitted[index.chunk_documents()]
