"""SIGKILL at many moments of a build: the index that was in place goes on serving, every time."""

import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from cog.index.read.reader import open_index
from cog.index.read.verify import verify_index
from cog.paths import CorpusPaths
from cog.progress import SilentProgress
from tests.index.hash_model import HashModel, build, make_documents, write_corpus

# spread over the files that a build touches from Python, and all around the commit; the random
# kills of test_random_kills.py are many more
NUM_TOUCHES = 16
DELAYS = tuple(0.06 * i for i in range(1, 5))  # seconds; Lance writes without Python


def start_build(corpus: CorpusPaths, *words: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.index.build_process", str(corpus.root), *words],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def kill_build(corpus: CorpusPaths, moment: int | float, fingerprint: str) -> bool:
    """Start a build, have it killed, and say whether it was."""
    words = ["--force", "--fingerprint", fingerprint]
    if isinstance(moment, int):
        process = start_build(corpus, *words, "--kill-at", str(moment))
    else:
        process = start_build(corpus, *words)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(moment)
        process.kill()
    _, errors = process.communicate(timeout=120)
    assert process.returncode in (0, -9), errors.decode()
    return process.returncode == -9


def check_serving(corpus: CorpusPaths) -> str:
    """Open and verify what is in place; its digest comes out."""
    with open_index(corpus) as index:
        return verify_index(index, progress=SilentProgress()).digest


def count_touches(root: Path) -> tuple[int, int]:
    """Which touch of a whole build replaces the manifest, and how many there are."""
    corpus = CorpusPaths(root / "corpora" / "tiny")
    write_corpus(corpus, make_documents(12))
    build(corpus)
    output, errors = start_build(corpus, "--force").communicate(timeout=120)
    words = output.decode().split()
    assert words[1] == "commit", errors.decode()
    return int(words[2]), int(words[4])


def run_chain(root: Path, moments: Sequence[int | float], *, commit: int) -> dict[str, int]:
    """Kill builds of one corpus one after the other, so that what they leave adds up."""
    corpus = CorpusPaths(root / "corpora" / "tiny")
    write_corpus(corpus, make_documents(12))
    serving = build(corpus).manifest
    counts = {"killed": 0, "old": 0, "new": 0}
    for i, moment in enumerate(moments):
        is_killed = kill_build(corpus, moment, f"{i:064x}")
        digest = check_serving(corpus)
        if not is_killed:
            assert digest != serving.digest  # a whole build is in place
        elif isinstance(moment, int):
            assert (digest == serving.digest) == (moment <= commit), moment
        counts["killed"] += is_killed
        counts["old" if digest == serving.digest else "new"] += 1
        serving = build(corpus, force=i % 8 == 7).manifest
        assert [path.name for path in corpus.index.iterdir()] == [serving.folder]
        assert check_serving(corpus) == serving.digest
    names = {path.name for path in corpus.root.iterdir()}
    assert names == {"documents.parquet", "index", "manifest.json", "prompts.parquet"}
    return counts


def test_old_index_serves_after_a_kill_at_any_moment(tmp_path: Path) -> None:
    commit, last = count_touches(tmp_path / "whole")
    around = {*range(commit - 3, commit + 3), *range(commit + 3, last + 1, 5)}
    spread = set(np.linspace(1, commit - 4, NUM_TOUCHES - len(around)).astype(int).tolist())
    moments = [*sorted(spread | around), *DELAYS]
    assert len(moments) >= 18
    with ThreadPoolExecutor(2) as pool:
        chains = [
            pool.submit(run_chain, tmp_path / str(i), moments[i::2], commit=commit)
            for i in range(2)
        ]
        counts = [chain.result() for chain in chains]
    assert sum(count["killed"] for count in counts) >= 16
    assert sum(count["old"] for count in counts) >= 10
    assert sum(count["new"] for count in counts) >= 3


def test_build_after_a_kill_has_the_digest_of_an_untouched_build(tmp_path: Path) -> None:
    killed, untouched = (CorpusPaths(tmp_path / name / "tiny") for name in ("a", "b"))
    for corpus in (killed, untouched):
        write_corpus(corpus, make_documents(12))
    assert kill_build(killed, 30, HashModel().fingerprint)
    assert not killed.manifest.exists()
    digests = {build(corpus).manifest.digest for corpus in (killed, untouched)}
    assert len(digests) == 1
