"""params.yaml: a file goes in, one frozen dataclass per stage comes out, every key checked."""

import difflib
from dataclasses import MISSING, asdict, dataclass, fields, make_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml

from cog.errors import ParamsError
from cog.records import Decoding

# ten times faster where PyYAML was built with it
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class CorpusEntry:
    """One corpus that the pipeline builds.

    :param root: Id of the card that names the source: the corpus itself or the one it extends.
    """

    root: str


@dataclass(frozen=True, slots=True)
class FetchParams:
    """Stage ``fetch``.

    :param retries: Number of times a broken connection is tried again.
    :param timeout_seconds: Seconds after which one try is given up.
    """

    retries: int
    timeout_seconds: int


@dataclass(frozen=True, slots=True)
class PrepareParams:
    """Stage ``prepare``.

    :param prompt_tokens: Number of prefix-encoder tokens of a held-out prompt.
    :param reference_tokens: Number of tokens that follow it.
    """

    prompt_tokens: int
    reference_tokens: int


@dataclass(frozen=True, slots=True)
class IndexParams:
    """Stage ``index``.

    :param vector_dtype: ``int8`` (one scale per vector) or ``float16``.
    :param batch_tokens: Number of WordPieces encoded in one pass.
    :param commit_chunks: Number of chunks per LanceDB write.
    :param ivf_threshold_rows: Number of chunks up to which search is flat.
    :param recall_at: The k at which the search's recall against exact search is measured.
    :param min_recall: Recall below which a vector index is refused.
    :param num_probe_prefixes: Number of held-out prefixes on which the storage format is measured.
    :param keep_versions: Number of replaced versions that stay, besides those that are switched on
        or that a rollback goes back to; it decides nothing of an index.
    """

    vector_dtype: str
    batch_tokens: int
    commit_chunks: int
    ivf_threshold_rows: int
    recall_at: int
    min_recall: float
    num_probe_prefixes: int
    keep_versions: int

    def __post_init__(self) -> None:
        if self.keep_versions < 0:
            raise ParamsError(
                "index.keep_versions must be 0 or more",
                found=str(self.keep_versions),
                about="index.keep_versions",
            )

    def list_decisive(self) -> dict[str, object]:
        """What decides the bytes of an index.

        :returns: Settings by name.
        """
        return {name: value for name, value in asdict(self).items() if name != "keep_versions"}


@dataclass(frozen=True, slots=True)
class GenerateParams:
    """Stage ``generate``, and the defaults of ``cog generate``.

    :param num_prompts: Number of held-out prompts the stage continues.
    :param batch_size: Number of prompts decoded together.
    :param decoding: How texts are written; its settings stand in the section itself, the method
        as ``decoding``.
    """

    num_prompts: int
    batch_size: int
    decoding: Decoding


@dataclass(frozen=True, slots=True)
class EvaluateParams:
    """Stage ``evaluate``, and the defaults of ``cog evaluate``.

    :param protocol: ``default``, ``paper-iclr2023`` or ``authors-script``.
    :param num_prompts: Number of held-out prompts, at most.
    :param num_seeds: Number of texts per prompt, with seeds that count up from 0.
    :param batch_size: Number of texts decoded together.
    :param prompt_tokens: Number of tokens of a prompt.
    :param generation_tokens: Number of tokens appended, and of a reference.
    :param featuriser: Model of MAUVE and perplexity: ``packaged``, a hub name, or a folder.
    :param featuriser_layers: Layers of it whose hidden states MAUVE compares; -1 for the last.
    :param max_contamination: Share of the references' 13-grams in the index above which an
        evaluation is refused.
    """

    protocol: str
    num_prompts: int
    num_seeds: int
    batch_size: int
    prompt_tokens: int
    generation_tokens: int
    featuriser: str
    featuriser_layers: list[int]
    max_contamination: float


