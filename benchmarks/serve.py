"""A server under load: real clients, two corpora, switches, and clients that behave badly.

In a project with two built indexes: ``python -m benchmarks.serve [--seconds 120] [--clients 32]``.
Every citation of every text is checked against the version that the text names. Throughput is that
of ``cog generate --input`` with the same batch, on the same prompts, in the same run.
"""

import argparse
import http.client
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, report, say
from cog.corpus.documents import load_prompts
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.versions.manifest import load_manifest
from cog.paths import ProjectPaths, find_project
from cog.registry import load_active

JSON = {"Content-Type": "application/json"}
MALFORMED = (
    b"{",
    b"[]",
    b'{"prefix": NaN}',
    b'{"prefix": 3}',
    b'{"prefix": "a", "colour": 1}',
    b'{"prefix": "a", "decoding": {"top_p": -1}}',
    b'{"prefix": "a", "corpus": "../../etc"}',
    b'{"prefix": "a", "corpus": "nowhere"}',
    b'{"prefix": "\\ud800"}',
    b"\xff\xfe",
)


@dataclass(slots=True)
class Tally:
    """What clients saw.

    :param texts: Texts as they were answered.
    :param errors: What went wrong.
    :param first_seconds: Seconds to the first segment.
    """

    texts: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    first_seconds: list[float] = field(default_factory=list)


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
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)

    def post(self, body: bytes) -> tuple[int, bytes]:
        """Ask for texts; the status and what was answered."""
        connection = self.connect()
        try:
            connection.request("POST", "/generate", body, JSON)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def memory_bytes(self) -> int:
        """What it holds in memory now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = [each for each in status.splitlines() if each.startswith("VmRSS")]
        return int(line.split()[1]) * 1024


@contextmanager
def run_server(paths: ProjectPaths, *, batch_size: int) -> Iterator[tuple[Server, float]]:
    """Start a server in a process of its own; gives it, and the seconds until it answered."""
    with tempfile.NamedTemporaryFile() as log:
        words = ["--project", str(paths.root), "serve", "--port", "0"]
        words += ["--batch-size", str(batch_size), "--max-waiting", "4096"]
        began = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-m", "cog.cli.main", *words], stderr=log)
        try:
            while b"http://" not in Path(log.name).read_bytes():
                if process.poll() is not None:
                    raise RuntimeError(Path(log.name).read_text())
                time.sleep(0.02)
            port = int(Path(log.name).read_text().split("http://127.0.0.1:")[1].split("/")[0])
            server = Server(process, port)
            connection = server.connect()
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
            connection.close()
            yield server, time.perf_counter() - began
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(600)


def read_stream(server: Server, body: dict[str, Any], tally: Tally) -> None:
    """Ask for a text as a stream, and keep what came."""
    began = time.perf_counter()
    connection = server.connect()
    try:
        connection.request("POST", "/generate", json.dumps({**body, "stream": True}), JSON)
        answer = connection.getresponse()
        if answer.status != 200:
            tally.errors.append(f"{answer.status}: {answer.read()[:200]!r}")
            return
        name, is_first = "", True
        for raw in answer:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: ") and name == "segment" and is_first:
                tally.first_seconds.append(time.perf_counter() - began)
                is_first = False
            elif line.startswith("data: ") and name == "generation":
                tally.texts.append(json.loads(line[6:])["generation"])
            elif line.startswith("data: ") and name == "error":
                tally.errors.append(line[6:206])
    except (OSError, http.client.HTTPException) as error:
        tally.errors.append(repr(error))
    finally:
        connection.close()


def load(
    server: Server,
    prefixes: Sequence[str],
    *,
    corpora: Sequence[str | None],
    clients: int,
    seconds: float,
    tokens: int,
) -> tuple[Tally, float]:
    """Let clients ask one text after another; what they saw, and how long it took."""
    tally, end = Tally(), time.perf_counter() + seconds

    def ask(number: int) -> None:
        draw = random.Random(number)
        while time.perf_counter() < end:
            body: dict[str, Any] = {
                "prefix": draw.choice(prefixes),
                "corpus": draw.choice(corpora),
                "decoding": {"max_new_tokens": tokens, "seed": draw.randrange(10**6)},
            }
            read_stream(server, body, tally)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tally, time.perf_counter() - began


@contextmanager
def switching(paths: ProjectPaths, corpora: Sequence[str], *, every: float) -> Iterator[list[str]]:
    """Switch between corpora in a process of its own; gives what was switched to so far."""
    stop, done = threading.Event(), [load_active(paths).corpus]  # type: ignore[union-attr]
    words = [sys.executable, "-m", "cog.cli.main", "--project", str(paths.root), "switch"]

    def go_on() -> None:
        while not stop.wait(every):
            chosen = corpora[len(done) % len(corpora)]
            subprocess.run([*words, "--corpus", chosen], check=True, capture_output=True)
            done.append(chosen)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()
        subprocess.run([*words, "--corpus", done[0]], check=True, capture_output=True)


def check_citations(paths: ProjectPaths, texts: Sequence[dict[str, Any]]) -> tuple[int, list[str]]:
    """Check that every copy stands where it says, in the version that its text names."""
    num_checked, problems = 0, []
    opened: dict[tuple[str, str], dict[str, str]] = {}
    for text in texts:
        key = text["corpus"], text["index"]
        if key not in opened:
            opened[key] = load_texts(paths, *key)
        for segment in text["segments"]:
            if segment["from"] != "corpus":
                continue
            num_checked += 1
            source = opened[key].get(segment["document_id"], "")
            copied = source[segment["char_start"] : segment["char_end"]]
            if segment["corpus"] != text["corpus"] or copied != segment["text"]:
                problems.append(f"{key}: {segment}")
        if "".join(segment["text"] for segment in text["segments"]) != text["text"]:
            problems.append(f"{key}: segments do not join")
    return num_checked, problems


def load_texts(paths: ProjectPaths, corpus_id: str, digest: str) -> dict[str, str]:
    """The documents of a version, by id."""
    place = paths.corpus(corpus_id)
    with open_index(place, locks=paths.locks, digests={corpus_id: digest}) as index:
        return {each.document_id: each.text for each in iter_all(index)}


def iter_all(index: PhraseIndex) -> Iterator[Any]:
    """All documents of an index."""
    yield from index.get_documents(range(index.num_documents)).values()


def time_command(
    paths: ProjectPaths, prefixes: Sequence[str], *, corpus: str, batch_size: int, tokens: int
) -> float:
    """Tokens a second of ``cog generate --input``, the loading of the model left out."""
    words = [sys.executable, "-m", "cog.cli.main", "--project", str(paths.root), "generate"]
    words += ["--corpus", corpus, "--batch-size", str(batch_size), "--json"]
    words += ["--max-new-tokens", str(tokens), "--input", "-"]
    seconds = []
    for count in (1, len(prefixes)):
        lines = "".join(json.dumps({"prefix": prefix}) + "\n" for prefix in prefixes[:count])
        began = time.perf_counter()
        subprocess.run(words, input=lines.encode(), check=True, capture_output=True)
        seconds.append(time.perf_counter() - began)
    return (len(prefixes) - 1) * tokens / (seconds[1] - seconds[0])


def break_off(server: Server, prefixes: Sequence[str], count: int) -> None:
    """Begin requests, and go away."""
    draw = random.Random(0)
    for number in range(count):
        body = json.dumps({"prefix": draw.choice(prefixes), "stream": bool(number % 2)}).encode()
        head = (
            "POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=600) as client:
            client.sendall(head + body[: draw.choice((len(body), len(body), len(body) // 2))])
            time.sleep(draw.random() * 0.01)


def send_malformed(server: Server, count: int) -> dict[int, int]:
    """Send what cannot be used; how often each status came."""
    found: dict[int, int] = {}
    for number in range(count):
        status, _ = server.post(MALFORMED[number % len(MALFORMED)])
        found[status] = found.get(status, 0) + 1
    return found


def wait_until_idle(server: Server) -> float:
    """Wait until nothing is written or waits; seconds."""
    began = time.perf_counter()
    while True:
        connection = server.connect()
        connection.request("GET", "/healthz")
        queue = json.loads(connection.getresponse().read())["queue"]
        connection.close()
        if not queue["running"] and not queue["waiting"]:
            return time.perf_counter() - began
        time.sleep(0.05)


def main() -> None:
    """Load a server and print what it reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpora", nargs=2, default=["wiki-mini", "eu-law-mini"])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--few-clients", type=int, default=8, help="for the first segment")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--broken", type=int, default=1000, help="clients that break off")
    parser.add_argument("--malformed", type=int, default=10_000)
    parser.add_argument("--project", type=Path, default=ROOT)
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

    paths = find_project(options.project)
    if load_active(paths) is None:
        raise SystemExit(f"something must be switched on; next: cog switch {options.corpora[0]}")
    for corpus_id in options.corpora:
        load_manifest(paths.corpus(corpus_id))
    prompts = [load_prompts(paths.corpus(each).prompts) for each in options.corpora]
    prefixes = [prompt.prefix for group in prompts for prompt in group[:64]]
    result: dict[str, object] = {"benchmark": "serve", "clients": options.clients}

    size = {"batch_size": options.batch_size, "tokens": options.tokens}
    num_compared = max(2 * options.batch_size, min(len(prefixes), 4 * options.batch_size))
    speeds = [
        time_command(paths, prefixes[:num_compared], corpus=corpus_id, **size)
        for corpus_id in options.corpora
    ]
    result["command_tokens_per_second"] = command = statistics.mean(speeds)
    say(f"cog generate --input: {command:.1f} tokens a second")

    with run_server(paths, batch_size=options.batch_size) as (server, start_seconds):
        result["start_seconds"] = start_seconds
        say(f"started in {start_seconds:.1f} s")
        result |= measure_load(server, paths, prefixes, options, command=command)
        result |= misbehave(server, prefixes, options)
    report(result)


