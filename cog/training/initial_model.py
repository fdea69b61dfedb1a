"""The model of a run: a recipe or a model folder goes in, the model to train comes out."""

import shutil
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from cog.atomic import discard, replacing, share
from cog.errors import ParamsError, TrainingError
from cog.model.base import get_base_folder, pin_base
from cog.model.config import FORMAT_VERSION, ModelConfig, load_config
from cog.model.modules import hush_transformers, load_bidirectional, load_causal
from cog.model.random_base import make_random_base
from cog.model.weights import Weights, load_weights
from cog.params import TrainParams
from cog.profiles import Base, HubBase, Profile, RandomBase, load_shipped_profiles
from cog.reading import find_nearest
from cog.training.batches import Batch
from cog.training.building import TrainingText
from cog.training.model import TrainableModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(Profile):
    """A profile by name: what the model is made of and learns by, and how it is trained."""

    name: str


def load_recipe(params: TrainParams, name: str | None) -> Recipe:
    """Find a profile of the project or of the package; None for the default."""
    name = name or params.profile
    profiles = {**load_shipped_profiles(), **params.profiles}
    if name not in profiles:
        raise ParamsError(
            f"the profile must be one of {', '.join(profiles)}",
            found=repr(name),
            run=f"did you mean --profile {find_nearest(name, list(profiles))}?",
        )
    profile = profiles[name]
    return Recipe(profile.model, profile.loop, name=name)


ROLES = ("prefix", "phrase", "retriever")
BASES_FOLDER = "bases"  # in a model folder: bases that are made or copied, not fetched
NUM_SPECIAL_PIECES = 2  # at the beginning and the end
NUM_TEXTS = 2000  # from which a small base's tokenizer is learnt


@dataclass(frozen=True, slots=True)
class Bases:
    """Where a model begins."""

    config: ModelConfig
    prefix: Path
    phrase: Path
    retriever: Path
    weights: Weights  # trained weights to begin with; empty for none


def find_bases(
    recipe: Recipe,
    source: Path | None,
    *,
    out: Path,
    text: TrainingText,
    seed: int,
    is_new: bool,
) -> Bases:
    """Find, fetch or make what a model begins with.

    The config of a model to go on from counts, not the profile's. Bases that are made, or lie in
    its folder, go to ``out``: small ones from the text and the seed. ``is_new`` tells that what
    lies there may be of another run, and is made or copied anew.
    """
    is_own = source is not None and source.resolve() == out.resolve()  # what lies there is needed
    for role in ROLES if is_new and not is_own else ():
        if (out / BASES_FOLDER / role).is_dir():
            discard(out / BASES_FOLDER / role)
    if source is None:
        config = _make_config(recipe, out, text=text, seed=seed)
        weights: Weights = {}
    else:
        config = _copy_bases(load_config(source), source, out)
        weights = load_weights(source, load_config(source))
    folders = {
        role: get_base_folder(getattr(config, f"{role}_base"), model_folder=out) for role in ROLES
    }
    return Bases(replace(config, name=out.name), **folders, weights=weights)


def _make_config(recipe: Recipe, out: Path, *, text: TrainingText, seed: int) -> ModelConfig:
    model = recipe.model
    bases: dict[str, Base] = {}
    made: dict[RandomBase, HubBase] = {}
    for role in ROLES:
        base = getattr(model, f"{role}_base")
        if isinstance(base, RandomBase):
            if base not in made:
                made[base] = _make_base(base, out, role, text=text, seed=seed)
            base = made[base]
        bases[f"{role}_base"] = pin_base(base, model_folder=out)
    names = {each.name for each in fields(ModelConfig)} & {each.name for each in fields(model)}
    stated: dict[str, Any] = {name: getattr(model, name) for name in names} | bases
    return ModelConfig(format_version=FORMAT_VERSION, name=out.name, weights=(), **stated)


def _make_base(base: RandomBase, out: Path, role: str, *, text: TrainingText, seed: int) -> HubBase:
    folder = out / BASES_FOLDER / role
    if not (folder / "model.safetensors").is_file():
        hush_transformers()
        texts = (document.text for document in islice(text.read(), NUM_TEXTS))
        with replacing(folder) as unfinished:
            make_random_base(base, unfinished, texts=texts, seed=seed)
    return HubBase(f"{BASES_FOLDER}/{role}", "main")