@dataclass(frozen=True, slots=True)
class DatastoreParams:
    """Stage ``datastore``, and the settings of the system ``knn-lm``.

    :param corpora: Corpora that the pipeline builds one for, as keys; none unless asked.
    :param context_tokens: Number of tokens of a document read in one pass.
    :param overlap_tokens: Number of those that only give context.
    :param batch_tokens: Number of tokens encoded together.
    :param flat_threshold_rows: Number of entries up to which search is exact.
    :param num_probes: Number of lists of the IVF-PQ index that are read.
    :param rerank_factor: Number of entries proposed per neighbour wanted.
    :param recall_at: The k at which recall against exact search is measured.
    :param min_recall: Recall below which a datastore is refused.
    :param top_k: Number of neighbours (k).
    :param weight: Share of the neighbours in the distribution (lambda).
    :param distance_scale: What a squared distance is multiplied with (alpha).
    :param temperature: What it is divided by.
    """

    corpora: dict[str, Any]
    context_tokens: int
    overlap_tokens: int
    batch_tokens: int
    flat_threshold_rows: int
    num_probes: int
    rerank_factor: int
    recall_at: int
    min_recall: float
    top_k: int
    weight: float
    distance_scale: float
    temperature: float


@dataclass(frozen=True, slots=True)
class RetroParams:
    """Stage ``retro``, and the settings of ``cog retro train``.

    :param corpora: Corpora that the pipeline fits an adapter on, as keys; none unless asked.
    :param chunk_tokens: Number of tokens after which neighbours are retrieved anew.
    :param num_neighbours: Number of neighbours of a chunk (k).
    :param neighbour_tokens: Number of tokens of a neighbour, at most.
    :param continuation_tokens: Number of tokens of what follows it, at most.
    :param first_cross_layer: First layer of the prefix encoder that attends to neighbours, from 1.
    :param cross_layer_step: Number of layers from one that attends to the next.
    :param encoder_layers: Number of layers of the encoder of neighbours.
    :param window_tokens: Number of tokens of a training window, at most.
    :param windows_per_batch: Number of windows of a batch.
    :param accumulation_steps: Number of batches whose gradients make one step.
    :param learning_rate: Largest learning rate.
    :param gate_rate: Largest learning rate of the gates.
    :param max_steps: Number of optimiser steps, unless the command line says otherwise.
    :param warmup_share: Share of the run in which the rates rise.
    :param final_rate_share: Rate at the end, as a share of the largest.
    :param weight_decay: Factor of AdamW's decay, on matrices.
    :param max_gradient_norm: Norm to which gradients are cut.
    :param held_out_share: Share of the documents that is set aside for validation.
    :param validation_batches: Number of batches of them that are looked at; 0 for no validation.
    :param validation_steps: Number of steps between two validations.
    :param checkpoint_steps: Number of steps between two checkpoints.
    :param precision: ``float32``, ``bfloat16``, or ``auto``: the latter on a GPU and on processors
        with matrix units for it.
    :param seed: Seed of weights, order and what is held out.
    """

    corpora: dict[str, Any]
    chunk_tokens: int
    num_neighbours: int
    neighbour_tokens: int
    continuation_tokens: int
    first_cross_layer: int
    cross_layer_step: int
    encoder_layers: int
    window_tokens: int
    windows_per_batch: int
    accumulation_steps: int
    learning_rate: float
    gate_rate: float
    max_steps: int
    warmup_share: float
    final_rate_share: float
    weight_decay: float
    max_gradient_norm: float
    held_out_share: float
    validation_batches: int
    validation_steps: int
    checkpoint_steps: int
    precision: str
    seed: int


@dataclass(frozen=True, slots=True)
class SegmentParams:
    """Stage ``segment``, and the defaults of ``cog segment``.

    :param source: Where a phrase may come from: ``corpus`` (every other document, exactly) or
        ``retrieved`` (the nearest chunks of other documents).
    :param top_k_documents: Number of chunks that are near, for ``retrieved``.
    """

    source: str
    top_k_documents: int


@dataclass(frozen=True, slots=True)
class TrainParams:
    """Stage ``train``, and the defaults of ``cog train``.

    :param profile: Name of the profile that is trained.
    :param corpora: Corpora that the pipeline segments and trains on, as keys; none unless asked.
    :param profiles: Profiles by name; ``cog.training.recipe`` reads one.
    """

    profile: str
    corpora: dict[str, Any]
    profiles: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Params:
    """The whole of params.yaml.

    :param corpora: What the pipeline builds, by corpus id.
    :param model: Folder of the trained model, relative to the project.
    :param fetch: Section of the stage.
    :param prepare: Section of the stage.
    :param index: Section of the stage.
    :param generate: Section of the stage.
    :param evaluate: Section of the stage.
    :param datastore: Section of the stage.
    :param retro: Section of the stage.
    :param segment: Section of the stage.
    :param train: Section of the stage.
    """

    corpora: dict[str, CorpusEntry]
    model: str
    fetch: FetchParams
    prepare: PrepareParams
    index: IndexParams
    generate: GenerateParams
    evaluate: EvaluateParams
    datastore: DatastoreParams
    retro: RetroParams
    segment: SegmentParams
    train: TrainParams


