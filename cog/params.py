"""params.yaml: a file goes in, a checked record per stage comes out; what it lacks is as here."""

from dataclasses import asdict, dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any

from cog.errors import ParamsError
from cog.profiles import Profile
from cog.reading import (
    Count,
    Factor,
    FieldError,
    Natural,
    OneOf,
    PositiveFactor,
    Range,
    Share,
    Via,
    read_record,
)
from cog.records import AUTO, PRECISIONS, Decoding, check_threshold
from cog.yaml_file import open_yaml

# How texts are written unless params.yaml says otherwise. The record's own defaults are the
# paper's, and what a text was written with before there was a setting.
RECOMMENDED = Decoding(
    top_k_documents=128,
    min_bits=30.0,
    copy_once=True,
    guard_names=True,
    no_repeat_ngram=6,
    phrase_bias=5.0,
    pool_bias=True,
    first_token_weight=1.0,
    relevance_weight=20.0,
    relevance_level=0.61,
    far_ratio=0.4,
    context_weight=2.0,
    verify="absolute",
    verify_threshold=0.0002,
    trust=0.6,
    span_words=16,
    span_ratio=0.001,
)

LOCAL = "local"
INDECISIVE = ("keep_versions", "engine")  # settings of an index that decide nothing of it

# what an older cog kept in this file, and registry/pipeline.yaml has now
MOVED = ("corpora", "datastore.corpora", "retro.corpora", "train.corpora")


@dataclass(frozen=True, slots=True)
class FetchParams:
    """Stage ``fetch``.

    :param retries: Number of times a broken connection is tried again.
    :param timeout_seconds: Seconds after which one try is given up.
    """

    retries: Natural = 3
    timeout_seconds: Count = 600


@dataclass(frozen=True, slots=True)
class PrepareParams:
    """Stage ``prepare``.

    :param prompt_tokens: Number of prefix-encoder tokens of a held-out prompt.
    :param reference_tokens: Number of tokens that follow it.
    """

    prompt_tokens: Count = 32
    reference_tokens: Count = 128


@dataclass(frozen=True, slots=True)
class IndexParams:
    """Stage ``index``.

    :param vector_dtype: ``int8`` (one scale per vector), ``float16``, or ``compact`` (few bits).
    :param batch_tokens: Number of WordPieces encoded in one pass.
    :param commit_chunks: Number of chunks per LanceDB write.
    :param ivf_threshold_rows: Number of chunks up to which search is flat; above, it is on disk.
    :param recall_at: The k at which the search's recall against exact search is measured.
    :param min_recall: Recall below which a vector index is refused.
    :param num_probe_prefixes: Number of held-out prefixes on which the storage format is measured.
    :param keep_versions: Number of replaced versions that stay, besides those that are switched on
        or that a rollback goes back to; it decides nothing of an index.
    :param engine: Who encodes: ``local``, this process, or ``ray``, a cluster; nor does it.
    """

    vector_dtype: Annotated[str, OneOf(("int8", "float16", "compact"))] = "int8"
    batch_tokens: Count = 4096
    commit_chunks: Count = 2048
    ivf_threshold_rows: Natural = 100_000
    recall_at: Count = 100
    min_recall: Share = 0.9
    num_probe_prefixes: Natural = 32
    keep_versions: Natural = 2
    engine: Annotated[str, OneOf((LOCAL, "ray"))] = LOCAL

    def list_decisive(self) -> dict[str, object]:
        """The settings that decide the bytes of an index."""
        return {name: value for name, value in asdict(self).items() if name not in INDECISIVE}


@dataclass(frozen=True, slots=True)
class GenerateParams:
    """Stage ``generate``, and the defaults of ``cog generate``.

    :param num_prompts: Number of held-out prompts the stage continues.
    :param batch_size: Number of prompts decoded together.
    :param precision: Of the prefix encoder's matrices; ``auto`` for bfloat16 where
        the device multiplies it fast, else float32.
    :param decoding: How texts are written; its settings stand in the section itself, the method
        as ``decoding``.
    """

    num_prompts: Count = 4
    batch_size: Count = 4
    precision: Annotated[str, OneOf(PRECISIONS)] = AUTO
    decoding: Decoding = RECOMMENDED


@dataclass(frozen=True, slots=True)
class EvaluateParams:
    """Stage ``evaluate``, and the defaults of ``cog evaluate``.

    :param protocol: ``default``, ``paper-iclr2023`` or ``authors-script``.
    :param num_prompts: Number of held-out prompts, at most.
    :param num_seeds: Number of texts per prompt, with seeds that count up from 0.
    :param batch_size: Number of texts decoded together.
    :param prompt_tokens: Number of tokens of a prompt.
    :param generation_tokens: Number of tokens appended, and of a reference.
    :param featuriser: Model of MAUVE: ``packaged``, a hub name, or a folder.
    :param featuriser_layers: Layers of it whose hidden states MAUVE compares; -1 for the last.
    :param judge: Model of perplexity, named like ``featuriser``; that one if it is empty.
    :param max_contamination: Share of the references' 13-grams in the index above which an
        evaluation is refused.
    """

    protocol: Annotated[str, OneOf(("default", "paper-iclr2023", "authors-script"))] = "default"
    num_prompts: Count = 200
    num_seeds: Count = 1
    batch_size: Count = 50
    prompt_tokens: Count = 32
    generation_tokens: Count = 128
    featuriser: str = "packaged"
    featuriser_layers: tuple[int, ...] = (22, 29)
    judge: str = ""
    max_contamination: Share = 0.2


