"""An evaluation made ready: a plan goes in, its prompts, system and models come out, checked."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from cog.baselines.system import System
from cog.baselines.systems import identify_system, open_system
from cog.corpus.documents import load_prompts
from cog.errors import EvaluationError, IndexMismatchError
from cog.evaluation.features import Measurer
from cog.evaluation.prompts import Selection, select_prompts, take_part
from cog.evaluation.protocol import Protocol
from cog.evaluation.store import EvaluationStore, RunKey
from cog.model.base import get_base_folder
from cog.model.config import load_config
from cog.model.language_model import identify_tokenizer
from cog.model.load import load_splitter
from cog.model.words import WordSplitter
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress
from cog.records import Decoding


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be evaluated."""

    corpus_id: str
    prompt_corpus_id: str
    system: str  # what writes: `cog`, a baseline or a variant
    decoding: Decoding
    protocol: Protocol
    groups: tuple[str, ...]
    allow_few_texts: bool  # MAUVE is computed on fewer than 50, too
    allow_contamination: bool
    device: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def opened(self) -> dict[str, Any]:
        """What writes, as :func:`identify_system` and :func:`open_system` are told."""
        about = {"corpus_id": self.corpus_id, "name": self.system}
        return {**about, "device": self.device, "options": self.options}


@dataclass(slots=True)
class Evaluation:
    """An evaluation while it runs."""

    paths: ProjectPaths
    params: Params
    plan: Plan  # its protocol is pinned
    progress: Progress
    system: System
    splitter: WordSplitter
    selection: Selection
    featuriser: Measurer
    judge: Measurer  # of perplexity; often the same model
    store: EvaluationStore
    seconds: dict[str, float] = field(default_factory=dict)
    generator: Any = None  # baselines have `score_tokens` beside `generate`
    stack: ExitStack = field(default_factory=ExitStack)

    @property
    def key(self) -> RunKey:
        """What decides the texts."""
        plan = self.plan
        return RunKey(self.system, plan.prompt_corpus_id, plan.protocol.generation_tokens)

    @property
    def is_own_judge(self) -> bool:
        """Whether the judge is the base model of what writes."""
        folder = self.paths.model(self.params.model)
        base = get_base_folder(load_config(folder).prefix_base, model_folder=folder)
        return base.resolve() == self.judge.folder.resolve()

    def compared(self, texts: Sequence[str]) -> list[str]:
        """The texts as they are compared: after their prompts, if the protocol says so."""
        if not self.plan.protocol.has_prefix:
            return list(texts)
        pairs = zip(self.selection.prompts, texts, strict=True)
        return [prompt.prefix + text for prompt, text in pairs]

    def get_generator(self) -> Any:  # noqa: ANN401
        """Load the model and open what it copies from, the first time they are needed."""
        if self.generator is None:
            plan = self.plan
            opening = open_system(self.paths, self.params, **plan.opened)
            opened = self.stack.enter_context(opening)
            now = identify(self.paths, self.params, plan).index
            if now != self.system.index:
                raise IndexMismatchError(
                    f"the index of {plan.corpus_id} must stay {self.system.index[:12]}",
                    found=f"{now[:12]}, which was built meanwhile",
                    run=f"cog evaluate --corpus {plan.corpus_id}",
                    about=plan.corpus_id,
                )
            self.generator = opened
        return self.generator

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time of the block to a part."""
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - began
            self.seconds[part] = round(self.seconds.get(part, 0.0) + spent, 3)


def identify(paths: ProjectPaths, params: Params, plan: Plan) -> System:
    """What a plan runs, as it is now."""
    return identify_system(paths, params, decoding=plan.decoding, **plan.opened)


def prepare(paths: ProjectPaths, params: Params, plan: Plan, progress: Progress) -> Evaluation:
    """Check what an evaluation needs, choose its prompts and pin its protocol."""
    rules = plan.protocol
    if not rules.seeds or len(set(rules.seeds)) < len(rules.seeds):
        raise EvaluationError("an evaluation needs seeds that differ", found=str([*rules.seeds]))
    if rules.num_prompts < 1:
        raise EvaluationError("an evaluation needs a prompt or more", found=str(rules.num_prompts))
    store = EvaluationStore(paths.corpus(plan.corpus_id).evaluations)
    folder = paths.model(params.model)
    system = identify(paths, params, plan)
    splitter = load_splitter(folder)
    held_out = take_part(load_prompts(paths.corpus(plan.prompt_corpus_id).prompts), rules.part)
    selection = select_prompts(
        held_out, splitter=splitter, protocol=rules, corpus_id=plan.prompt_corpus_id
    )
    measurers = [
        Measurer(name, root=paths.root, device=plan.device, progress=progress)
        for name in dict.fromkeys((rules.featuriser, rules.judge))
    ]
    featuriser, judge = measurers[0], measurers[-1]
    pinned = replace(
        rules,
        tokenizer=identify_tokenizer(folder),
        featuriser=featuriser.pinned_name,
        judge=judge.pinned_name,
    )
    progress.say(
        f"{plan.prompt_corpus_id} holds out {selection.num_held_out} prompts for {rules.part}, "
        f"{selection.num_qualifying} are long enough, {len(selection.prompts)} are taken"
    )
    run = Evaluation(
        paths=paths,
        params=params,
        plan=replace(plan, protocol=pinned, decoding=system.decoding),
        progress=progress,
        system=system,
        splitter=splitter,
        selection=selection,
        featuriser=featuriser,
        judge=judge,
        store=store,
    )
    if store.is_of_other_index(run.key):
        progress.say(
            f"the index of {plan.corpus_id} was built again since it was last evaluated: "
            "its texts are written anew"
        )
    return run
