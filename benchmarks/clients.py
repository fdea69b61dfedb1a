"""Clients of a server: what they ask goes in, what they saw comes out; some behave badly."""

import http.client
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WAIT_SECONDS = 600
CLIENT_NICENESS = 15
JSON = {"Content-Type": "application/json"}
# what cannot be used, with the status that it must be answered with
MALFORMED: tuple[tuple[str, str, bytes, int], ...] = (
    *(
        ("POST", "/generate", body, 400)
        for body in (
            b"",
            b"{",
            b"[]",
            b'{"prefix": NaN}',
            b'{"prefix": 3}',
            b'{"prefix": []}',
            b'{"prefix": "a", "colour": 1}',
            b'{"prefix": "a", "num_return": 1e9}',
            b'{"prefix": "\\ud800"}',
            b"\xff\xfe",
        )
    ),
    ("POST", "/generate", b'{"prefix": "a", "corpus": "nowhere"}', 404),
    ("POST", "/generate", b'{"prefix": "a", "corpus": "../../etc"}', 404),
    ("POST", "/v1/completions", b'{"prompt": "a", "top_p": -1}', 400),
    ("POST", "/v1/completions", b'{"prompt": "a", "stop": "b"}', 400),
    ("GET", "/generate", b"", 405),
    ("GET", "/documents/nowhere/..%2f..%2fetc%2fpasswd", b"", 404),
    ("GET", "/static/..%2fapp.py", b"", 404),
)


@dataclass(slots=True)
class Tally:
    """What clients saw.

    :param texts: Texts as they were answered, with the corpus that was ``asked`` for and the
        characters that ``arrived``, each with when.
    :param errors: What went wrong.
    :param first_seconds: When each text was asked for, and seconds from then to its first segment,
        or to the beginning of it, where that is a copy.
    :param begin: From when it counts.
    :param end: When clients ceased to ask; what they had asked for was still written.
    :param processor_seconds: What the server spent in between.
    """

    texts: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    first_seconds: list[tuple[float, float]] = field(default_factory=list)
    begin: float = 0.0
    end: float = 0.0
    processor_seconds: float = 0.0

    def count_tokens(self) -> dict[str, float]:
        """Number of tokens that arrived in the time that counts, by corpus.

        Of a text that began before, or went on then, its share of characters.
        """
        counts: dict[str, float] = {}
        for text in self.texts:
            arrived = sum(n for when, n in text["arrived"] if self.begin < when <= self.end)
            share = arrived / max(1, len(text["text"]))
            counts[text["corpus"]] = counts.get(text["corpus"], 0.0) + share * text["num_tokens"]
        return counts


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs.

    :param process: Its process.
    :param port: Where it listens.
    """

    process: subprocess.Popen[bytes]
    port: int

    def connect(self) -> http.client.HTTPConnection:
        """Open a connection."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Ask for something; the status and what was answered."""
        with closing(self.connect()) as connection:
            connection.request(method, path, body or None, JSON)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def memory_bytes(self) -> int:
        """What it holds in memory now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = [each for each in status.splitlines() if each.startswith("VmRSS")]
        return int(line.split()[1]) * 1024

    def processor_seconds(self) -> float:
        """What it has spent on its own code so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) / os.sysconf("SC_CLK_TCK")

    def wait_until_idle(self) -> float:
        """Wait until nothing is written or waits; seconds."""
        began = time.perf_counter()
        while time.perf_counter() - began < WAIT_SECONDS:
            queue = json.loads(self.ask("GET", "/healthz")[1])["queue"]
            if not queue["running"] and not queue["waiting"]:
                return time.perf_counter() - began
            time.sleep(0.02)
        raise RuntimeError("the server goes on writing for nobody")


@contextmanager
def run_server(root: Path, *, batch_size: int) -> Iterator[Server]:
    """Start a server on a project in a process of its own; end it after the block."""
    with tempfile.NamedTemporaryFile() as log:
        words = ["--project", str(root), "serve", "--port", "0"]
        words += ["--batch-size", str(batch_size), "--max-waiting", "4096"]
        process = subprocess.Popen([sys.executable, "-m", "cog.cli.main", *words], stderr=log)
        try:
            while b"http://" not in Path(log.name).read_bytes():
                if process.poll() is not None:
                    raise RuntimeError(Path(log.name).read_text())
                time.sleep(0.02)
            port = int(Path(log.name).read_text().split("http://127.0.0.1:")[1].split("/")[0])
            yield Server(process, port)
        finally:
            process.terminate()
            process.wait(WAIT_SECONDS)


