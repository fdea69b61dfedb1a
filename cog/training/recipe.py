"""Recipes: the name of a profile goes in; what is trained, and how, comes out."""

from dataclasses import asdict, dataclass
from typing import Any

from cog.errors import ParamsError
from cog.params import TrainParams
from cog.profiles import LoopProfile, ModelProfile, load_shipped_profiles
from cog.reading import find_nearest

# how a model learns, not what it is
LEARNING = ("losses", "rates", "dropout", "checkpoint_blocks", "compile_blocks")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A profile by name.

    :param name: Its name.
    :param model: What the model is made of and learns by.
    :param loop: How it is trained.
    """

    name: str
    model: ModelProfile
    loop: LoopProfile

    def architecture(self) -> dict[str, Any]:
        """What decides the shapes of the trained weights, by field.

        :returns: Plain values.
        """
        fields = asdict(self.model)
        return {name: value for name, value in fields.items() if name not in LEARNING}


def load_recipe(params: TrainParams, name: str | None) -> Recipe:
    """Find a profile.

    :param params: The section ``train`` of params.yaml.
    :param name: Name of the profile; None for the default.
    :returns: The recipe.
    :raises ParamsError: If there is no such profile.
    """
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