SECTIONS = {
    "fetch": FetchParams,
    "prepare": PrepareParams,
    "index": IndexParams,
    "evaluate": EvaluateParams,
    "datastore": DatastoreParams,
    "retro": RetroParams,
    "segment": SegmentParams,
    "train": TrainParams,
}


def load_params(path: Path) -> Params:
    """Read params.yaml.

    :param path: The file.
    :returns: Its content, checked.
    :raises ParamsError: If the file is missing or malformed, or a key is unknown, missing or of
        the wrong type.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_SafeLoader)
    except FileNotFoundError:
        raise ParamsError(f"{path.name} is needed", found="no such file", about=str(path)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ParamsError(f"{path.name} must be YAML", found=str(error), about=str(path)) from error
    if not isinstance(content, dict):
        raise ParamsError(
            f"{path.name} must be a mapping", found=type(content).__name__, about=str(path)
        )
    _check_keys(content, known=[field.name for field in fields(Params)], where=path.name)
    corpora = content["corpora"] or {}
    if not isinstance(corpora, dict):
        raise ParamsError(
            "corpora must map corpus ids to entries", found=type(corpora).__name__, about="corpora"
        )
    return Params(
        corpora={
            name: read_section(CorpusEntry, entry, where=f"corpora.{name}")
            for name, entry in corpora.items()
        },
        model=str(content["model"]),
        generate=_read_generate(content["generate"]),
        **{name: read_section(kind, content[name], where=name) for name, kind in SECTIONS.items()},
    )


def _read_generate(content: object) -> GenerateParams:
    # one flat section, two records; what an older file does not name is as it was
    if isinstance(content, dict):
        content = _UNNAMED | content
    found = read_section(_GenerateSection, content, where="generate")
    values = asdict(found)
    own = values.pop("num_prompts"), values.pop("batch_size")
    return GenerateParams(*own, Decoding(method=values.pop("decoding"), **values))


_UNNAMED = {each.name: each.default for each in fields(Decoding) if each.default is not MISSING}
_GenerateSection = make_dataclass(
    "_GenerateSection",
    [("num_prompts", int), ("batch_size", int), ("decoding", str)]
    + [(each.name, each.type) for each in fields(Decoding) if each.name != "method"],
    frozen=True,
)


def read_section(kind: type[Any], content: object, *, where: str) -> Any:  # noqa: ANN401
    """Read a mapping of plain values into a record.

    :param kind: A dataclass whose fields are of plain types.
    :param content: What YAML gave.
    :param where: Its dotted path, for messages.
    :returns: The record.
    :raises ParamsError: If a key is unknown or missing, or a value of the wrong type.
    """
    if not isinstance(content, dict):
        raise ParamsError(
            f"section {where} must be a mapping", found=type(content).__name__, about=where
        )
    _check_keys(content, known=[field.name for field in fields(kind)], where=where)
    values: dict[str, object] = {}
    for field in fields(kind):
        value = content[field.name]
        if field.type is float and type(value) is int:
            value = float(value)
        if field.type is str and value is False:
            value = "off"  # which YAML 1.1 reads as a truth value
        if not _is_of_type(value, field.type):
            wanted = _name(field.type)
            raise ParamsError(
                f"{where}.{field.name} must be of type {wanted}", found=repr(value), about=where
            )
        values[field.name] = value
    return kind(**values)


def _is_of_type(value: object, wanted: Any) -> bool:  # noqa: ANN401
    if type(value) is not (get_origin(wanted) or wanted):
        return False
    return not isinstance(value, list) or all(type(each) in get_args(wanted) for each in value)


def _name(wanted: Any) -> str:  # noqa: ANN401
    if get_origin(wanted) is list:
        return str(wanted)
    return str(getattr(get_origin(wanted) or wanted, "__name__", wanted))


def _check_keys(content: dict[str, object], *, known: list[str], where: str) -> None:
    for key in content:
        if key not in known:
            nearest = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)
            raise ParamsError(
                f"{where} has no key {key!r}",
                found=f"nearest known key {nearest[0]!r}",
                about=where,
            )
    missing = [key for key in known if key not in content]
    if missing:
        raise ParamsError(f"{where} needs the key {missing[0]!r}", found="no such key", about=where)
