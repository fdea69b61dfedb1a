"""Who may ask, and how much at once."""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cog.cli.main import cli
from cog.errors import ServeError
from cog.paths import ProjectPaths
from tests.serve.serving import WAIT, RunningServer, run_server

HTML = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def locked(two_corpora: ProjectPaths) -> Iterator[RunningServer]:
    """A server with a key and narrow limits."""
    limits = {"max_body_bytes": 2000, "body_seconds": 0.3, "allowed_hosts": ("named",)}
    with run_server(two_corpora, api_key="sesame", **limits) as running:
        yield running


def test_every_route_needs_the_key_but_those_of_the_login(locked: RunningServer) -> None:
    for path in ("/v1/models", "/metrics", "/api/corpora", "/openapi.json", "/corpora", "/docs"):
        assert locked.get(path).status == 401
    found = locked.post("/generate", {"prefix": "A"})
    assert found.status == 401
    assert found.headers["www-authenticate"] == "Bearer"
    assert found.error["type"] == "authentication_error"
    wrong = locked.post("/generate", {"prefix": "A"}, Authorization="Bearer sesame2")
    assert "another one" in wrong.error["message"]
    right = locked.post("/generate", {"prefix": "A"}, Authorization="Bearer sesame")
    assert right.status == 200
    for path in ("/api/studies", "/api/studies/x/result", "/api/studies/x/raters"):
        assert locked.get(path).status == 401
    assert locked.get("/healthz").status == 200
    assert locked.get("/static/base.css").status == 200


def test_a_browser_begins_and_ends_a_session(locked: RunningServer) -> None:
    page = locked.ask("GET", "/corpora", headers=HTML)
    assert page.status == 401
    assert b'id="login"' in page.body
    study = "/study?study=0123456789abcdef"
    assert locked.ask("GET", study, headers=HTML).status == 401
    assert locked.ask("GET", f"{study}&token=x", headers=HTML).status == 200  # for who judges
    assert locked.post("/api/login", {"key": "wrong"}).status == 401
    begun = locked.post("/api/login", {"key": "sesame"})
    assert begun.status == 204
    cookie = begun.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert "sesame" not in cookie
    session = {"Cookie": cookie.split(";")[0]}
    assert locked.ask("GET", "/corpora", headers={**HTML, **session}).status == 200
    for wrong in ("cog_session=x", r'cog_session="\303\251"'):
        assert locked.ask("GET", "/corpora", headers={**HTML, "Cookie": wrong}).status == 401
    assert locked.post("/api/logout", {}).status == 204


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1:80", 200),
        ("[::1]:8000", 200),
        ("192.168.0.7", 200),
        ("named:8000", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("", 403),
    ],
)
def test_the_server_answers_to_its_own_names_only(
    locked: RunningServer, host: str, status: int
) -> None:
    assert locked.ask("GET", "/healthz", headers={"Host": host}).status == status


def test_other_sites_cannot_ask(server: RunningServer) -> None:
    own = f"127.0.0.1:{server.port}"
    body = {"prefix": "A", "decoding": {"max_new_tokens": 1}}
    assert server.post("/generate", body, Origin=f"http://{own}").status == 200
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": f"http://evil.example:{server.port}"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        found = server.ask("POST", "/generate", body, headers=headers)
        assert found.status == 403
        assert found.error["code"] == "wrong_origin"
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", **HTML}
    assert server.ask("GET", "/", headers=link).status == 200


def test_answers_carry_what_keeps_a_browser_safe(server: RunningServer) -> None:
    for path in ("/", "/healthz", "/nothing", "/static/base.css"):
        headers = server.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_refused(server: RunningServer, method: str) -> None:
    found = server.ask(method, "/generate")
    assert found.status == 405
    assert found.headers["allow"] == "POST"


def test_a_body_of_another_kind_is_refused(server: RunningServer) -> None:
    found = server.ask("POST", "/generate", b"prefix=A", headers={"Content-Type": "text/plain"})
    assert found.status == 415
    assert "Content-Type: application/json" in found.error["message"]


def test_bodies_have_a_size_and_a_time(locked: RunningServer) -> None:
    key = {"Authorization": "Bearer sesame"}
    large = locked.ask("POST", "/generate", b"[" + b" " * 3000 + b"]", headers=key)
    assert large.status == 413
    head = (
        "POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Authorization: Bearer sesame\r\n"
    )
    slow = talk(locked, head + "Content-Length: 100\r\n\r\n{")
    assert slow.startswith(b"HTTP/1.1 408")
    chunked = head + "Transfer-Encoding: chunked\r\n\r\n" + f"{1500:x}\r\n{' ' * 1500}\r\n" * 2
    assert talk(locked, chunked).startswith(b"HTTP/1.1 413")


def talk(server: RunningServer, words: str) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT) as client:
        client.sendall(words.encode())
        parts = []
        while part := client.recv(65536):
            parts.append(part)
        return b"".join(parts)


@pytest.mark.parametrize(
    "words",
    [
        "\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9\r\n\r\n",
        "POST /generate HTTP/1.1\r\nConnection: close\r\n\r\n",
    ],
)
def test_what_is_no_request_ends_the_connection_and_nothing_else(
    server: RunningServer, words: str
) -> None:
    answer = talk(server, words)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert server.get("/healthz").status == 200


def test_others_are_served_only_with_a_key_or_if_it_is_said(two_corpora: ProjectPaths) -> None:
    words = ["--project", str(two_corpora.root), "serve", "--host", "0.0.0.0", "--port", "0"]
    result = CliRunner().invoke(cli, words, standalone_mode=False)
    assert isinstance(result.exception, ServeError)
    assert "pass --api-key-file FILE or --api-key KEY, or --no-auth" in str(result.exception)


def test_a_key_out_of_a_file_shows_in_no_list_of_processes(
    two_corpora: ProjectPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[str] = []
    monkeypatch.setattr(
        "cog.serve.run.serve", lambda *_, settings, **__: served.append(settings.api_key)
    )
    key = tmp_path / "key"
    words = ["--project", str(two_corpora.root), "serve", "--host", "0.0.0.0", "--api-key-file"]
    for content, code in ((b"sesame\n", 0), (b" \n", 2), (b"\xff", 2)):
        key.write_bytes(content)
        assert CliRunner().invoke(cli, [*words, str(key)]).exit_code == code
    assert CliRunner().invoke(cli, [*words, "-"], input="open\n").exit_code == 0
    assert served == ["sesame", "open"]


@pytest.mark.parametrize("seconds", ["nan", "inf", "0"])
def test_seconds_that_never_end_are_wrong_usage(seconds: str) -> None:
    result = CliRunner().invoke(cli, ["serve", "--max-seconds", seconds])
    assert result.exit_code == 2
    assert "--max-seconds" in result.output


def test_the_log_holds_no_prompt_unless_asked(
    two_corpora: ProjectPaths, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="cog.serve")
    for is_asked in (False, True):
        with run_server(two_corpora, has_prompts_in_log=is_asked) as server:
            server.post("/generate", {"prefix": "The secret mill"})
            server.post("/generate", {"prefix": "The secret mill", "colour": "The secret mill"})
            server.get("/documents/village/secret-id")
        assert "/generate 200" in caplog.text
        assert ("The secret mill" in caplog.text) == is_asked
        assert "secret-id" not in caplog.text
