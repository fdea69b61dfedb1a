"""Routes that tell of the project, and the pages."""

import json
import re
from pathlib import Path

import pytest

from cog.corpus.documents import load_prompts
from cog.index.versions.activation import switch_corpus
from cog.paths import ProjectPaths
from tests.serve.serving import RunningServer, run_server

HTML = {"Accept": "text/html,*/*"}
PAGES = ["/", "/compare", "/corpora", "/corpora/village", "/results", "/study", "/docs"]


def test_health_tells_what_is_active_and_how_full_the_queue_is(server: RunningServer) -> None:
    found = server.get("/healthz").json
    assert found["status"] == "ok"
    assert found["active"]["corpus"] == "village"
    assert found["queue"] == {"running": 0, "waiting": 0, "max_waiting": 128, "batch_size": 16}


def test_metrics_count_texts_tokens_and_seconds(server: RunningServer) -> None:
    def read() -> dict[str, float]:
        found = server.get("/metrics")
        assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = [line for line in found.body.decode().splitlines() if line[:1] != "#"]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    before = read()
    server.post("/generate", {"prefix": "A", "num_return": 3, "stream": True})
    after = read()
    name = 'cog_texts_total{outcome="written"}'
    assert after[name] - before.get(name, 0) == 3
    assert after["cog_tokens_total"] - before["cog_tokens_total"] == 36
    assert after['cog_part_seconds_total{part="decode"}'] > 0
    assert after["cog_first_segment_seconds_count"] > before["cog_first_segment_seconds_count"]


def test_a_document_is_whole_or_cut_and_of_a_version(server: RunningServer) -> None:
    whole = server.get("/documents/village/forest").json
    index = server.get("/healthz").json["active"]["index"]
    same = server.get(f"/documents/village/forest?index={index}").json
    assert {**same, "index": None} == whole
    assert whole["num_characters"] == len(whole["text"])
    part = server.get("/documents/village/forest?start=4&end=10").json
    assert part["text"] == whole["text"][4:10]
    assert (part["char_start"], part["char_end"]) == (4, 10)
    beyond = server.get("/documents/village/forest?start=1000000").json
    assert beyond["text"] == ""
    assert server.get(f"/documents/village?id=forest&index={index}").json == same
    union = server.get(f"/documents/village%2Bother/forest?index={index}")
    assert union.status == 409  # a union has a digest of each part


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/documents/village/nothing", 404, "no document"),
        ("/documents/village/a%2F..%2Fb", 404, "a/../b"),
        ("/documents/nowhere/forest", 404, "nowhere"),
        ("/documents/village?id=..", 404, "'..'"),
        ("/documents/village", 400, "id must name a document"),
        ("/documents/..%2F..%2Fregistry/forest", 404, ""),
        ("/documents/village/forest?start=-1", 400, "start must be a whole number"),
        ("/documents/village/forest?end=1e3", 400, "end must be a whole number"),
        ("/documents/village/forest?index=abc", 409, "needs one index"),
        ("/documents/village/%ff", 404, ""),
        ("/static/../app.py", 404, ""),
        ("/static/..%2Fapp.py", 404, ""),
        ("/static/none.css", 404, "no such file"),
        ("/nothing", 404, "no such address"),
        ("/v1/chat/completions", 404, "next: write with POST /v1/completions"),
        ("/api/corpora/nowhere", 404, "nowhere"),
    ],
)
def test_what_is_not_there_is_named(
    server: RunningServer, path: str, status: int, message: str
) -> None:
    found = server.get(path)
    assert found.status == status
    assert message in found.error["message"]


@pytest.mark.parametrize("path", PAGES)
def test_pages_are_html_without_inline_script_or_style(server: RunningServer, path: str) -> None:
    found = server.ask("GET", path, headers=HTML)
    assert found.status == 200
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self'" in found.headers["content-security-policy"]
    assert "unsafe" not in found.headers["content-security-policy"]
    text = found.body.decode()
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))
    assert "<style" not in text
    assert not re.search(r"\son\w+=|\sstyle=|https?://", text.split("<main", 1)[0])
    for name in re.findall(r'(?:src|href)="/static/([^"]+)"', text):
        assert server.get(f"/static/{name}").status == 200


def test_static_files_are_asked_for_again_only_if_they_changed(server: RunningServer) -> None:
    first = server.get("/static/base.css")
    assert first.headers["content-type"] == "text/css; charset=utf-8"
    again = server.ask("GET", "/static/base.css", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


def test_an_address_that_is_none_is_a_page_for_browsers(server: RunningServer) -> None:
    found = server.ask("GET", "/nowhere<script>", headers=HTML)
    assert found.status == 404
    assert b"&lt;script&gt;" in found.body
    assert b"<script>" not in found.body


def test_openapi_describes_every_route_and_field(server: RunningServer) -> None:
    found = server.get("/openapi.json").json
    assert found["openapi"].startswith("3.1")
    assert {"/v1/completions", "/generate", "/documents/{corpus}/{document_id}"} <= set(
        found["paths"]
    )
    body = found["components"]["schemas"]["CompletionBody"]
    assert body["required"] == ["prompt"]
    assert all(field.get("description") for field in body["properties"].values())
    names = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(found)))
    assert names <= set(found["components"]["schemas"])
    assert b"/v1/completions" in server.get("/docs").body


