"""A session.

A project goes in, a generator on its active or a named corpus comes out, checked and ready.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

from cog.corpus.documents import find_documents_digest
from cog.decoding.generator import CopyGenerator
from cog.decoding.licences import CopyRule, check_documents, check_left, check_rule
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.search.filters import AllowedChunks
from cog.index.versions.activation import choose_corpus, get_active_model
from cog.index.versions.unions import split_active, split_union
from cog.model.fingerprint import fingerprint_model
from cog.model.load import load_model
from cog.params import Params
from cog.paths import ProjectPaths

OPEN_RULE = CopyRule()


@contextmanager
def open_generator(
    paths: ProjectPaths,
    params: Params,
    *,
    corpus_id: str | None,
    device: str,
    rule: CopyRule = OPEN_RULE,
    make: type[CopyGenerator] = CopyGenerator,
) -> Iterator[CopyGenerator]:
    """Load the model and open an index for as long as the block runs.

    What is active is opened at the version that was switched on, also if it was rebuilt since, and
    with the model that was switched on, also if params.yaml names another one since. A corpus id
    may be several joined with ``+``, or None for what is active.
    """
    chosen, active = choose_corpus(paths, corpus_id)
    if active is None:
        folder = paths.model(params.model)
        fingerprint = fingerprint_model(folder)
    else:
        folder, fingerprint = get_active_model(paths, params, active), active.model
    with open_index(
        *map(paths.corpus, split_union(chosen)),
        model_fingerprint=fingerprint,
        documents_digest_of=find_documents_digest if active is None else None,
        digests=split_active(active) if active is not None else None,
    ) as index:
        allowed = find_allowed_chunks(index, rule, corpus_id=chosen)
        model = load_model(folder, device=device, precision=params.generate.precision)
        yield make(model, index, allowed_chunks=allowed)


def find_allowed_chunks(
    index: PhraseIndex, rule: CopyRule, *, corpus_id: str
) -> AllowedChunks | None:
    """Find the chunks that a rule admits; None for all.

    Raises ``GenerationError`` if the rule names what is not there, or leaves nothing.
    """
    if rule.is_open:
        return None
    licences = index.count_licences()
    check_rule(rule, licences, corpus_id=corpus_id)
    ordinals = index.find_documents(rule.excluded)
    check_documents(ordinals, num_documents=index.num_documents, corpus_id=corpus_id)
    allowed = index.allow(
        [each for each in licences if rule.admits_licence(each)], excluded=chain(*ordinals.values())
    )
    check_left(allowed.num_chunks, corpus_id=corpus_id)
    return allowed
