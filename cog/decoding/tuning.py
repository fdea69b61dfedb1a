"""Tuned settings at rest: what was chosen for an index goes in, later texts begin with it.

Neither torch nor a store is loaded here.
"""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from cog.decoding.tuning_file import check_types, load_choice, remove_choice, save_choice
from cog.errors import CogError
from cog.index.manifest import load_manifest
from cog.params import GenerateParams
from cog.paths import CorpusPaths
from cog.records import ABSOLUTE, ENTROPY, OFF, RELATIVE, VERIFY_RULES, Active

USUAL_THRESHOLDS = {OFF: 0.0, ABSOLUTE: 0.0003, RELATIVE: 0.001, ENTROPY: 0.0003}


@dataclass(frozen=True, slots=True)
class TunedValues:
    """The settings that are tuned; fields of the section ``generate`` of params.yaml.

    :param verify: Rule by which the prefix encoder finds a token too unlikely.
    :param verify_threshold: The rule's threshold.
    :param phrase_bias: Added to the score of every phrase.
    :param temperature: Divides all scores before a draw.
    """

    verify: str
    verify_threshold: float
    phrase_bias: float
    temperature: float

    def __str__(self) -> str:
        return (
            f"verify {describe_rule(self.verify, self.verify_threshold)}, "
            f"phrase_bias {self.phrase_bias:g}, temperature {self.temperature:g}"
        )


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was chosen for an index.

    :param values: The settings.
    :param index: Digest of the index.
    :param model: Fingerprint of the model.
    :param method: ``greedy`` or ``nucleus``: how choices were taken.
    :param created_at: When, ISO 8601 in UTC.
    :param record: How they were chosen, as plain values: prompts, reference and trials.
    """

    values: TunedValues
    index: str
    model: str
    method: str
    created_at: str
    record: dict[str, Any]


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
        chosen = f"{self.tuning.values}, for {self.tuning.method}"
        return f"{chosen} (left out: {self.problem})" if self.problem else chosen

    def to_json(self) -> dict[str, Any]:
        """The state as the command line writes it.

        :returns: A JSON-ready object.
        """
        tuning = self.tuning
        content: dict[str, Any] = {"used": not self.problem, "problem": self.problem or None}
        if tuning is None:
            return content
        about = {"decoding": tuning.method, "created_at": tuning.created_at}
        return asdict(tuning.values) | about | content


def describe_rule(verify: str, threshold: float) -> str:
    """Name a rule with its threshold.

    :param verify: The rule.
    :param threshold: Its threshold.
    :returns: Such as ``absolute 0.003``.
    """
    return OFF if verify == OFF else f"{verify} {threshold:g}"


def save_tuning(corpus_paths: CorpusPaths, tuning: Tuning) -> None:
    """Keep what was chosen, beside the index.

    :param corpus_paths: The corpus.
    :param tuning: What was chosen.
    """
    save_choice(corpus_paths.tuning, asdict(tuning))


def load_tuning(corpus_paths: CorpusPaths) -> Tuning | None:
    """Read what was chosen.

    :param corpus_paths: The corpus.
    :returns: The tuning; None if there is none.
    """
    reset = f"cog tune --corpus {corpus_paths.root.name} --reset"
    return load_choice(corpus_paths.tuning, _parse, reset=reset)


def _parse(content: dict[str, Any]) -> Tuning:
    values = TunedValues(**content.pop("values"))
    tuning = Tuning(values=values, **content)
    check_types(values)
    check_types(tuning)
    if values.verify not in VERIFY_RULES:
        raise ValueError(f"verify is {values.verify!r}")
    return tuning


def remove_tuning(corpus_paths: CorpusPaths) -> bool:
    """Forget what was chosen.

    :param corpus_paths: The corpus.
    :returns: Whether there was anything.
    """
    return remove_choice(corpus_paths.tuning)


def load_tuning_state(corpus_paths: CorpusPaths, *, index: str, model: str) -> TuningState | None:
    """Say what was chosen for a corpus, and whether it is for an index.

    :param corpus_paths: The corpus.
    :param index: Digest of the index.
    :param model: Fingerprint of its model.
    :returns: What was chosen; None if nothing was.
    """
    try:
        tuning = load_tuning(corpus_paths)
    except CogError as error:
        return TuningState(None, str(error))
    if tuning is None:
        return None
    misfit = _find_misfit(tuning, index=index, model=model, method=tuning.method)
    return TuningState(tuning, f"it is of {misfit}" if misfit else "")


def apply_tuning(
    settings: GenerateParams,
    corpus_paths: CorpusPaths,
    *,
    method: str,
    active: Active | None = None,
) -> tuple[GenerateParams, str]:
    """Put what was chosen for an index in the place of params.yaml.

    :param settings: Section ``generate`` of params.yaml.
    :param corpus_paths: The corpus.
    :param method: How choices are taken.
    :param active: What is copied from; None for the index in place.
    :returns: The settings, and one line on what was done; empty if nothing was ever chosen.
    """
    tuning = load_tuning(corpus_paths)
    if tuning is None:
        return settings, ""
    corpus_id = corpus_paths.root.name
    if active is None:
        manifest = load_manifest(corpus_paths)
        index, model = manifest.digest, manifest.model
    else:
        index, model = active.index, active.model
    misfit = _find_misfit(tuning, index=index, model=model, method=method)
    if misfit:
        return settings, (
            f"what was tuned for {corpus_id} is of {misfit}: left out "
            f"(cog tune --corpus {corpus_id} does it again, with --reset forgets it)"
        )
    chosen = {field.name: getattr(tuning.values, field.name) for field in fields(TunedValues)}
    return replace(settings, **chosen), f"as tuned for this index: {tuning.values}"


def _find_misfit(tuning: Tuning, *, index: str, model: str, method: str) -> str:
    # what a tuning is of that is not asked for; empty if it fits
    for what, tuned, found in (
        ("index", tuning.index[:12], index[:12]),
        ("model", tuning.model[:12], model[:12]),
        ("decoding", tuning.method, method),
    ):
        if tuned != found:
            return f"{what} {tuned}, not {found}"
    return ""
