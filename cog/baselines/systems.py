"""Systems by name: a project, a corpus and a name go in, an identity or what writes comes out."""

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from cog.baselines.in_context import InContextGenerator
from cog.baselines.knn_lm import describe_search, open_knn_lm
from cog.baselines.manifest import join_manifests, load_manifests
from cog.baselines.retro.folder import (
    digest_adapter,
    get_adapter_folder,
    load_adapter,
    load_record,
    open_retro_index,
)
from cog.baselines.retro.generator import RetroGenerator
from cog.baselines.system import (
    COPYING,
    IN_CONTEXT,
    KNN_LM,
    NEAREST_LAST,
    RETRO,
    TRANSFORMER,
    TUNED_TRANSFORMER,
    System,
    take_used,
)
from cog.baselines.transformer import TransformerGenerator
from cog.baselines.variants import KINDS
from cog.corpus.documents import documents_digest
from cog.decoding.batches import iter_batches
from cog.decoding.generator import CopyGenerator
from cog.decoding.request import Request
from cog.decoding.session import open_generator
from cog.errors import CheckpointError
from cog.index.versions.unions import JOIN, check_indexes, split_union
from cog.model.fingerprint import fingerprint_model
from cog.model.language_model import identify_tokenizer
from cog.model.load import load_model, resolve_device
from cog.model.matrices import choose_precision
from cog.params import Params
from cog.paths import ProjectPaths
from cog.records import Decoding, Generation

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
_STEPS = re.compile(r"^\W*steps\W+([\d,]+)", re.IGNORECASE | re.MULTILINE)  # in a model's card


class TextGenerator(Protocol):
    """Anything that continues texts; an evaluation knows nothing else of a system."""

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Write a batch of texts together; its seconds are divided by their number."""


def write_each(
    generator: TextGenerator, requests: Sequence[Request], *, batch_size: int
) -> Iterator[Generation]:
    """Write texts and give each, in the order asked, as soon as it and those before it are there.

    Texts of the copy-generator come and go, those of a baseline are written batch by batch.
    """
    if isinstance(generator, CopyGenerator):
        yield from generator.generate_each(requests, batch_size=batch_size)
        return
    for batch in iter_batches(requests, batch_size):
        yield from generator.generate(batch)


def identify_system(
    paths: ProjectPaths,
    params: Params,
    *,
    corpus_id: str,
    name: str,
    decoding: Decoding,
    device: str,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> System:
    """Check that what a system needs is there, and say what it is; no model is loaded.

    Raises ``IndexNotBuiltError`` or ``CheckpointError`` if its index, datastore, adapter or model
    is missing, ``IndexMismatchError`` if it belongs to another model or other documents.
    ``options`` are settings of a baseline that were tuned, in the place of the usual ones.
    """
    model = fingerprint_model(paths.model(params.model))
    chosen = resolve_device(device)
    common: dict[str, Any] = {
        "name": name,
        "corpus": corpus_id,
        "decoding": take_used(name, decoding),
        "device": chosen.type,
        "precision": choose_precision(params.generate.precision, chosen),
    }
    if name == TRANSFORMER:
        return System(model=model, **common)
    if name == TUNED_TRANSFORMER:
        folder = get_tuned_folder(paths, params, corpus_id)
        steps = read_training_steps(folder)
        return System(model=fingerprint_model(folder), training_steps=steps, **common)
    if name == KNN_LM:
        manifests = load_manifests(paths, corpus_id, model=model)
        datastore = join_manifests(manifests)
        return System(
            options=describe_search(replace(params.datastore, **options), manifests),
            index=datastore.digest,
            documents=datastore.documents_digest,
            model=model,
            num_index_words=datastore.num_entries,
            **common,
        )
    if options.get("placement", NEAREST_LAST) != NEAREST_LAST:
        common["options"] = dict(options)
    return _identify_with_index(paths, model, common)


def _identify_with_index(paths: ProjectPaths, model: str, common: dict[str, Any]) -> System:
    corpus_id = common["corpus"]
    manifests = check_indexes(
        map(paths.corpus, split_union(corpus_id)),
        model_fingerprint=model,
        documents_digest_of=lambda part: documents_digest(part.documents),
    )
    steps = None
    if common["name"] == RETRO:
        folder = get_adapter_folder(paths, corpus_id)
        record = load_record(folder, model=model)
        model = f"{model} {digest_adapter(folder, record)}"
        steps = operator.index(record.training.get("step", 0))
    return System(
        index=JOIN.join(each.digest for each in manifests),
        documents=JOIN.join(each.documents_digest for each in manifests),
        model=model,
        num_index_words=sum(each.num_words for each in manifests),
        training_steps=steps,
        **common,
    )


@contextmanager
def open_system(
    paths: ProjectPaths,
    params: Params,
    *,
    corpus_id: str,
    name: str,
    device: str,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> Iterator[TextGenerator]:
    """Load what a system needs for as long as the block runs."""
    precision = params.generate.precision
    if name in COPYING:
        make = KINDS.get(name, CopyGenerator)
        with open_generator(paths, params, corpus_id=corpus_id, device=device, make=make) as cog:
            yield cog
        return
    folder = paths.model(params.model)
    if name == TUNED_TRANSFORMER:
        folder = get_tuned_folder(paths, params, corpus_id)
    model = load_model(folder, device=device, precision=precision, keeps_modules=name == RETRO)
    if name == KNN_LM:
        yield open_knn_lm(
            paths, corpus_id, model=model, settings=replace(params.datastore, **options)
        )
        return
    if name in (RETRO, IN_CONTEXT):
        with open_retro_index(paths, params, corpus_id) as index:
            if name == IN_CONTEXT:
                yield InContextGenerator(model, index, **options)
                return
            adapter = load_adapter(get_adapter_folder(paths, corpus_id), model=model.fingerprint)
            yield RetroGenerator(model, index, adapter=adapter)
        return
    yield TransformerGenerator(model, corpus_id=corpus_id)


def get_tuned_folder(paths: ProjectPaths, params: Params, corpus_id: str) -> Path:
    """Where the model lies that was trained on a corpus with the objective ``tokens``.

    It must count tokens as the project's model does, or texts would differ in length.
    """
    folder = paths.root / "models" / f"tokens-{corpus_id}"
    is_union = len(split_union(corpus_id)) > 1
    text = "--data FILES" if is_union else f"--corpus {corpus_id}"
    run = f"cog train --objective tokens {text} --out models/{folder.name}"
    if not folder.is_dir():
        raise CheckpointError(
            f"the system transformer-ft needs a model in models/{folder.name}",
            found="no such folder",
            run=run,
            about=str(folder),
        )
    wanted = identify_tokenizer(paths.model(params.model))
    found = identify_tokenizer(folder)
    if found != wanted:
        raise CheckpointError(
            f"models/{folder.name} must have the tokenizer of {params.model}",
            found=f"{found:.16} instead of {wanted:.16}",
            run=f"{run}, with a profile of the same base model",
            about=str(folder),
        )
    return folder


def read_training_steps(folder: Path) -> int | None:
    """For how many steps a model was trained, as its card says; None if that does not."""
    try:
        found = _STEPS.search((folder / "README.md").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    return int(found[1].replace(",", "")) if found else None
