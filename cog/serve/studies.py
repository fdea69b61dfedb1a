"""``/api/studies``: blind studies of a project, for who asks and, with a token, for who judges."""

import hashlib
from typing import Any
from urllib.parse import urlencode

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from cog.evaluation.blind import ANSWERS, ASKED, judge, make_study
from cog.evaluation.choose import choose_named_sides
from cog.evaluation.study_folder import Answers, Rater, Study, list_studies, save_study
from cog.paths import ProjectPaths
from cog.serve.answers import answer_json
from cog.serve.arriving import read_request
from cog.serve.bodies import JudgementBody, RaterBody, StudyBody, read_body
from cog.serve.errors import ApiError


async def answer_studies(request: Request) -> Response:
    """Answer ``GET /api/studies``: all; and ``POST``: the study that was made."""
    return await (_make_new(request) if request.method == "POST" else _list_all(request))


async def _list_all(request: Request) -> Response:
    paths = _get_paths(request)

    def find() -> list[dict[str, Any]]:
        return [_describe(Study(paths, name)) for name in list_studies(paths)]

    return answer_json({"studies": await run_in_threadpool(find)})


async def _make_new(request: Request) -> Response:
    paths = _get_paths(request)
    body = read_body(StudyBody, await read_request(request))

    def make() -> dict[str, Any]:
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

    return answer_json(await run_in_threadpool(make))


async def add_rater(request: Request) -> Response:
    """Answer ``POST /api/studies/{study}/raters``: the rater's token and link."""
    _check_key(request)
    body = read_body(RaterBody, await read_request(request))

    def add() -> dict[str, Any]:
        study = _open(request)
        rater = study.add_rater(body.name)
        return {"name": rater.name, "token": rater.token, "link": _link(study, rater)}

    return answer_json(await run_in_threadpool(add))


async def show_items(request: Request) -> Response:
    """Answer ``GET /api/studies/{study}/items``: cases that do not say what wrote which text."""

    def show() -> dict[str, Any]:
        study = _open(request)
        rater = _find_rater(study, request.query_params.get("token", ""))
        items = {each.item: each for each in study.load_items()}
        answers = study.load_answers(rater)
        ordered = _order(study, rater)
        return {
            "study": study.name,
            "rater": rater.name,
            "questions": [{"name": name, "text": text} for name, text in ASKED.items()],
            "answers_allowed": [ANSWERS[0], ANSWERS[2], ANSWERS[1]],
            "items": [
                {
                    "item": name,
                    "prompt": items[name].prompt,
                    "text_a": items[name].text_a,
                    "text_b": items[name].text_b,
                }
                for name in ordered
            ],
            "answers": answers,
            "next": _find_next(ordered, answers),
        }

    return answer_json(await run_in_threadpool(show))


async def keep_judgement(request: Request) -> Response:
    """Answer ``POST /api/studies/{study}/judgements``: how many cases are done, and the next."""
    body = read_body(JudgementBody, await read_request(request))

    def keep() -> dict[str, Any]:
        study = _open(request)
        rater = _find_rater(study, body.token)
        answers = study.answer(rater, item=body.item, question=body.question, answer=body.answer)
        return {
            "num_done": _count_done(answers),
            "num_cases": study.num_cases,
            "next": _find_next(_order(study, rater), answers),
        }

    return answer_json(await run_in_threadpool(keep))


async def show_answers(request: Request) -> Response:
    """Answer ``GET /api/studies/{study}/answers``: the sheet of one rater."""
    _check_key(request)

    def show() -> str:
        study = _open(request)
        name = request.query_params.get("rater", "")
        found = [each for each in study.load_raters() if each.name == name]
        if not found:
            raise _no_rater(f"{name[:80]!r}")
        return study.write_answers(study.load_answers(found[0]))

    content = await run_in_threadpool(show)
    return Response(content, media_type="text/csv; charset=utf-8")


async def show_result(request: Request) -> Response:
    """Answer ``GET /api/studies/{study}/result``: what is preferred; it names the systems."""
    _check_key(request)

    def show() -> dict[str, Any]:
        study = _open(request)
        answers = {name: given for name, given in study.load_all_answers().items() if given}
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

    return answer_json(await run_in_threadpool(show))


def _get_paths(request: Request) -> ProjectPaths:
    paths: ProjectPaths = request.app.state.engine.paths
    return paths


def _check_key(request: Request) -> None:
    # these routes are open to those who bring a token, and tell more than they may know
    if not request.state.has_key:
        raise ApiError(401, "a key is needed", code="invalid_api_key")


def _open(request: Request) -> Study:
    paths, name = _get_paths(request), request.path_params["study"]
    if name not in list_studies(paths):
        raise ApiError(404, f"no such study: {name[:80]!r}", code="no_study")
    return Study(paths, name)


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
    raters = []
    for rater in study.load_raters():
        num_done = _count_done(study.load_answers(rater))
        raters.append(
            {
                "name": rater.name,
                "token": rater.token,
                "link": _link(study, rater),
                "num_done": num_done,
            }
        )
    return {
        "study": study.name,
        "systems": list(study.key.systems),
        "num_cases": study.num_cases,
        "raters": raters,
    }