def read_stream(server: Server, body: dict[str, Any], tally: Tally) -> None:
    """Ask for a text as a stream, and keep what came."""
    began, name = time.perf_counter(), ""
    arrived: list[tuple[float, int]] = []
    try:
        with closing(server.connect()) as connection:
            connection.request("POST", "/generate", json.dumps({**body, "stream": True}), JSON)
            answer = connection.getresponse()
            if answer.status != 200:
                tally.errors.append(f"{answer.status}: {answer.read()[:200]!r}")
                return
            num_arrived = 0
            for raw in answer:
                line = raw.decode().rstrip("\n")
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: ") and name in ("segment", "growing"):
                    told = json.loads(line[6:])
                    end = told["start"] + len(told["segment"]["text"])
                    arrived.append((time.perf_counter(), max(0, end - num_arrived)))
                    num_arrived = max(num_arrived, end)
                    if len(arrived) == 1:
                        tally.first_seconds.append((began, arrived[0][0] - began))
                elif line.startswith("data: ") and name == "generation":
                    text = json.loads(line[6:])["generation"]
                    tally.texts.append({**text, "asked": body["corpus"], "arrived": arrived})
                elif line.startswith("data: ") and name == "error":
                    tally.errors.append(line[6:206])
            if name != "done":
                tally.errors.append(f"a stream ended after {name or 'nothing'}")
    except (OSError, http.client.HTTPException) as error:
        tally.errors.append(repr(error))


def load(
    server: Server,
    prefixes: Sequence[str],
    *,
    corpora: Sequence[str | None],
    clients: int,
    seconds: float,
    tokens: int,
    before: float = 0.0,
    niceness: int = CLIENT_NICENESS,
) -> tuple[Tally, float]:
    """Let clients ask one text after another; what they saw, and how long all of it took.

    They have asked for the seconds ``before`` when it begins to count. They stand for other
    machines, and give way to the server on this one; but then what they wait for includes their
    turn on a processor, so that clients who measure waiting need a ``niceness`` of 0.
    """
    began = time.perf_counter()
    tally = Tally(begin=began + before, end=began + before + seconds)

    def ask(number: int) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
        draw = random.Random(number)
        while time.perf_counter() < tally.end:
            body: dict[str, Any] = {
                "prefix": draw.choice(prefixes),
                "corpus": draw.choice(corpora),
                "decoding": {"max_new_tokens": tokens, "seed": draw.randrange(10**6)},
            }
            read_stream(server, body, tally)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(max(0.0, tally.begin - time.perf_counter()))
    spent = server.processor_seconds()
    time.sleep(max(0.0, tally.end - time.perf_counter()))
    tally.processor_seconds = server.processor_seconds() - spent
    for thread in threads:
        thread.join()
    return tally, time.perf_counter() - began


def break_off(server: Server, prefixes: Sequence[str], count: int) -> None:
    """Begin requests, and go away: in the body, after it, or when something has come."""
    draw = random.Random(0)
    for number in range(count):
        body = json.dumps({"prefix": draw.choice(prefixes), "stream": bool(number % 2)}).encode()
        head = (
            "POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()
        with socket.create_connection(("127.0.0.1", server.port), WAIT_SECONDS) as client:
            client.sendall(head + body[: len(body) // (1 + (number % 5 == 0))])
            if number % 10 == 1:
                client.recv(64)
            if number % 3 == 0:  # reset instead of closed
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            time.sleep(draw.random() * 0.01)


def send_malformed(server: Server, count: int) -> tuple[dict[int, int], list[str]]:
    """Send what cannot be used; how often each status came, and answers that are wrong."""
    statuses: dict[int, int] = {}
    errors = []
    for number in range(count):
        method, path, body, wanted = MALFORMED[number % len(MALFORMED)]
        try:
            status, answer = server.ask(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            errors.append(f"{method} {path} {body!r}: {error!r}")
            continue
        statuses[status] = statuses.get(status, 0) + 1
        if status != wanted or not json.loads(answer)["error"]["message"]:
            errors.append(f"{method} {path} {body!r}: {status} {answer[:200]!r}")
    return statuses, errors
