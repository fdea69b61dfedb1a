"""``/api/studies``: blind studies of a project, for who asks and, with a token, for who judges."""

import hashlib
from dataclasses import asdict
from typing import Any
from urllib.parse import urlencode

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from cog.errors import CogError
from cog.evaluation.blind import ANSWERS, ASKED, judge, make_study, write_answers
from cog.evaluation.choose import choose_named_sides
from cog.evaluation.study_folder import Answers, Rater, Study, list_studies, save_study
from cog.serve.bodies import JudgementBody, RaterBody, StudyBody
from cog.serve.engine import Engine
from cog.serve.errors import ApiError


def tell_studies(engine: Engine, _request: Request) -> dict[str, Any]:
    """All studies, with who judges in each; of one that is damaged, what is wrong."""
    studies, problems = [], []
    for name in list_studies(engine.paths):
        try:
            studies.append(_describe(Study(engine.paths, name)))
        except CogError as error:
            problems.append(str(error))
    return {"studies": studies, "problems": problems}


def make_new(engine: Engine, _request: Request, body: StudyBody) -> dict[str, Any]:
    """Make a study of two systems, or find it again."""
    paths = engine.paths
    first, second = choose_named_sides(
        paths, body.systems, prompt_corpus=body.prompts_of, protocol=body.protocol
    )
    names = (body.systems[0], body.systems[1])
    items, key = make_study(
        first, second, systems=names, num_prompts=body.num_prompts, seed=body.seed
    )
    if key.study not in list_studies(paths):  # the same again is the same study
        save_study(paths.studies / key.study, items, key)
    return {"study": key.study, "num_cases": len(items)}


def add_rater(engine: Engine, request: Request, body: RaterBody) -> dict[str, Any]:
    """Let somebody judge: the rater's token and link."""
    study = _open(engine, request)
    rater = study.add_rater(body.name)
    return {"name": rater.name, "token": rater.token, "link": _link(study, rater)}


def tell_items(engine: Engine, request: Request) -> dict[str, Any]:
    """The cases that a rater judges; they do not say what wrote which text."""
    study = _open(engine, request)
    rater = _find_rater(study, request.query_params.get("token", ""))
    items = {each.item: asdict(each) for each in study.load_items()}
    answers = study.load_answers(rater)
    ordered = _order(study, rater)
    return {
        "study": study.name,
        "rater": rater.name,
        "questions": [{"name": name, "text": text} for name, text in ASKED.items()],
        "answers_allowed": [ANSWERS[0], ANSWERS[2], ANSWERS[1]],
        "items": [items[name] for name in ordered],
        "answers": answers,
        "next": _find_next(ordered, answers),
    }


def keep_judgement(engine: Engine, request: Request, body: JudgementBody) -> dict[str, Any]:
    """Keep an answer; how many cases are done, and the next."""
    study = _open(engine, request)
    rater = _find_rater(study, body.token)
    answers = study.answer(rater, item=body.item, question=body.question, answer=body.answer)
    return {
        "num_done": _count_done(answers),
        "num_cases": study.num_cases,
        "next": _find_next(_order(study, rater), answers),
    }


def show_answers(engine: Engine, request: Request) -> Response:
    """The sheet of one rater."""
    study = _open(engine, request)
    name = request.query_params.get("rater", "")
    found = [each for each in study.load_raters() if each.name == name]
    if not found:
        raise _no_rater(f"{name[:80]!r}")
    content = write_answers(study.key, study.load_answers(found[0]))
    return Response(content, media_type="text/csv; charset=utf-8")


def tell_result(engine: Engine, request: Request) -> dict[str, Any]:
    """What is preferred; it names the systems."""
    study = _open(engine, request)
    everybody = {each.name: study.load_answers(each) for each in study.load_raters()}
    answers = {name: given for name, given in everybody.items() if given}
    verdicts = judge(answers, study.key) if answers else []
    return {
        "study": study.name,
        "systems": list(study.key.systems),
        "protocol": study.key.protocol,
        "raters": [
            {"name": name, "num_done": _count_done(given)} for name, given in answers.items()
        ],
        "num_cases": study.num_cases,
        "questions": [each.to_json() for each in verdicts],
    }


def _open(engine: Engine, request: Request) -> Study:
    name = request.path_params["study"]
    if name not in list_studies(engine.paths):
        raise ApiError(404, f"no such study: {name[:80]!r}", code="no_study")
    return Study(engine.paths, name)


def _find_rater(study: Study, token: str) -> Rater:
    rater = study.find_rater(token)
    if rater is None:
        raise _no_rater("another token" if token else "none")
    return rater


def _no_rater(found: str) -> ApiError:
    return ApiError(
        404,
        f"somebody who judges in this study is needed; found: {found}; next: ask for a new link",
        code="no_rater",
    )


def _order(study: Study, rater: Rater) -> list[str]:
    # everybody in an order of their own, which stays the same
    digest = hashlib.sha256(f"{study.name} {rater.token}".encode()).digest()
    random = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    items = sorted(study.key.first_is_left)
    return [items[i] for i in random.permutation(len(items))]


def _count_done(answers: Answers) -> int:
    return sum(len(given) == len(ASKED) for given in answers.values())


def _find_next(ordered: list[str], answers: Answers) -> str | None:
    left = (item for item in ordered if len(answers.get(item, {})) < len(ASKED))
    return next(left, None)


def _link(study: Study, rater: Rater) -> str:
    return f"/study?{urlencode({'study': study.name, 'token': rater.token})}"


def _describe(study: Study) -> dict[str, Any]:
    raters = [
        {
            "name": rater.name,
            "token": rater.token,
            "link": _link(study, rater),
            "num_done": _count_done(study.load_answers(rater)),
        }
        for rater in study.load_raters()
    ]
    return {
        "study": study.name,
        "systems": list(study.key.systems),
        "num_cases": study.num_cases,
        "raters": raters,
    }
