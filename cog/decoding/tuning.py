"""Tuned settings at rest: what was chosen for a system goes in, later texts begin with it.

Neither torch nor a store is loaded here.
"""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from cog.decoding.tuning_file import load_choice, remove_choice, save_choice
from cog.errors import CogError
from cog.index.versions.manifest import load_manifest
from cog.paths import CorpusPaths
from cog.reading import OneOf, Text, Via, read_field
from cog.records import ABSOLUTE, ENTROPY, METHODS, OFF, RELATIVE, Active, Decoding

COG = "cog"  # the system that commands mean unless another is named
USUAL_THRESHOLDS = {OFF: 0.0, ABSOLUTE: 0.0003, RELATIVE: 0.001, ENTROPY: 0.0003}


def _read_values(values: dict[str, Any]) -> dict[str, Any]:
    return {name: read_field(Decoding, name, value) for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was chosen for a system.

    :param values: The settings that were tuned, by name; fields of :class:`Decoding`.
    :param index: Digest of what is copied from or searched; empty for nothing.
    :param method: ``greedy`` or ``nucleus``: how choices were taken.
    :param created_at: When, ISO 8601 in UTC.
    :param record: How they were chosen, as plain values: prompts, trials and their limit.
    :param options: Settings beyond those of decoding, such as those of kNN-LM.
    """

    values: Annotated[dict[str, Any], Via(dict[str, Any], _read_values)]
    index: str
    model: Text
    method: Annotated[str, OneOf(METHODS)]
    created_at: str
    record: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    system: str = COG

    def apply(
        self, settings: Decoding, *, corpus_id: str, index: str, model: str, method: str
    ) -> tuple[Decoding, dict[str, Any], str]:
        """Put what was chosen in the place of other settings, if it is of what is run now.

        Gives settings, options, and one line on what was done.
        """
        misfit = self.find_misfit(index=index, model=model, method=method)
        if misfit:
            command = get_command(corpus_id, self.system)
            return (
                settings,
                {},
                f"what was tuned for {corpus_id} is of {misfit}: left out "
                f"({command} does it again, with --reset forgets it)",
            )
        chosen = describe_values(self.values | self.options)
        what = "this index" if self.index else "this model"
        return replace(settings, **self.values), self.options, f"as tuned for {what}: {chosen}"

    def find_misfit(self, *, index: str, model: str, method: str) -> str:
        """What it is of that is not asked for; empty if it fits."""
        for what, tuned, found in (
            ("index", self.index[:12], index[:12]),
            ("model", _shorten(self.model), _shorten(model)),
            ("decoding", self.method, method),
        ):
            if tuned != found:
                return f"{what} {tuned}, not {found}"
        return ""


@dataclass(frozen=True, slots=True)
class TuningState:
    """What was chosen for a corpus, and whether texts begin with it.

    :param tuning: What was chosen; None if it cannot be read.
    :param problem: Why it is left out; empty if it is not.
    """

    tuning: Tuning | None
    problem: str

    def __str__(self) -> str:
        if self.tuning is None:
            return self.problem
        chosen = f"{describe_values(self.tuning.values)}, for {self.tuning.method}"
        return f"{chosen} (left out: {self.problem})" if self.problem else chosen

    def to_json(self) -> dict[str, Any]:
        """The state as the command line writes it."""
        tuning = self.tuning
        content: dict[str, Any] = {"used": not self.problem, "problem": self.problem or None}
        if tuning is None:
            return content
        about = {"decoding": tuning.method, "created_at": tuning.created_at}
        return tuning.values | about | content


def describe_values(values: dict[str, Any]) -> str:
    """Name tuned settings, such as ``phrase_bias 2, verify absolute 0.0003``."""
    shown = dict(values)
    if "verify" in shown:
        threshold = shown.pop("verify_threshold", 0.0)
        shown["verify"] = OFF if shown["verify"] == OFF else f"{shown['verify']} {threshold:g}"
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in shown.items()
    )


def save_tuning(corpus_paths: CorpusPaths, tuning: Tuning) -> None:
    """Keep what was chosen, beside the index."""
    save_choice(_get_path(corpus_paths, tuning.system), asdict(tuning))


def load_tuning(corpus_paths: CorpusPaths, system: str = COG) -> Tuning | None:
    """Read what was chosen; None if nothing was."""
    reset = f"{get_command(corpus_paths.root.name, system)} --reset"
    return load_choice(_get_path(corpus_paths, system), Tuning, reset=reset)


def remove_tuning(corpus_paths: CorpusPaths, system: str = COG) -> bool:
    """Forget what was chosen; tells whether there was anything."""
    return remove_choice(_get_path(corpus_paths, system))


def _get_path(corpus_paths: CorpusPaths, system: str) -> Path:
    return corpus_paths.tuning if system == COG else corpus_paths.get_baseline_tuning(system)


def get_command(corpus_id: str, system: str) -> str:
    """What is run to tune a system."""
    return f"cog tune --corpus {corpus_id}" + ("" if system == COG else f" --system {system}")


def _shorten(model: str) -> str:
    return " ".join(digest[:12] for digest in model.split())  # an adapter's stands behind it


def load_tuning_state(corpus_paths: CorpusPaths, *, index: str, model: str) -> TuningState | None:
    """Say what was chosen for a corpus, and whether it is for an index; None if nothing was."""
    try:
        tuning = load_tuning(corpus_paths)
    except CogError as error:
        return TuningState(None, str(error))
    if tuning is None:
        return None
    misfit = tuning.find_misfit(index=index, model=model, method=tuning.method)
    return TuningState(tuning, f"it is of {misfit}" if misfit else "")


def apply_tuning(
    settings: Decoding,
    corpus_paths: CorpusPaths,
    *,
    method: str,
    active: Active | None = None,
) -> tuple[Decoding, str]:
    """Put what was chosen for an index (None: the one in place) in the place of params.yaml.

    Second comes one line on what was done; empty if nothing was ever chosen.
    """
    tuning = load_tuning(corpus_paths)
    if tuning is None:
        return settings, ""
    if active is None:
        manifest = load_manifest(corpus_paths)
        index, model = manifest.digest, manifest.model
    else:
        index, model = active.index, active.model
    settings, _, word = tuning.apply(
        settings, corpus_id=corpus_paths.root.name, index=index, model=model, method=method
    )
    return settings, word
