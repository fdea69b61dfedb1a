"""A server that runs in a thread, and what asks it."""

import http.client
import io
import json
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn

from cog.params import load_params
from cog.paths import ProjectPaths
from cog.serve.engine import Engine
from cog.serve.run import Server, bind
from cog.serve.settings import ServeSettings

WAIT = 90  # seconds after which a test is given up; only here, since machines are loaded
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401
        """What JSON it holds."""
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """What was wrong."""
        found = self.json["error"]
        assert set(found) == {"message", "type", "param", "code", "run"}
        assert "\n" not in found["message"]
        return dict(found)

    @property
    def events(self) -> list[tuple[str, Any]]:
        """Server-sent events: names and data."""
        assert self.headers["content-type"].startswith("text/event-stream")
        return list(iter_events(self.body.decode()))


def iter_events(text: str) -> Iterator[tuple[str, Any]]:
    """Read server-sent events."""
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if fields:
            data = fields["data"]
            yield fields.get("event", ""), data if data == "[DONE]" else json.loads(data)


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server, and the project that it serves."""

    paths: ProjectPaths
    engine: Engine
    port: int
    server: Server | None = None  # what runs, if it does so in this process

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> http.client.HTTPConnection:
        """Open a connection."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Ask, and wait for the whole answer."""
        content: Any = body if isinstance(body, bytes | None) else json.dumps(body)
        connection = self.connect()
        try:
            more = JSON if content is not None else {}
            connection.request(method, path, content, {**more, **(headers or {})})
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())
        finally:
            connection.close()

    def post(self, path: str, body: object, **headers: str) -> Answer:
        """Send JSON."""
        return self.ask("POST", path, body, headers=headers)

    def get(self, path: str) -> Answer:
        """Ask for something."""
        return self.ask("GET", path)


@contextmanager
def run_server(paths: ProjectPaths, **settings: Any) -> Iterator[RunningServer]:  # noqa: ANN401
    """Serve a project as long as the block runs."""
    chosen = ServeSettings(port=0, **settings)
    listener = bind(chosen)
    engine = Engine(paths, load_params(paths.params), settings=chosen, device="cpu")
    server = Server(engine, chosen)
    thread = threading.Thread(target=server.run_on, args=(listener,))
    thread.start()
    try:
        yield RunningServer(paths, engine, listener.getsockname()[1], server)
    finally:
        server.should_exit = True
        thread.join(WAIT)
        if thread.is_alive():
            pytest.fail(f"the server did not end\n{describe_pending(server)}")


def describe_pending(server: uvicorn.Server) -> str:
    """What a server waits for: where other threads stand, then its connections and requests."""
    lines = []
    names = {each.ident: each.name for each in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            stack = "".join(traceback.format_stack(frame, limit=6))
            lines.append(f"thread {names.get(ident)}:\n{stack}")
    for each in server.server_state.connections:
        cycle = getattr(each, "cycle", None)
        state = cycle and (cycle.scope["path"], cycle.response_started, cycle.response_complete)
        lines.append(f"connection from {each.client}: {state}, {each.transport!r}")
    for task in server.server_state.tasks:
        shown = io.StringIO()
        task.print_stack(limit=4, file=shown)
        lines.append(shown.getvalue())
    return "\n".join(lines)