@dataclass(frozen=True, slots=True)
class DatastoreParams:
    """Stage ``datastore``, and the settings of the system ``knn-lm``.

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

    context_tokens: Count = 256
    overlap_tokens: Natural = 128
    batch_tokens: Count = 2048
    flat_threshold_rows: Natural = 200_000
    num_probes: Count = 32
    rerank_factor: Count = 2
    recall_at: Count = 100
    min_recall: Share = 0.8
    top_k: Count = 1024
    weight: Share = 0.118
    distance_scale: PositiveFactor = 0.00785
    temperature: PositiveFactor = 1.0

    def __post_init__(self) -> None:
        if self.overlap_tokens >= self.context_tokens:  # windows would not advance
            wanted = f"must be below context_tokens ({self.context_tokens})"
            raise FieldError("overlap_tokens", wanted=wanted, found=str(self.overlap_tokens))


@dataclass(frozen=True, slots=True)
class RetroParams:
    """Stage ``retro``, and the settings of ``cog paper retro train``.

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

    chunk_tokens: Count = 64
    num_neighbours: Count = 2
    neighbour_tokens: Count = 64
    continuation_tokens: Natural = 64
    first_cross_layer: Count = 6
    cross_layer_step: Count = 3
    encoder_layers: Count = 2
    window_tokens: Count = 256
    windows_per_batch: Count = 8
    accumulation_steps: Count = 1
    learning_rate: PositiveFactor = 0.001
    gate_rate: PositiveFactor = 0.01
    max_steps: Count = 2000
    warmup_share: Share = 0.03
    final_rate_share: Share = 0.1
    weight_decay: Factor = 0.1
    max_gradient_norm: PositiveFactor = 1.0
    held_out_share: Annotated[float, Range(at_least=0, below=1)] = 0.05
    validation_batches: Natural = 4
    validation_steps: Count = 100
    checkpoint_steps: Count = 50
    precision: Annotated[str, OneOf(("auto", "float32", "bfloat16"))] = "auto"
    seed: Natural = 0

    def __post_init__(self) -> None:
        if self.window_tokens <= self.chunk_tokens:  # no token would see neighbours
            wanted = f"must be above chunk_tokens ({self.chunk_tokens})"
            raise FieldError("window_tokens", wanted=wanted, found=str(self.window_tokens))


@dataclass(frozen=True, slots=True)
class SegmentParams:
    """Stage ``segment``, and the defaults of ``cog paper segment``.

    :param source: Where a phrase may come from: ``corpus``, every other document; there was another
        place once.
    """

    source: Annotated[str, OneOf(("corpus",))] = "corpus"


@dataclass(frozen=True, slots=True)
class TrainParams:
    """Stage ``train``, and the defaults of ``cog train``.

    :param profile: Name of the profile that is trained.
    :param profiles: Profiles of your own by name, beside those that ``cog`` brings or in the place
        of one of them.
    """

    profile: str = "smollm2-minilm"
    profiles: dict[str, Profile] = field(default_factory=dict)


def _join_generate(section: Any) -> GenerateParams:  # noqa: ANN401
    values = asdict(section)
    names = [each.name for each in fields(GenerateParams) if each.name != "decoding"]
    own = {name: values.pop(name) for name in names}
    decoding = Decoding(method=values.pop("decoding"), **values)
    check_threshold(decoding)
    return GenerateParams(**own, decoding=decoding)


# one flat section, two records
_GenerateSection = make_dataclass(
    "_GenerateSection",
    [
        (each.name, each.type, field(default=each.default))
        for each in fields(GenerateParams)
        if each.name != "decoding"
    ]
    + [
        (
            "decoding" if each.name == "method" else each.name,
            each.type,
            field(default=getattr(RECOMMENDED, each.name)),
        )
        for each in fields(Decoding)
    ],
)


@dataclass(frozen=True, slots=True)
class Params:
    """The whole of params.yaml: a section for each stage, and what all of them have in common.

    :param model: The trained model: a name, of a folder in ``models/`` or of a model that the
        package ships, or a folder, relative to the project.
    """

    model: str = "cog-v0"
    fetch: FetchParams = field(default_factory=FetchParams)
    prepare: PrepareParams = field(default_factory=PrepareParams)
    index: IndexParams = field(default_factory=IndexParams)
    generate: Annotated[GenerateParams, Via(_GenerateSection, _join_generate)] = field(
        default_factory=GenerateParams
    )
    evaluate: EvaluateParams = field(default_factory=EvaluateParams)
    datastore: DatastoreParams = field(default_factory=DatastoreParams)
    retro: RetroParams = field(default_factory=RetroParams)
    segment: SegmentParams = field(default_factory=SegmentParams)
    train: TrainParams = field(default_factory=TrainParams)


def load_params(path: Path) -> Params:
    """Read params.yaml, every value checked."""
    run = f"mend that line, or git checkout HEAD {path.name}"
    try:
        file = open_yaml(path, name=path.name, error=ParamsError, run=run)
    except FileNotFoundError:
        raise ParamsError(f"{path.name} is needed", found="no such file") from None
    _refuse_moved(file.content, path.name)
    return read_record(
        Params, file.content, error=ParamsError, file=path.name, find_line=file.find_line
    )


def _refuse_moved(content: object, name: str) -> None:
    for keys in MOVED:
        holder = content
        for key in keys.split("."):
            if not isinstance(holder, dict) or key not in holder:
                break
            holder = holder[key]
        else:
            raise ParamsError(
                f"{name} must not say which corpora are built, registry/pipeline.yaml does",
                found=f"{keys}: the project is of an older cog",
                run="cog upgrade",
            )