def _copy_bases(config: ModelConfig, source: Path, out: Path) -> ModelConfig:
    changed: dict[str, Base] = {}
    copied: dict[Path, str] = {}  # folders, and the role that each is named by
    for role in ROLES:
        base = getattr(config, f"{role}_base")
        # a base elsewhere on this machine stays there; one named from the model's folder goes along
        is_inside = isinstance(base, HubBase) and not Path(base.name).is_absolute()
        if is_inside and (local := source / base.name).is_dir():
            name = copied.setdefault(local.resolve(), role)
            folder = out / BASES_FOLDER / name
            if not folder.is_dir():
                with replacing(folder) as unfinished:
                    shutil.copytree(local, unfinished)
                    share(unfinished)
            changed[f"{role}_base"] = HubBase(f"{BASES_FOLDER}/{name}", base.revision)
        else:
            changed[f"{role}_base"] = pin_base(base, model_folder=source)
    return replace(config, **changed)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """A model that is trained."""

    model: TrainableModel
    config: ModelConfig
    architecture: dict[str, Any]  # what decides the shapes of its trained weights, by field

    def count_operations(self, batch: Batch) -> float:
        """Count the floating point operations of a step on a batch.

        Two per weight and position forward, two backward for what comes before, two more where the
        weight itself is trained (Kaplan et al. 2020, section 2.1); attention's own products and
        those of spans are left out, so the share of the peak is a little too low.
        """
        positions = {
            "lm": batch.token_ids.size,
            "bert": batch.piece_ids.size,
            "start": batch.num_words,
            "end": batch.num_words,
            "qproj": batch.num_queries,
        }
        total = 0.0
        for name, parameter in self.model.named_parameters():
            part = name.partition(".")[0]
            if parameter.ndim < 2 or (part == "bert" and "embeddings" in name):
                continue
            total += (6 if parameter.requires_grad else 4) * parameter.numel() * positions[part]
        return total


def open_model(
    bases: Bases, recipe: Recipe, *, objective: str, device: torch.device
) -> OpenedModel:
    """Load the base models and put the trained parts on them.

    With the objective ``tokens`` there is the prefix encoder alone.
    """
    is_copying = objective == "copy"
    lm = load_causal(bases.prefix)
    _check_prefix_encoder(lm.config, bases.config, recipe)
    bert = load_bidirectional(bases.phrase) if is_copying else None
    if bert is not None:
        num_positions = getattr(bert.config, "max_position_embeddings", None)
        check_pieces(num_positions, max_pieces=bases.config.max_pieces, name="phrase encoder")
    # a model's own factor counts, not the profile's
    profile = replace(recipe.model, lora_scale=bases.config.lora_scale)
    model = TrainableModel(lm, bert, profile=profile, weights=bases.weights)
    model.move_to(device)
    names = ("prefix_lora_rank", "phrase_lora_rank", "head_width", "query_projection")
    architecture = {
        "prefix_base": _describe(bases.config.prefix_base, lm),
        "phrase_base": "none" if bert is None else _describe(bases.config.phrase_base, bert),
        **{name: getattr(recipe.model, name) for name in names},
        "num_trained": sum(p.numel() for p in model.parameters() if p.requires_grad),
    }
    return OpenedModel(model, bases.config, architecture)


def check_pieces(num_positions: int | None, *, max_pieces: int, name: str) -> None:
    """Refuse an encoder that cannot read as many WordPieces as it is given; None for no limit."""
    if num_positions is not None and max_pieces + NUM_SPECIAL_PIECES > num_positions:
        raise TrainingError(
            f"max_pieces ({max_pieces}) and {NUM_SPECIAL_PIECES} special ones must fit into the "
            f"{name}",
            found=f"{num_positions} positions",
            run="lower max_pieces of the profile in params.yaml",
        )


def _check_prefix_encoder(sizes: Any, config: ModelConfig, recipe: Recipe) -> None:  # noqa: ANN401
    if config.begin_token_id is not None and config.begin_token_id >= sizes.vocab_size:
        raise TrainingError(
            f"begin_token_id must be below the number of the prefix encoder's tokens "
            f"({sizes.vocab_size})",
            found=str(config.begin_token_id),
            run=f"change train.profiles.{recipe.name}.model.begin_token_id in params.yaml",
        )
    num_positions = int(sizes.max_position_embeddings)
    context = recipe.loop.context_tokens
    needed = context + config.max_chunk_tokens + (config.begin_token_id is not None)
    if needed > num_positions:
        raise TrainingError(
            f"context_tokens ({context}) and a chunk ({config.max_chunk_tokens} tokens) must fit "
            "into the prefix encoder",
            found=f"{num_positions} positions for {needed}",
            run=f"lower train.profiles.{recipe.name}.loop.context_tokens in params.yaml",
        )


def _describe(base: Base, network: Any) -> str:  # noqa: ANN401
    name = base.name if isinstance(base, HubBase) else Path(base.member).name
    sizes = network.config
    return f"{name} ({sizes.model_type}, {sizes.num_hidden_layers} layers of {sizes.hidden_size})"
