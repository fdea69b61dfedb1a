"""What decides a system's texts: a project and a name go in, digests come out without a model."""

import hashlib
import json
from dataclasses import asdict, dataclass

from cog.baselines.manifest import join_manifests, load_manifests
from cog.baselines.names import KNN_LM, RETRO, TRANSFORMER, TUNED_TRANSFORMER
from cog.baselines.retro.folder import digest_adapter, load_record
from cog.baselines.retro.project import get_adapter_folder
from cog.baselines.tuned import get_tuned_folder
from cog.corpus.documents import documents_digest
from cog.index.versions.unions import JOIN, check_indexes
from cog.model.fingerprint import fingerprint_model
from cog.params import Params
from cog.paths import ProjectPaths


@dataclass(frozen=True, slots=True)
class SystemIdentity:
    """What decides the texts of a system, apart from prompts and decoding.

    :param system: Its name.
    :param index: Digest of what it copies from or searches; empty for nothing. The settings of a
        search are digested with it.
    :param documents: Digest of the documents behind that; empty for nothing.
    :param model: Fingerprint of its model.
    :param num_index_words: Number of words, or of entries, that are searched.
    """

    system: str
    index: str
    documents: str
    model: str
    num_index_words: int


def identify_system(
    paths: ProjectPaths, params: Params, *, corpus_id: str, system: str
) -> SystemIdentity:
    """Check that what a system needs is there, and say what it is.

    :param paths: The project.
    :param params: Its parameters.
    :param corpus_id: A corpus id, or several joined with ``+``.
    :param system: One of ``SYSTEMS``.
    :returns: The identity.
    :raises IndexNotBuiltError: If its index or datastore is not built.
    :raises IndexMismatchError: If that belongs to another model or other documents.
    :raises CheckpointError: If its adapter or model is missing, or does not fit.
    """
    model = fingerprint_model(paths.model(params.model))
    if system == TRANSFORMER:
        return SystemIdentity(system, "", "", model, 0)
    if system == TUNED_TRANSFORMER:
        tuned = fingerprint_model(get_tuned_folder(paths, params, corpus_id))
        return SystemIdentity(system, "", "", tuned, 0)
    if system == KNN_LM:
        datastore = join_manifests(load_manifests(paths, corpus_id, model=model))
        settings = json.dumps(asdict(params.datastore), sort_keys=True)
        joined = hashlib.sha256(f"{datastore.digest} {settings}".encode()).hexdigest()
        return SystemIdentity(
            system, joined, datastore.documents_digest, model, datastore.num_entries
        )
    manifests = check_indexes(
        paths,
        corpus_id,
        model_fingerprint=model,
        documents_digest_of=lambda part: documents_digest(part.documents),
    )
    digest = JOIN.join(each.digest for each in manifests)
    if system == RETRO:
        folder = get_adapter_folder(paths, corpus_id)
        adapter = digest_adapter(folder, load_record(folder, model=model))
        digest = hashlib.sha256(f"{digest} {adapter}".encode()).hexdigest()
    documents = JOIN.join(each.documents_digest for each in manifests)
    num_words = sum(each.num_words for each in manifests)
    return SystemIdentity(system, digest, documents, model, num_words)