def test_settings_have_defaults_ranges_and_meanings(server: RunningServer) -> None:
    found = server.get("/api/settings?corpus=other").json
    assert found["corpus"] == "other"
    settings = {each["name"]: each for each in found["settings"]}
    top_p = settings["top_p"]
    assert (top_p["type"], top_p["default"], top_p["maximum"]) == ("number", 0.95, 1)
    assert top_p["is_minimum_open"]
    assert settings["method"]["choices"] == ["greedy", "nucleus"]
    assert settings["copy_once"]["type"] == "boolean"
    assert all(each["meaning"] for each in found["settings"])
    assert found["limits"]["max_texts"] == 64
    systems = {each["name"]: each["meaning"] for each in found["systems"]}
    assert next(iter(systems)) == "cog"
    assert systems["cog-tokens"] == "nothing is copied"
    prompts = load_prompts(server.paths.corpus("other").prompts)
    assert set(found["examples"]) <= {each.prefix for each in prompts}
    assert len(found["examples"]) == min(3, len({each.document_id for each in prompts}))


def test_the_registry_tells_states_and_commands(server: RunningServer) -> None:
    found = server.get("/api/corpora").json
    assert found["active"]["corpus"] == "village"
    rows = {row["id"]: row for row in found["corpora"]}
    assert {name: row["state"] for name, row in rows.items()} == {
        "hamlet": "listed",
        "other": "indexed",
        "village": "indexed",
    }
    assert rows["village"]["is_active"]
    assert rows["village"]["versions"] == 1
    assert rows["hamlet"]["run"].endswith("cog index build hamlet")
    one = server.get("/api/corpora/village").json
    assert one["row"] == rows["village"]
    assert one["card"]["title"] == "A village"
    assert one["prepared"]["num_documents"] == one["index"]["documents"]["num_indexed"]
    bare = server.get("/api/corpora/hamlet").json
    assert (bare["fetched"], bare["prepared"], bare["index"]) == (None, None, None)


def test_one_corpus_tells_samples_versions_history_and_findings(server: RunningServer) -> None:
    path = "/api/corpora/village"
    samples = server.get(f"{path}/samples?num=3&seed=1").json["samples"]
    assert len({each["document_id"] for each in samples}) == 3
    assert server.get(f"{path}/samples?num=3&seed=1").json["samples"] == samples
    (version,) = server.get(f"{path}/versions").json["versions"]
    assert version["is_active"]
    assert version["where"] == ["in place"]
    diff = server.get(f"{path}/diff").json
    assert (diff["num_added"], diff["num_removed"], diff["num_changed"]) == (0, 0, 0)
    entries = server.get(f"{path}/history").json["entries"]
    assert entries[-1]["after"]["corpus"] == "village"
    assert server.get(f"{path}/findings").json["findings"] == []
    for found in server.get("/api/findings").json["findings"]:
        assert set(found) == {"kind", "about", "problem", "run"}


def test_switch_and_rollback_are_posts_that_say_what_changed(
    own_project: ProjectPaths,
) -> None:
    with run_server(own_project) as server:
        found = server.post("/api/switch", {"corpus": "other"}).json
        assert (found["before"]["corpus"], found["after"]["corpus"]) == ("village", "other")
        assert found["is_change"]
        assert server.get("/healthz").json["active"]["corpus"] == "other"
        assert server.post("/api/switch", {"corpus": "other"}).json["is_change"] is False
        assert server.post("/api/rollback", {}).json["after"]["corpus"] == "village"
        refused = server.post("/api/rollback", {})
        assert refused.status == 409
        assert refused.error["run"].startswith("cog ")
        assert server.post("/api/switch", {"corpus": "hamlet"}).status == 409
        assert server.post("/api/switch", {"corpus": "nowhere"}).status == 404
        assert server.post("/api/switch", {"corpus": "other", "colour": 1}).status == 400
        foreign = server.post("/api/switch", {"corpus": "other"}, Origin="http://elsewhere")
        assert foreign.status == 403
        assert server.get("/healthz").json["active"]["corpus"] == "village"


def test_a_project_without_an_index_says_what_to_run(
    tmp_path: Path, two_corpora: ProjectPaths, own_project: ProjectPaths
) -> None:
    for corpus_id in ("village", "other"):
        own_project.corpus(corpus_id).manifest.unlink()
    own_project.active.unlink()
    with run_server(own_project) as server:
        found = server.post("/generate", {"prefix": "A"})
        assert found.status == 409
        assert found.error["code"] == "nothing_active"
        assert found.error["run"].endswith("&& cog switch --corpus village")
        page = server.ask("GET", "/", headers=HTML)
        assert page.status == 200
        assert b"Nothing can be written yet" in page.body
        assert server.get("/v1/models").json["data"] == []
        switched = server.post("/api/switch", {"corpus": "village"})
        assert switched.status == 409
        assert "must have an index" in switched.error["message"]


def test_a_version_that_was_replaced_is_still_written_from_by_its_digest(
    server: RunningServer,
) -> None:
    index = switch_corpus(server.paths, "village").after.index
    body = {"prefix": "A", "corpus": "village", "index": index[:12]}
    (text,) = server.post("/generate", body).json["generations"]
    assert text["index"] == index
