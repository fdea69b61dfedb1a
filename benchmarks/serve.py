"""A server under load: real clients, two corpora, switches, and clients that behave badly.

In a project with two built indexes, of which a copy is served so that nothing is switched in it:
``python -m benchmarks.serve [--part load --part first --part broken --part malformed]``. Each part
starts a server of its own and ends with a line of JSON; by default all are run, which takes ten
minutes. ``--short`` tries them in two, and measures nothing.

load
    32 clients for two minutes, once they have asked for half a minute, two corpora and a switch
    every second. Every citation of every text is checked against the version that the text names.
    ``ratio`` is the seconds that ``cog generate --input`` needs for as many tokens of each corpus
    as arrived in the two minutes, with the same batch, while it is full, and in the same run, over
    two minutes.
first
    The first segment at 8 clients, once they have asked for a quarter of a minute; and that of the
    8 texts with which they begin at the same moment (``together``).
broken, malformed
    Clients that break off, and requests that cannot be used: how much the server's memory grows.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.clients import Server, break_off, load, run_server, send_malformed
from benchmarks.common import ROOT, report, say
from cog.corpus.documents import load_prompts
from cog.index.read.reader import open_index
from cog.index.versions.activation import switch_corpus
from cog.index.versions.manifest import load_manifest
from cog.paths import ProjectPaths, find_project

SHORT = {"seconds": 15.0, "clients": 16, "tokens": 32, "broken": 60, "malformed": 340}
Options = argparse.Namespace
Part = Callable[[ProjectPaths, list[str], Options], dict[str, Any]]


@contextmanager
def copy_project(paths: ProjectPaths, active: str) -> Iterator[ProjectPaths]:
    """A project with the same corpora and a registry of its own, in which one is active."""
    with tempfile.TemporaryDirectory() as folder:
        copy = ProjectPaths(Path(folder) / "served")
        copy.root.mkdir()
        shutil.copy(paths.params, copy.params)
        shutil.copytree(paths.cards.parent, copy.cards.parent)
        copy.corpora.symlink_to(paths.corpora)
        if paths.models.exists():
            copy.models.symlink_to(paths.models)
        switch_corpus(copy, active)
        yield copy


def run_cog(paths: ProjectPaths, *words: str, lines: str = "") -> None:
    """Run a command of ``cog``; what it says is shown where it fails."""
    command = [sys.executable, "-m", "cog.cli.main", "--project", str(paths.root), *words]
    done = subprocess.run(command, input=lines.encode(), capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode())


@contextmanager
def switching(paths: ProjectPaths, corpora: Sequence[str], *, every: float) -> Iterator[list[str]]:
    """Switch between corpora, outside the server; gives what was switched to so far."""
    stop, done = threading.Event(), [corpora[0]]

    def go_on() -> None:
        while not stop.wait(every):
            chosen = corpora[len(done) % len(corpora)]
            switch_corpus(paths, chosen)
            done.append(chosen)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(go_on)
        try:
            yield done
        finally:
            stop.set()
        future.result()  # a switch that failed is heard of


def check_citations(paths: ProjectPaths, texts: Sequence[dict[str, Any]]) -> tuple[int, list[str]]:
    """Check that every copy stands where it says, in the version that its text names."""
    num_checked, problems = 0, []
    opened: dict[tuple[str, str], dict[str, str]] = {}
    for text in texts:
        key = text["corpus"], text["index"]
        if key not in opened:
            opened[key] = load_texts(paths, *key)
        if text.get("asked") not in (None, text["corpus"]):
            problems.append(f"{key}: {text['asked']} was asked for")
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
    with open_index(place, digests={corpus_id: digest}) as index:
        found = index.get_documents(range(index.num_documents)).values()
        return {each.document_id: each.text for each in found}


def time_command(
    paths: ProjectPaths, prefixes: Sequence[str], *, corpus: str, batch_size: int, tokens: int
) -> tuple[float, float]:
    """Tokens a second of ``cog generate --input``, and a second of the processor.

    Those of the texts beyond the first batch, so that the loading of the model is left out, and
    the end, when ever fewer texts share a pass.
    """
    words = ["generate", "--corpus", corpus, "--batch-size", str(batch_size), "--json"]
    words += ["--max-new-tokens", str(tokens), "--input", "-"]
    seconds, spent = [], []
    for count in (batch_size, len(prefixes)):
        lines = "".join(json.dumps({"prefix": prefix}) + "\n" for prefix in prefixes[:count])
        began, before = time.perf_counter(), os.times()
        run_cog(paths, *words, lines=lines)
        seconds.append(time.perf_counter() - began)
        spent.append(os.times().children_user - before.children_user)
    num_tokens = (len(prefixes) - batch_size) * tokens
    return num_tokens / (seconds[1] - seconds[0]), num_tokens / (spent[1] - spent[0])


@contextmanager
def run_warm(paths: ProjectPaths, prefixes: Sequence[str], options: Options) -> Iterator[Server]:
    """A server that has opened both indexes and has had its batch full."""
    began = time.perf_counter()
    with run_server(paths.root, batch_size=options.batch_size) as server:
        assert server.ask("GET", "/healthz")[0] == 200
        say(f"started in {time.perf_counter() - began:.1f} s")
        size = {"clients": options.batch_size, "tokens": options.tokens}
        tally, seconds = load(server, prefixes, corpora=options.corpora, seconds=1.0, **size)
        say(f"warm after {seconds:.1f} s and {len(tally.texts)} texts")
        yield server


def measure_load(paths: ProjectPaths, prefixes: list[str], options: Options) -> dict[str, Any]:
    """Many clients while corpora are switched, beside the command."""
    size = {"batch_size": options.batch_size, "tokens": options.tokens}
    speeds = {}
    for corpus_id in options.corpora:
        say(f"cog generate --corpus {corpus_id} --input …")
        compared = prefixes[: options.batch_size * (2 if options.short else 4)]
        speeds[corpus_id] = time_command(paths, compared, corpus=corpus_id, **size)
        say(f"{speeds[corpus_id][0]:.1f} tokens a second")
    with (
        run_warm(paths, prefixes, options) as server,
        switching(paths, options.corpora, every=1.0) as switched,
    ):
        others = time.process_time()
        tally, _ = load(
            server,
            prefixes,
            corpora=[None, *options.corpora],
            clients=options.clients,
            seconds=options.seconds,
            tokens=options.tokens,
            before=options.seconds / 4,
        )
        others = time.process_time() - others
    num_tokens = tally.count_tokens()
    # a corpus that repeats itself is written several times as fast, so seconds are compared
    by_command, by_processor = (
        sum(count / speeds[corpus_id][kind] for corpus_id, count in num_tokens.items())
        for kind in (0, 1)
    )
    say(
        f"{sum(num_tokens.values()) / options.seconds:.1f} tokens a second; citations are checked …"
    )
    num_citations, problems = check_citations(paths, tally.texts)
    for each in [*problems, *tally.errors][:5]:
        say(each)
    return {
        "clients": options.clients,
        "command_tokens_per_second": {name: found[0] for name, found in speeds.items()},
        "tokens": num_tokens,
        "seconds": options.seconds,
        "client_processor_seconds": others,
        "ratio": by_command / options.seconds,
        "ratio_processor": by_processor / tally.processor_seconds,
        "texts": len(tally.texts),
        "switches": len(switched) - 1,
        "citations": num_citations,
        "wrong_citations": len(problems),
        "errors": len(tally.errors),
    }


def measure_first(paths: ProjectPaths, prefixes: list[str], options: Options) -> dict[str, Any]:
    """Seconds to the first segment, at a few clients."""
    size = {"clients": options.few_clients, "tokens": options.tokens}
    with run_warm(paths, prefixes, options) as server:
        tally, _ = load(
            server,
            prefixes,
            corpora=options.corpora,
            seconds=options.seconds / 2,
            before=options.seconds / 8,
            niceness=0,
            **size,
        )
    for each in tally.errors[:5]:
        say(each)
    steady = [seconds for began, seconds in tally.first_seconds if began >= tally.begin]
    together = [seconds for _, seconds in sorted(tally.first_seconds)[: options.few_clients]]
    return {
        "clients": options.few_clients,
        "texts": len(tally.texts),
        "median_seconds": quantile(steady, 0.5),
        "p95_seconds": quantile(steady, 0.95),
        "together_p95_seconds": quantile(together, 0.95),
        "errors": len(tally.errors),
    }


def measure_broken(paths: ProjectPaths, prefixes: list[str], options: Options) -> dict[str, Any]:
    """Clients that break off."""
    with run_warm(paths, prefixes, options) as server:
        before = server.memory_bytes()
        break_off(server, prefixes, options.broken)
        idle_after = server.wait_until_idle()
        growth = server.memory_bytes() - before
        status, _ = server.ask("POST", "/generate", json.dumps({"prefix": prefixes[0]}).encode())
    return {
        "clients": options.broken,
        "idle_after_seconds": idle_after,
        "memory_growth_bytes": growth,
        "lives": status == 200,
    }


def measure_malformed(paths: ProjectPaths, prefixes: list[str], options: Options) -> dict[str, Any]:
    """Requests that cannot be used."""
    with run_warm(paths, prefixes, options) as server:
        before = server.memory_bytes()
        statuses, errors = send_malformed(server, options.malformed)
        growth = server.memory_bytes() - before
        status, _ = server.ask("POST", "/generate", json.dumps({"prefix": prefixes[0]}).encode())
    for each in errors[:5]:
        say(each)
    return {
        "requests": options.malformed,
        "statuses": {str(each): count for each, count in sorted(statuses.items())},
        "wrong_answers": len(errors),
        "memory_growth_bytes": growth,
        "lives": status == 200,
    }


def quantile(values: Sequence[float], share: float) -> float | None:
    """A quantile of what was measured; None if nothing was."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


