import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cog.corpus.documents import DocumentStore
from cog.decoding.request import Request
from cog.decoding.session import open_generator
from cog.errors import EvaluationError
from cog.evaluation.choose import Wish, choose_results, load_results
from cog.evaluation.planning import Wanted, evaluate_wanted, make_plan
from cog.evaluation.protocol import Protocol, differing_fields
from cog.evaluation.records import parse_result
from cog.evaluation.runner import evaluate
from cog.evaluation.session import Plan
from cog.index.project import build_corpus_index
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.reading import FieldError
from tests.evaluation.stopping import stop_at_text


class Listening:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def expect(self, amount: int) -> None:
        pass

    def advance(self, amount: int) -> None:
        assert amount > 0

    def say(self, message: str) -> None:
        self.said.append(message)


def test_evaluation_holds_what_the_generator_writes(
    own_village: ProjectPaths, params: Params, plan: Plan
) -> None:
    progress = Listening()
    result = evaluate(own_village, params, plan, progress)
    assert [seed.seed for seed in result.seeds] == [0, 1]
    assert result.num_held_out >= result.num_qualifying >= len(result.prompt_ids) >= 2
    with open_generator(own_village, params, corpus_id="village", device="cpu") as generator:
        for seed in result.seeds:
            decoding = plan.protocol.decoding_of(result.system.decoding, seed.seed)
            again = generator.generate(
                [Request(text.generation.prefix, decoding) for text in seed.texts]
            )
            for text, wanted in zip(seed.texts, again, strict=True):
                # in other company a draw may fall otherwise, by rounding
                for name in ("prefix", "corpus", "index", "model", "decoding", "num_tokens"):
                    assert getattr(text.generation, name) == getattr(wanted, name)
    assert result.seeds[0].texts[0].generation.text != result.seeds[1].texts[0].generation.text
    groups = {score.name.partition("/")[0] for score in result.scores}
    assert groups == {
        "likelihood",
        "repetition",
        "perplexity",
        "copies",
        "latency",
    }  # no reference has 13 words: what share is in the index cannot be told
    assert all(score.low <= score.mean <= score.high for score in result.scores)
    told = {score.name for score in result.scores if score.reference is not None}
    assert {"perplexity/generated", "repetition/diversity", "repetition/words"} <= told
    assert any("quality is left out" in line and "too few texts" in line for line in progress.said)
    assert any("long enough" in line for line in progress.said)
    assert load_results(own_village, "village") == [result]


