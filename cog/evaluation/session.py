"""An evaluation made ready: a plan goes in, its prompts, index and models come out, checked."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from cog.baselines.ablations.catalogue import ABLATIONS
from cog.baselines.identity import SystemIdentity, identify_system
from cog.baselines.names import COPYING, SYSTEMS
from cog.baselines.protocol import TextGenerator
from cog.baselines.systems import open_system
from cog.corpus.documents import load_prompts
from cog.errors import EvaluationError, IndexMismatchError
from cog.evaluation.features import Measurer
from cog.evaluation.generations import GenerationStore, RunKey
from cog.evaluation.prompts import Selection, select_prompts
from cog.evaluation.protocol import (
    CONTAMINATION,
    COPY_GROUPS,
    GROUPS,
    QUALITY,
    REFERENCE,
    Protocol,
)
from cog.evaluation.scores import check_mauve
from cog.evaluation.tune_split import take_part
from cog.model.language_model import identify_tokenizer
from cog.model.load import load_splitter, resolve_device
from cog.model.matrices import choose_precision
from cog.model.words import WordSplitter
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress
from cog.records import Decoding


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be evaluated.

    :param corpus_id: The corpus that is copied from.
    :param prompt_corpus_id: The corpus whose held-out prompts are continued.
    :param system: What writes; one of ``SYSTEMS``.
    :param protocol: How.
    :param groups: Which groups of scores; each of ``GROUPS``.
    :param allow_few_texts: Whether MAUVE is computed on fewer than 50 texts.
    :param allow_contamination: Whether references may be in the index.
    :param device: ``cpu``, ``cuda`` or ``auto``.
    """

    corpus_id: str
    prompt_corpus_id: str
    system: str
    protocol: Protocol
    groups: tuple[str, ...]
    allow_few_texts: bool
    allow_contamination: bool
    device: str