def measure_load(
    server: Server,
    paths: ProjectPaths,
    prefixes: Sequence[str],
    options: argparse.Namespace,
    *,
    command: float,
) -> dict[str, object]:
    """A few clients, then many while corpora are switched; ``command`` is what to compare with."""
    corpora = options.corpora
    few_for = {"clients": options.few_clients, "seconds": options.seconds / 4}
    many_for = {"clients": options.clients, "seconds": options.seconds}
    load(server, prefixes, corpora=corpora, clients=2, seconds=1.0, tokens=8)  # opens indexes
    few, _ = load(server, prefixes, corpora=corpora, tokens=options.tokens, **few_for)
    with switching(paths, corpora, every=1.0) as switched:
        any_of = [None, *corpora]
        many, seconds = load(server, prefixes, corpora=any_of, tokens=options.tokens, **many_for)
    speed = sum(text["num_tokens"] for text in many.texts) / seconds
    texts, errors = [*few.texts, *many.texts], [*few.errors, *many.errors]
    num_citations, problems = check_citations(paths, texts)
    for each in [*problems, *errors][:5]:
        say(each)
    say(f"{speed:.1f} tokens a second, {num_citations} citations checked")
    return {
        "first_segment_p95_seconds": quantile(few.first_seconds, 0.95),
        "tokens_per_second": speed,
        "ratio": speed / command,
        "texts": len(texts),
        "citations": num_citations,
        "switches": len(switched) - 1,
        "wrong_citations": len(problems),
        "errors": len(errors),
    }


def misbehave(
    server: Server, prefixes: Sequence[str], options: argparse.Namespace
) -> dict[str, object]:
    """Break off and send what cannot be used; what that left behind."""
    before = server.memory_bytes()
    break_off(server, prefixes, options.broken)
    idle_after = wait_until_idle(server)
    statuses = send_malformed(server, options.malformed)
    growth = server.memory_bytes() - before
    status, _ = server.post(json.dumps({"prefix": prefixes[0]}).encode())
    return {
        "idle_after_seconds": idle_after,
        "malformed_statuses": {str(each): count for each, count in sorted(statuses.items())},
        "memory_growth_bytes": growth,
        "lives": status == 200,
    }


def quantile(values: Sequence[float], share: float) -> float:
    """A quantile of what was measured."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


if __name__ == "__main__":
    main()
