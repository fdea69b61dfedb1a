"""Recipes: the name of a profile goes in; what is trained, and how, comes out."""

from dataclasses import dataclass

from cog.errors import ParamsError
from cog.params import TrainParams
from cog.profiles import LoopProfile, ModelProfile, load_shipped_profiles
from cog.reading import find_nearest


@dataclass(frozen=True, slots=True)
class Recipe:
    """A profile by name: what the model is made of and learns by, and how it is trained."""

    name: str
    model: ModelProfile
    loop: LoopProfile


def load_recipe(params: TrainParams, name: str | None) -> Recipe:
    """Find a profile of the project or of the package; None for the default."""
    name = name or params.profile
    profiles = {**load_shipped_profiles(), **params.profiles}
    if name not in profiles:
        raise ParamsError(
            f"the profile must be one of {', '.join(profiles)}",
            found=repr(name),
            run=f"did you mean --profile {find_nearest(name, list(profiles))}?",
            about=name,
        )
    profile = profiles[name]
    return Recipe(name, profile.model, profile.loop)