PARTS: dict[str, Part] = {
    "load": measure_load,
    "first": measure_first,
    "broken": measure_broken,
    "malformed": measure_malformed,
}


def main() -> None:
    """Run the parts that are named, and print what each reached."""
    usage = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=usage)
    parser.add_argument("--part", action="append", choices=PARTS, help="[default: all]")
    parser.add_argument("--short", action="store_true", help=f"{SHORT} unless given")
    parser.add_argument("--corpora", nargs=2, default=["wiki-mini", "eu-law-mini"])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--few-clients", type=int, default=8, help="for the first segment")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--broken", type=int, default=1000, help="clients that break off")
    parser.add_argument("--malformed", type=int, default=10_000)
    parser.add_argument("--project", type=Path, default=ROOT)
    if parser.parse_known_args()[0].short:
        parser.set_defaults(**SHORT)
    options = parser.parse_args()

    paths = find_project(options.project)
    for corpus_id in options.corpora:
        load_manifest(paths.corpus(corpus_id))
    prompts = [load_prompts(paths.corpus(each).prompts) for each in options.corpora]
    # in turn, so that any number of them is of both
    prefixes = [prompt.prefix for pair in zip(*prompts, strict=False) for prompt in pair][:128]
    for name in options.part or PARTS:
        say(f"{name} …")
        with copy_project(paths, options.corpora[0]) as copy:
            result = PARTS[name](copy, prefixes, options)
        report({"benchmark": "serve", "part": name, **result})


if __name__ == "__main__":
    main()
