"""RETRO in a project: a corpus id goes in, where its adapter lies, or an open index, comes out."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cog.baselines.retro.folder import CONFIG_FILE
from cog.corpus.documents import find_documents_digest
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.versions.unions import split_union
from cog.model.fingerprint import fingerprint_model
from cog.params import Params
from cog.paths import ProjectPaths

ADAPTER_FOLDER = Path("models", "retro")


def get_adapter_folder(paths: ProjectPaths, corpus_id: str) -> Path:
    """Where the adapter of the system ``retro`` lies: the corpus's own, or that of all."""
    own = paths.corpus(corpus_id).retro
    return own if (own / CONFIG_FILE).is_file() else paths.root / ADAPTER_FOLDER


@contextmanager
def open_retro_index(paths: ProjectPaths, params: Params, corpus_id: str) -> Iterator[PhraseIndex]:
    """Open the index that neighbours come from, held against the model and the documents."""
    with open_index(
        *map(paths.corpus, split_union(corpus_id)),
        locks=paths.locks,
        model_fingerprint=fingerprint_model(paths.model(params.model)),
        documents_digest_of=find_documents_digest,
    ) as index:
        yield index
