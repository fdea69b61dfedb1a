"""``benchmarks.serve`` counts what is wrong, and only that."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.clients import (
    MALFORMED,
    Server,
    Tally,
    break_off,
    load,
    read_stream,
    send_malformed,
)
from benchmarks.serve import check_citations, quantile
from cog.index.versions.activation import switch_corpus
from cog.paths import ProjectPaths
from tests.serve.serving import run_server


def test_clients_are_answered_and_citations_checked(tmp_path: Path, village: ProjectPaths) -> None:
    shutil.copytree(village.root, tmp_path / "served")
    paths = ProjectPaths(tmp_path / "served")
    switch_corpus(paths, "village")
    with run_server(paths) as running:
        here: Any = SimpleNamespace(pid=os.getpid())
        server = Server(here, running.port)
        body = {"prefix": "The", "corpus": "village", "decoding": {"phrase_bias": 3.0}}
        tally = Tally()
        read_stream(server, body, tally)
        read_stream(server, {**body, "corpus": "nowhere"}, tally)
        (text,), (error,) = tally.texts, tally.errors
        assert "404" in error
        assert len(tally.first_seconds) == 1
        num_citations, problems = check_citations(paths, [text])
        assert num_citations
        assert problems == []
        copy = next(each for each in text["segments"] if each["from"] == "corpus")
        copy["char_start"] += 1
        assert len(check_citations(paths, [text])[1]) == 1
        many, _ = load(server, ["The", "A"], corpora=["village"], clients=2, seconds=0.1, tokens=4)
        assert len(many.texts) >= 2
        assert many.errors == []
        break_off(server, ["The"], 12)
        statuses, errors = send_malformed(server, len(MALFORMED))
        assert errors == []
        assert sum(statuses.values()) == len(MALFORMED)
        server.wait_until_idle()


def test_tokens_count_by_what_arrived_of_their_text_in_time() -> None:
    def text(corpus: str, *arrived: tuple[float, int]) -> dict[str, Any]:
        return {"corpus": corpus, "text": "x" * 8, "num_tokens": 4, "arrived": list(arrived)}

    texts = [text("a", (1.0, 8)), text("b", (1.5, 2), (2.0, 4), (2.5, 2)), text("a", (3.0, 8))]
    assert Tally(texts, end=2.0).count_tokens() == {"a": 4.0, "b": 3.0}
    assert Tally(texts, begin=1.0, end=2.0).count_tokens() == {"a": 0.0, "b": 3.0}


def test_a_quantile_is_one_of_the_values() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.95) == 3.0
    assert quantile([1.0], 0.5) == 1.0
    assert quantile([], 0.5) is None
