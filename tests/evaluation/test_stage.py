"""The pipeline's stages that continue prompts, on a corpus that has none."""

import pytest

from cog.corpus.documents import load_prompts
from cog.decoding.stage import generate_corpus
from cog.errors import EvaluationError
from cog.evaluation.choose import load_results
from cog.evaluation.planning import evaluate_corpus
from cog.params import load_params
from cog.paths import ProjectPaths
from tests.corpus.building import make_card, prepare
from tests.told import Told


def test_a_corpus_without_prompts_has_empty_outputs_and_the_reason_is_said(
    project: ProjectPaths,
) -> None:
    _, _, corpus = prepare(project.root, {"a.txt": b"A bridge of stone."}, make_card())
    assert load_prompts(corpus.prompts) == []
    params, said = load_params(project.params), Told()
    assert generate_corpus(project, "village", params, said) == 0
    evaluate_corpus(project, "village", params, said)
    assert corpus.generations.read_bytes() == corpus.evaluation.read_bytes() == b""
    assert [line.partition(" (")[0] for line in said.lines] == ["village holds out no prompt"] * 2
    with pytest.raises(EvaluationError, match="village must have been evaluated; found: no eval"):
        load_results(project, "village")