@dataclass(slots=True)
class Evaluation:
    """An evaluation while it runs.

    :param paths: The project.
    :param params: Its parameters.
    :param plan: What is evaluated; its protocol is pinned.
    :param progress: Told of what is done.
    :param identity: The system, and what it copies from or searches.
    :param splitter: Counts tokens.
    :param selection: The prompts.
    :param featuriser: Makes the features that MAUVE compares.
    :param judge: Measures perplexity; often the same model.
    :param seconds: Seconds per part so far.
    :param generator: The system, once it was needed.
    :param stack: Closes it.
    """

    paths: ProjectPaths
    params: Params
    plan: Plan
    progress: Progress
    identity: SystemIdentity
    splitter: WordSplitter
    selection: Selection
    featuriser: Measurer
    judge: Measurer
    seconds: dict[str, float] = field(default_factory=dict)
    generator: TextGenerator | None = None
    stack: ExitStack = field(default_factory=ExitStack)

    @property
    def store(self) -> GenerationStore:
        """Where the texts are kept.

        :returns: The store.
        """
        return GenerationStore(self.paths.corpus(self.plan.corpus_id).evaluations)

    def key(self, decoding: Decoding) -> RunKey:
        """What decides the texts.

        :param decoding: The decoding.
        :returns: The key of the run.
        """
        plan, identity = self.plan, self.identity
        device = resolve_device(plan.device)
        return RunKey(
            plan.system,
            identity.index,
            identity.model,
            plan.prompt_corpus_id,
            decoding,
            device.type,
            choose_precision(self.params.generate.precision, device),
        )

    def get_generator(self) -> TextGenerator:
        """Load the model and open what it copies from, the first time they are needed.

        :returns: The system.
        :raises IndexMismatchError: If the index was built again meanwhile.
        """
        if self.generator is None:
            plan = self.plan
            opened = self.stack.enter_context(
                open_system(
                    self.paths,
                    self.params,
                    corpus_id=plan.corpus_id,
                    system=plan.system,
                    device=plan.device,
                )
            )
            now = identify_system(
                self.paths, self.params, corpus_id=plan.corpus_id, system=plan.system
            ).index
            if now != self.identity.index:
                raise IndexMismatchError(
                    f"the index of {plan.corpus_id} must stay {self.identity.index[:12]}",
                    found=f"{now[:12]}, which was built meanwhile",
                    run=f"cog evaluate --corpus {plan.corpus_id}",
                    about=plan.corpus_id,
                )
            self.generator = opened
        return self.generator

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time of the block to a part.

        :param part: Name of the part.
        :yields: While it is measured.
        """
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - began
            self.seconds[part] = round(self.seconds.get(part, 0.0) + spent, 3)


def prepare(paths: ProjectPaths, params: Params, plan: Plan, progress: Progress) -> Evaluation:
    """Check what an evaluation needs, choose its prompts and pin its protocol.

    :param paths: The project.
    :param params: Its parameters.
    :param plan: What to evaluate.
    :param progress: Told which prompts are taken, and of texts that have to be written anew.
    :returns: The evaluation, ready to run.
    :raises EvaluationError: If the plan cannot be run, or no prompt is long enough.
    """
    _check_plan(plan)
    folder = paths.model(params.model)
    identity = identify_system(paths, params, corpus_id=plan.corpus_id, system=plan.system)
    splitter = load_splitter(folder)
    held_out = take_part(
        load_prompts(paths.corpus(plan.prompt_corpus_id).prompts), plan.protocol.part
    )
    selection = select_prompts(
        held_out, splitter=splitter, protocol=plan.protocol, corpus_id=plan.prompt_corpus_id
    )
    groups = _choose_groups(plan, identity, len(selection.prompts), progress)
    featuriser = Measurer(
        plan.protocol.featuriser, root=paths.root, device=plan.device, progress=progress
    )
    judge = featuriser
    if plan.protocol.language_model != plan.protocol.featuriser:
        judge = Measurer(
            plan.protocol.language_model, root=paths.root, device=plan.device, progress=progress
        )
    pinned = replace(
        plan.protocol,
        tokenizer=identify_tokenizer(folder),
        featuriser=featuriser.pinned_name,
        language_model=judge.pinned_name,
    )
    num_prompts = len(selection.prompts)
    progress.say(
        f"{plan.prompt_corpus_id} holds out {selection.num_held_out} prompts for "
        f"{plan.protocol.part}, "
        f"{selection.num_qualifying} are long enough, {num_prompts} are taken"
    )
    run = Evaluation(
        paths=paths,
        params=params,
        plan=replace(plan, protocol=pinned, groups=groups),
        progress=progress,
        identity=identity,
        splitter=splitter,
        selection=selection,
        featuriser=featuriser,
        judge=judge,
    )
    _say_if_rebuilt(run)
    return run


def _say_if_rebuilt(run: Evaluation) -> None:
    key = run.key(run.plan.protocol.decoding_of(0))
    if not run.store.is_known(key) and run.store.has_other_index(key):
        run.progress.say(
            f"the index of {run.plan.corpus_id} was built again since it was last evaluated: "
            "its texts are written anew"
        )


def _check_plan(plan: Plan) -> None:
    if plan.system not in SYSTEMS:
        raise EvaluationError(
            f"the system must be one of {', '.join(SYSTEMS)}", found=plan.system, about=plan.system
        )
    unknown = [group for group in plan.groups if group not in GROUPS]
    if unknown:
        raise EvaluationError(
            f"scores come in the groups {', '.join(GROUPS)}", found=unknown[0], about=unknown[0]
        )
    if not plan.protocol.seeds or len(set(plan.protocol.seeds)) < len(plan.protocol.seeds):
        raise EvaluationError(
            "an evaluation needs seeds that differ", found=str(list(plan.protocol.seeds))
        )


def _choose_groups(
    plan: Plan, identity: SystemIdentity, num_prompts: int, progress: Progress
) -> tuple[str, ...]:
    # before anything is written: MAUVE is refused if nothing else was asked for, else left out
    without, why = _get_missing_groups(plan.system, has_documents=bool(identity.documents))
    groups = tuple(group for group in plan.groups if group not in without)
    if not groups:
        raise EvaluationError(
            f"{plan.system} {why}, so it has other scores",
            found=", ".join(plan.groups),
            run="pass --metric quality, for one",
            about=plan.system,
        )
    if QUALITY not in groups:
        return groups
    try:
        check_mauve(num_prompts, allow_few=plan.allow_few_texts)
    except EvaluationError as error:
        if groups == (QUALITY,):
            raise
        progress.say(f"MAUVE is left out: {error}")
        return tuple(group for group in groups if group != QUALITY)
    return groups


def _get_missing_groups(system: str, *, has_documents: bool) -> tuple[tuple[str, ...], str]:
    # the groups of scores that a system does not have, and why
    if system not in COPYING:
        without = COPY_GROUPS if has_documents else (*COPY_GROUPS, CONTAMINATION)
        return without, "copies nothing"
    if system in ABLATIONS and not ABLATIONS[system].scores_references:
        return (REFERENCE,), "scores references as cog does, or not at all"
    return (), ""
