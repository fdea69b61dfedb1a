"""A browser, and a server whose corpora hold what pages must not take for their own."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from cog.baselines.system import COG
from cog.baselines.systems import identify_system
from cog.index.versions.activation import switch_corpus
from cog.params import load_params
from cog.paths import ProjectPaths
from tests.built_project import add_corpus
from tests.evaluation.making import DECODING, copied, rep, result, save
from tests.serve.pages.visiting import Visitor
from tests.serve.serving import WAIT, RunningServer, run_server

NAMES = ("chromium", "chromium-browser", "google-chrome")
HOSTILE = [
    {
        "id": ("..", ".", "../2?<b>", "%2e%2e", "a/../b", "#5")[number],
        "title": f"<img src=x onerror=alert({number})> \u202eelttil",
        "text": f"<script>alert({number})</script> is what this text begins with, \u202eand this "
        f"part\u2066 runs the other way 😀 before it says <b>no more</b> &amp; ends as number "
        f"{number} of its kind.",
        "by": "<i>CC0</i>",
    }
    for number in range(6)
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, without a window."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium here; next: apt-get install chromium")
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    expect.set_options(timeout=1000 * WAIT)
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=found, args=options)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def shown_project(tmp_path_factory: pytest.TempPathFactory, two_corpora: ProjectPaths) -> Path:
    """A project with a third corpus that holds markup, and with evaluations."""
    root = tmp_path_factory.mktemp("shown") / "project"
    shutil.copytree(two_corpora.root, root)
    paths = ProjectPaths(root)
    add_corpus(paths, "hostile", [json.dumps(each) for each in HOSTILE])
    for mean, chunks in ((1.0, 16), (2.0, 0)):
        scores = [
            rep([8 + mean + i % 7 for i in range(12)], [9.0] * 12),
            copied([0.5 + mean / 10] * 12),
        ]
        ran = identify_system(
            paths,
            load_params(paths.params),
            corpus_id="village",
            name=COG,
            decoding=replace(DECODING, top_k_documents=chunks),
            device="cpu",
        )
        save(paths, result("village", scores, system=ran))
    return root


@pytest.fixture(scope="session")
def shown(shown_project: Path) -> Iterator[RunningServer]:
    """A server on that project; `village` is switched on before and after each test."""
    with run_server(ProjectPaths(shown_project)) as running:
        yield running


@pytest.fixture
def visitor(browser: Browser, shown: RunningServer) -> Iterator[Visitor]:
    """Opens pages; at the end none may have said that something is wrong."""
    switch_corpus(shown.paths, "village")
    visitor = Visitor(browser, shown)
    yield visitor
    visitor.leave()
