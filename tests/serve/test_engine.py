"""The engine under a server: places, versions, clients that go away, and the end."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import pytest

from cog.decoding.queue import TextQueue
from cog.errors import ServeError
from cog.index.versions.activation import switch_corpus
from cog.locks import hold_lock
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.serve.engine import Engine
from cog.serve.run import Server, bind, serve
from cog.serve.settings import ServeSettings
from tests.serve.serving import WAIT, RunningServer, run_server


@pytest.fixture
def small(two_corpora: ProjectPaths) -> Iterator[RunningServer]:
    """A server with one place, and one text that may wait for it."""
    with run_server(two_corpora, batch_size=1, max_waiting=1, max_indexes=1) as running:
        yield running


def wait_for(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not is_so():
        assert time.monotonic() < end, "it never came to be so"
        time.sleep(0.005)


def hold(server: RunningServer) -> threading.Event:
    """Let the engine's thread stand still until the event is set."""
    go_on, step = threading.Event(), server.engine._queue.step

    def wait_and_step() -> object:
        assert go_on.wait(WAIT)
        return step()

    server.engine._queue.step = wait_and_step  # type: ignore[assignment,method-assign]
    return go_on


def begin(server: RunningServer, body: dict[str, object]) -> socket.socket:
    """Send a request, and keep its connection."""
    content = json.dumps(body).encode()
    client = socket.create_connection(("127.0.0.1", server.port), timeout=WAIT)
    head = (
        "POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    client.sendall(head.encode() + content)
    return client


def read_all(client: socket.socket) -> bytes:
    parts = []
    while part := client.recv(65536):
        parts.append(part)
    client.close()
    return b"".join(parts)


def is_idle(server: RunningServer) -> bool:
    engine = server.engine
    return not (engine._jobs or engine.num_running or engine.num_waiting)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_client_that_goes_away_frees_its_places(small: RunningServer, is_streamed: bool) -> None:
    go_on = hold(small)
    client = begin(small, {"prefix": ["A", "B"], "stream": is_streamed})
    wait_for(lambda: len(small.engine._jobs) == 2)
    client.close()
    wait_for(lambda: not small.engine._jobs)
    go_on.set()
    wait_for(lambda: is_idle(small))
    assert 'cog_texts_total{outcome="left"} 2' in small.get("/metrics").body.decode()
    assert small.post("/generate", {"prefix": "A"}).status == 200


def test_a_full_queue_says_when_to_come_again(small: RunningServer) -> None:
    go_on = hold(small)
    clients = [begin(small, {"prefix": ["A", "B"]})]
    wait_for(lambda: len(small.engine._jobs) == 2)
    refused = small.post("/generate", {"prefix": "C"})
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.error["type"] == "rate_limit_error"
    go_on.set()
    answers = [read_all(client) for client in clients]
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
    assert small.post("/generate", {"prefix": "C"}).status == 200


def test_a_text_that_runs_keeps_its_version_while_another_is_switched_on(
    own_project: ProjectPaths,
) -> None:
    with run_server(own_project, batch_size=2) as server:
        go_on = hold(server)
        body = {"prefix": "The old mill", "stream": True, "decoding": {"phrase_bias": 3.0}}
        first = begin(server, body)
        wait_for(lambda: len(server.engine._jobs) == 1)
        switch_corpus(own_project, "other")
        second = begin(server, body)
        wait_for(lambda: len(server.engine._jobs) == 2)
        go_on.set()
        for client, corpus_id in ((first, "village"), (second, "other")):
            text = read_all(client).decode()
            assert f'"corpus":"{corpus_id}"' in text
            others = {"village", "other"} - {corpus_id}
            assert not any(f'"corpus":"{each}"' in text for each in others)


def test_indexes_that_nobody_uses_are_closed_beyond_the_limit(small: RunningServer) -> None:
    for corpus_id in ("village", "other", "village+other", "village"):
        assert small.post("/generate", {"prefix": "A", "corpus": corpus_id}).status == 200
    wait_for(lambda: small.engine.indexes.num_open == 1)


def test_a_request_that_takes_too_long_is_given_up(two_corpora: ProjectPaths) -> None:
    with run_server(two_corpora, max_seconds=0.05) as server:
        go_on = hold(server)
        late = server.post("/generate", {"prefix": "A"})
        assert late.status == 504
        assert late.error["code"] == "timeout"
        streamed = server.post("/generate", {"prefix": "A", "stream": True}).events
        assert [name for name, _ in streamed] == ["begin", "error", "done"]
        go_on.set()
        wait_for(lambda: is_idle(server))


def test_an_engine_that_breaks_tells_everybody_and_ends_the_server(
    two_corpora: ProjectPaths, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(_queue: TextQueue) -> object:
        raise MemoryError("made up")

    monkeypatch.setattr(TextQueue, "step", break_down)
    lines: SimpleQueue[str] = SimpleQueue()
    params, settings = load_params(two_corpora.params), ServeSettings(port=0)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(
            serve, two_corpora, params, settings=settings, device="cpu", say=lines.put
        )
        port = int(lines.get(timeout=WAIT).split("http://127.0.0.1:")[1].split("/")[0])
        running = RunningServer(two_corpora, None, port)  # type: ignore[arg-type]
        answer = running.post("/generate", {"prefix": "A"})
        assert answer.status == 500
        assert "made up" in answer.error["message"]
        with pytest.raises(ServeError, match="MemoryError: made up; next: cog serve"):
            ended.result(WAIT)
    assert "the engine is broken" in caplog.text


def test_who_does_not_read_its_answer_does_not_keep_the_server(
    two_corpora: ProjectPaths, caplog: pytest.LogCaptureFixture
) -> None:
    with run_server(two_corpora, body_seconds=0.2) as server:
        assert server.server is not None
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
        connections = server.server.server_state.connections
        wait_for(lambda: any(each.flow and each.flow.write_paused for each in connections))
    with client:
        assert "was cut off: it does not read its answer" in caplog.text


def test_a_port_in_use_is_told_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServeError, match="another process listens there; next: pass another"):
            bind(ServeSettings(port=port))


@pytest.mark.parametrize("host", ["nowhere.invalid", "192.0.2.1"])
def test_a_host_that_is_not_this_machine_is_told_in_one_line(host: str) -> None:
    with pytest.raises(ServeError, match="must be an address or a name of this machine"):
        bind(ServeSettings(host=host, port=0, is_open=True))


def test_sigterm_finishes_what_runs_and_ends(own_project: ProjectPaths, tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ["--project", str(own_project.root), "serve", "--port", "0"]
    with log.open("wb") as target:
        process = subprocess.Popen(
            [sys.executable, "-m", "cog.cli.main", *words],
            stderr=target,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
    try:
        wait_for(lambda: b"serving" in log.read_bytes() or process.poll() is not None)
        port = int(log.read_text().split("http://127.0.0.1:")[1].split("/")[0])
        # enough to be seen running on any machine
        body = {"prefix": ["A"] * 32, "decoding": {"max_new_tokens": 128}}
        server = RunningServer(own_project, None, port)  # type: ignore[arg-type]
        client = begin(server, body)
        wait_for(lambda: server.get("/healthz").json["queue"]["running"] > 0)
        process.send_signal(signal.SIGTERM)
        answer = read_all(client)
        assert answer.startswith(b"HTTP/1.1 200")
        assert len(json.loads(answer.split(b"\r\n\r\n", 1)[1])["generations"]) == 32
        assert process.wait(WAIT) == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=WAIT)
    finally:
        process.kill()
        process.wait()
    assert log.read_text().endswith("cog: ended\n")


def test_being_told_to_end_while_the_engine_is_looked_at_is_not_forgotten() -> None:
    class Looked:
        @property
        def failure(self) -> None:
            server.should_exit = True  # as a signal does

    server = Server(Looked(), ServeSettings())  # type: ignore[arg-type]
    looking = server.on_tick(1)  # waits for nothing, and a browser has a loop of its own here
    with pytest.raises(StopIteration) as ended:
        looking.send(None)
    assert ended.value.value is True


def test_a_request_that_waits_for_another_process_does_not_keep_a_server(
    own_project: ProjectPaths, caplog: pytest.LogCaptureFixture
) -> None:
    def switch(server: RunningServer) -> None:
        with pytest.raises((OSError, http.client.HTTPException)):
            server.post("/api/switch", {"corpus": "village"})

    with ThreadPoolExecutor(1) as pool, hold_lock(own_project.locks / "active.lock"):
        with run_server(own_project, body_seconds=0.2) as running:
            switching = pool.submit(switch, running)
            server = running.server
            assert server is not None
            while not server.server_state.tasks:
                time.sleep(0.01)
        assert "a request" in server.left
        assert "a request does not end, and is left" in caplog.text
        switching.result(WAIT)


def test_an_engine_that_does_not_stop_does_not_keep_a_server(
    own_project: ProjectPaths, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_stop, stop = threading.Event(), Engine.stop

    def stop_late(engine: Engine) -> None:
        may_stop.wait(WAIT)
        stop(engine)

    monkeypatch.setattr(Engine, "stop", stop_late)
    with run_server(own_project, body_seconds=0.1) as running:
        assert running.get("/healthz").status == 200
    assert running.server is not None
    assert "the engine" in running.server.left
    assert caplog.text.count("the engine does not end, and is left") == 1
    may_stop.set()