def test_second_evaluation_writes_nothing_and_loads_no_model(
    own_village: ProjectPaths, params: Params, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = evaluate(own_village, params, plan, SilentProgress())

    def refuse(*_words: object, **_named: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("cog.evaluation.session.open_system", refuse)
    monkeypatch.setattr("cog.evaluation.features.load_language_model", refuse)
    again = evaluate(own_village, params, plan, SilentProgress())
    assert again.seeds == first.seeds
    assert again.scores == first.scores
    one = replace(plan, groups=("repetition",))
    assert {m.name for m in evaluate(own_village, params, one, SilentProgress()).scores} == {
        m.name for m in first.scores
    }


def test_interrupted_evaluation_resumes(
    own_village: ProjectPaths, params: Params, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = stop_at_text(monkeypatch, 2)
    one_each = replace(plan, protocol=replace(plan.protocol, batch_size=1))
    with pytest.raises(KeyboardInterrupt):
        evaluate(own_village, params, one_each, SilentProgress())
    result = evaluate(own_village, params, one_each, SilentProgress())
    assert len(finished) == len(result.prompt_ids) * 2 + 1


def test_mauve_alone_on_few_texts_is_refused_before_anything_is_written(
    own_village: ProjectPaths, params: Params, plan: Plan
) -> None:
    with pytest.raises(EvaluationError, match="too few texts for MAUVE: ., one of each"):
        evaluate(own_village, params, replace(plan, groups=("quality",)), SilentProgress())
    assert not list(own_village.corpus("village").evaluations.glob("*/seed-*"))


def test_mauve_on_few_texts_can_be_asked_for(
    own_village: ProjectPaths, params: Params, plan: Plan
) -> None:
    wish = replace(plan, groups=("quality",), allow_few_texts=True)
    result = evaluate(own_village, params, wish, SilentProgress())
    (metric,) = result.scores
    assert metric.name == "quality/mauve"
    assert 0.0 <= metric.low <= metric.mean <= metric.high <= 1.0
    assert len(metric.per_seed) == 2
    assert metric.num_texts == len(set(result.document_ids))
    assert "below 1000" in metric.note


def test_protocol_is_pinned_to_tokenizer_and_models(
    own_village: ProjectPaths, params: Params, plan: Plan
) -> None:
    tiny = own_village.root / "models" / "tiny"
    shutil.copytree(tiny / "prefix", own_village.root / "models" / "judge")
    rules = replace(plan.protocol, featuriser="models/judge", judge="models/tiny/prefix")
    wish = replace(plan, protocol=rules, groups=("repetition",))
    first = evaluate(own_village, params, wish, SilentProgress()).protocol
    assert first.featuriser.startswith("models/judge@")
    assert first.judge.startswith("models/tiny/prefix@")
    config = own_village.root / "models" / "judge" / "config.json"
    config.write_text(config.read_text().replace("{", '{"note": "another",', 1))
    second = evaluate(own_village, params, wish, SilentProgress()).protocol
    assert differing_fields(first, second) == ["featuriser"]


def test_index_built_again_has_its_texts_written_anew(
    own_village: ProjectPaths, params: Params, plan: Plan
) -> None:
    wish = replace(plan, groups=("repetition",))
    first = evaluate(own_village, params, wish, SilentProgress())
    side = Wish((("village", "cog"),))
    assert choose_results(own_village, side) == [first]
    changed = replace(params, index=replace(params.index, vector_dtype="float16"))
    build_corpus_index(own_village, "village", params=changed, progress=SilentProgress())
    with pytest.raises(EvaluationError, match="built again since, or .*; next: cog eval"):
        choose_results(own_village, side)
    progress = Listening()
    second = evaluate(own_village, params, wish, progress)
    assert any("built again since it was last evaluated" in line for line in progress.said)
    assert second.system.index != first.system.index
    assert {result.system.index for result in load_results(own_village, "village")} == {
        first.system.index,
        second.system.index,
    }


def test_repeated_seeds_and_unknown_groups_are_refused(
    own_village: ProjectPaths, params: Params, plan: Plan, protocol: Protocol
) -> None:
    twice = replace(plan, protocol=replace(protocol, seeds=(1, 1)))
    with pytest.raises(EvaluationError, match="seeds that differ"):
        evaluate(own_village, params, twice, SilentProgress())
    for number in (0, -1):
        few = replace(plan, protocol=replace(protocol, num_prompts=number))
        with pytest.raises(EvaluationError, match=f"a prompt or more; found: {number}"):
            evaluate(own_village, params, few, SilentProgress())
    with pytest.raises(EvaluationError, match="scores come in the groups .*; found: beauty"):
        evaluate(own_village, params, replace(plan, groups=("beauty",)), SilentProgress())


def test_a_group_that_is_named_twice_is_scored_once(params: Params) -> None:
    wanted = Wanted(corpus_id="village", groups=("copies", "repetition", "copies"))
    assert make_plan(params, wanted).groups == ("copies", "repetition")


def test_a_method_that_is_none_is_refused_under_every_protocol(
    own_village: ProjectPaths, params: Params
) -> None:
    for protocol in ("default", "paper-iclr2023"):
        wanted = Wanted(corpus_id="village", protocol=protocol, settings={"decoding": "beam"})
        with pytest.raises(FieldError, match="method must be one of greedy, nucleus"):
            evaluate_wanted(own_village, params, wanted, experiment=None, progress=SilentProgress())


def test_likelihood_alone_writes_no_text(
    own_village: ProjectPaths, params: Params, plan: Plan
) -> None:
    wish = replace(plan, groups=("likelihood",))
    alone = evaluate(own_village, params, wish, SilentProgress())
    assert alone.seeds == ()
    assert not list(own_village.corpus("village").evaluations.glob("*/seed-*"))
    verified = replace(params.generate.decoding, verify="absolute", verify_threshold=0.1)
    other = evaluate(own_village, params, replace(wish, decoding=verified), SilentProgress())
    found, again = (each.find_score("per-word") for each in (alone, other))
    assert found is not None
    assert again is not None
    assert (found.rows, found.num_texts) == (again.rows, len(alone.prompt_ids))  # not verified
    whole = evaluate(own_village, params, plan, SilentProgress())
    assert whole.find_score("per-word") == found
    assert whole.seeds


def test_corpus_without_an_evaluation_is_said(own_village: ProjectPaths) -> None:
    with pytest.raises(EvaluationError, match="no evaluation; next: cog evaluate --corpus village"):
        load_results(own_village, "village")


def test_stored_result_of_another_version_is_refused(
    own_village: ProjectPaths, params: Params, plan: Plan
) -> None:
    wish = replace(plan, groups=("repetition", "copies"))
    result = evaluate(own_village, params, wish, SilentProgress())
    content = json.loads(json.dumps(result.to_json()))
    assert parse_result(content, where="a") == result
    with pytest.raises(EvaluationError, match="that this version of cog wrote"):
        parse_result({**content, "format_version": 0}, where="a")
    (path,) = own_village.corpus("village").evaluations.glob("cog_*.json")
    path.write_text("{")
    with pytest.raises(EvaluationError, match="must be an evaluation"):
        load_results(own_village, "village")


def test_scores_of_two_seeds_are_their_means(
    own_village: ProjectPaths, params: Params, plan: Plan
) -> None:
    result = evaluate(own_village, params, plan, SilentProgress())
    for name in ("rep-2", "tokens"):
        metric = result.find_score(name)
        assert metric is not None
        assert metric.mean == pytest.approx(np.mean(metric.per_seed))
        assert len(metric.per_seed) == 2


def test_references_that_are_in_the_index_are_refused_unless_asked(
    own_village: ProjectPaths, params: Params, plan: Plan
) -> None:
    # prompts of a corpus that indexes the very documents they are cut from
    corpus_paths = own_village.corpus("village")
    documents = list(DocumentStore(corpus_paths.documents).iter_documents())
    table = pq.read_table(corpus_paths.prompts)
    rows = [
        {**row, "prefix": document.text[:60], "reference": document.text[60:]}
        for row, document in zip(table.to_pylist(), documents, strict=False)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), corpus_paths.prompts)
    rules = replace(plan.protocol, generation_tokens=64, reference_tokens=64)
    wish = replace(plan, protocol=rules, groups=("repetition", "contamination"))
    with pytest.raises(EvaluationError, match="at most 20% of .*can be copied; next: .*--allow"):
        evaluate(own_village, params, wish, SilentProgress())
    assert not list(corpus_paths.evaluations.glob("*/seed-*.jsonl"))
    allowed = replace(wish, allow_contamination=True)
    share = evaluate(own_village, params, allowed, SilentProgress()).find_score("13-gram-share")
    assert share is not None
    assert share.mean > 0.5
    assert "can be copied" in share.note
