"""Stage ``evaluate``: a corpus goes in, its scored result comes out, on disk and in MLflow."""

from cog.baselines.names import COG
from cog.corpus.documents import NO_PROMPTS, load_prompts
from cog.evaluation.protocol import GROUPS, make_protocol
from cog.evaluation.results import write_result
from cog.evaluation.runner import evaluate
from cog.evaluation.session import Plan
from cog.evaluation.tracking import Tracker, choose_uri
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress

EXPERIMENT = "evaluate"


def evaluate_corpus(
    paths: ProjectPaths, corpus_id: str, params: Params, progress: Progress
) -> None:
    """Evaluate a corpus on its own prompts as params.yaml says.

    The result lies in ``evaluation.json`` and in MLflow; of a corpus that holds out no prompt the
    file is empty.

    :param paths: The project.
    :param corpus_id: The corpus.
    :param params: The project's parameters.
    :param progress: Told of what is done.
    """
    corpus = paths.corpus(corpus_id)
    if not load_prompts(corpus.prompts):
        progress.say(f"{corpus_id} {NO_PROMPTS}: nothing is evaluated")
        corpus.evaluation.write_text("", encoding="utf-8")
        return
    choose_uri(paths)  # refused before anything is written
    protocol = make_protocol(params.evaluate.protocol, params.evaluate, params.generate.decoding)
    plan = Plan(
        corpus_id=corpus_id,
        prompt_corpus_id=corpus_id,
        system=COG,
        protocol=protocol,
        groups=GROUPS,
        allow_few_texts=False,
        allow_contamination=False,
        device="auto",
    )
    result = evaluate(paths, params, plan, progress)
    Tracker(paths, EXPERIMENT).log_result(result)
    write_result(corpus.evaluation, result)
