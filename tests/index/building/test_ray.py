"""Builds on a real Ray cluster of two workers: equal to those of one machine, whatever dies."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cog.errors import CogError, IndexingError
from cog.extras import is_installed
from cog.index.building import ray_cluster
from cog.index.building.encoding import Encoders
from cog.index.building.ray_pool import open_ray_pool
from cog.index.read.reader import open_index
from cog.index.read.verify import verify_index
from cog.paths import CorpusPaths
from cog.progress import SILENT
from tests.index.hash_model import make_documents, write_corpus
from tests.index.ray_build import Doing, build_on, describe_worker, load_once
from tests.index.ray_cluster import TOKEN, TestCluster, start_cluster
from tests.killing import run_driver
from tests.told import Told

needs_ray = pytest.mark.skipif(not is_installed("ray"), reason="the extra [ray] is not installed")
NUM_WORDS = 12_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    os.environ.update(TOKEN)
    try:
        with start_cluster() as started:
            yield started
    finally:
        for name in TOKEN:
            del os.environ[name]


@pytest.fixture
def corpus(tmp_path: Path) -> CorpusPaths:
    found = CorpusPaths(tmp_path / "corpora" / "tiny")
    write_corpus(found, make_documents(NUM_WORDS // 60))
    return found


@pytest.fixture(scope="module")
def local_digest(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> str:
    root = tmp_path_factory.mktemp("local")
    corpus = CorpusPaths(root / "corpora" / "tiny")
    write_corpus(corpus, make_documents(NUM_WORDS // 60))
    report = build_on(corpus, model_folder=tiny_model, address=None)
    return report.manifest.digest


def check(corpus: CorpusPaths) -> str:
    with open_index(corpus) as index:
        return verify_index(index, progress=SILENT).digest


@needs_ray
@pytest.mark.slow
def test_index_is_that_of_one_machine_though_a_worker_is_killed(
    corpus: CorpusPaths,
    tiny_model: Path,
    cluster: TestCluster,
    local_digest: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = Doing(3000, lambda: os.kill(cluster.find_workers()[0], signal.SIGKILL))
    report = build_on(
        corpus,
        model_folder=tiny_model,
        address=cluster.address,
        progress=progress,
    )
    assert report.manifest.digest == check(corpus) == local_digest
    assert capsys.readouterr().out == ""  # results alone go there
    (line,) = [each for each in progress.lines if "is lost" in each]
    assert re.fullmatch(r"\S+ \(pid \d+\) is lost; another one takes over what it had", line)
    assert progress.lines[0] == f"2 workers are started on the cluster at {cluster.address}"
    assert progress.amount >= NUM_WORDS
    assert list(corpus.index.iterdir()) == [corpus.index / report.manifest.folder]


@needs_ray
@pytest.mark.slow
def test_build_whose_driver_is_killed_goes_on(
    corpus: CorpusPaths, tiny_model: Path, cluster: TestCluster, local_digest: str
) -> None:
    words = [str(each) for each in (corpus.root, tiny_model)]
    command = [sys.executable, "-m", "tests.index.ray_build", *words, cluster.address]
    killed = subprocess.run(
        [*command, str(NUM_WORDS // 2)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not corpus.manifest.exists()
    report = build_on(corpus, model_folder=tiny_model, address=cluster.address)
    assert report.manifest.digest == check(corpus) == local_digest
    assert report.manifest.num_encoded < 0.7 * report.manifest.num_chunks


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("num_kills", [10, 100])
def test_nothing_is_lost_or_twice_after_kills_at_any_moment(tmp_path: Path, num_kills: int) -> None:
    counts = run_driver("tests.index.ray_kill_driver", str(tmp_path), str(num_kills), "0")
    assert counts.get("workers", 0) + counts.get("drivers", 0) == num_kills
    assert counts["verified"] >= 1


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        (
            {"version": "0.0.1"},
            r"all workers must have copy-generator 0\.0\.1; found: \S+ on \S+ \(pid \d+\); "
            r"next: pip install 'copy-generator\[ray\]==0\.0\.1' there",
        ),
        (
            {"folder": Path("no/model")},
            r"worker \S+ \(pid \d+\): a worker needs the model in no/model; found: no such folder; "
            r"next: copy the folder to every machine.*",
        ),
        (
            {"fingerprint": "f" * 64},
            r"worker .*: a worker needs model f{16} in .*; found: model [0-9a-f]{16}; .*",
        ),
        (
            {"numerics": "an abacus"},
            r"worker .*: workers must compute as the machine that builds does: an abacus; .*",
        ),
    ],
    ids=["version", "folder", "model", "numerics"],
)
def test_workers_that_would_build_something_else_are_refused(
    corpus: CorpusPaths,
    tiny_model: Path,
    cluster: TestCluster,
    changes: dict[str, object],
    pattern: str,
) -> None:
    with pytest.raises(IndexingError) as caught:
        build_on(corpus, model_folder=tiny_model, address=cluster.address, **changes)
    assert re.fullmatch(pattern, str(caught.value)), str(caught.value)
    assert not list(corpus.index.iterdir())


def fill_disk() -> Callable[[Encoders], None]:
    # a function inside another is sent as code: workers need not have the tests
    def fill(_: Encoders) -> None:
        with open("/dev/full", "w") as file:
            file.write("x" * 100_000)

    return fill


def die() -> Callable[[Encoders], None]:
    def kill(_: Encoders) -> None:
        import os
        import signal

        os.kill(os.getpid(), signal.SIGKILL)

    return kill


@needs_ray
@pytest.mark.slow
def test_full_disk_of_a_worker_is_told_with_its_name(
    tiny_model: Path, cluster: TestCluster
) -> None:
    wanted = describe_worker(load_once(tiny_model), tiny_model)
    with open_ray_pool(wanted, address=cluster.address, progress=SILENT) as pool:
        for _ in range(2):  # what comes later is refused as well
            with pytest.raises(CogError) as caught:
                pool.submit(fill_disk()).result()
            assert re.fullmatch(
                r"worker \S+ \(pid \d+\) must be able to read and write its files; found: .*"
                r"No space left on device; next: make room there",
                str(caught.value),
            )


@needs_ray
@pytest.mark.slow
def test_task_that_kills_each_worker_ends(tiny_model: Path, cluster: TestCluster) -> None:
    wanted, told = describe_worker(load_once(tiny_model), tiny_model), Told()
    with (
        open_ray_pool(wanted, address=cluster.address, progress=told) as pool,
        pytest.raises(IndexingError, match=r"worker .* must encode what it is given; found: Act"),
    ):
        pool.submit(die()).result()
    assert 7 <= sum("is lost" in line for line in told.lines) <= 8


@needs_ray
@pytest.mark.slow
def test_what_listens_and_is_no_cluster_is_given_up(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "ANSWER_SECONDS", 5.0)
    wanted = describe_worker(load_once(tiny_model), tiny_model)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with (
            pytest.raises(IndexingError, match="found: no answer in 5 seconds; next: ray start"),
            open_ray_pool(wanted, address=address, progress=SILENT),
        ):
            pass


@needs_ray
@pytest.mark.parametrize(
    ("address", "pattern"),
    [
        ("127.0.0.1:1", "a Ray cluster must answer at 127.0.0.1:1; found: .*refused; next: ray s"),
        ("nowhere", "the address of a cluster is HOST:PORT or auto; found: 'nowhere'"),
        ("ray://127.0.0.1:10001", "the address of a cluster is HOST:PORT or auto"),
        ("127.0.0.1:99999", "a Ray cluster must answer at 127.0.0.1:99999; found: "),
    ],
)
def test_address_without_a_cluster_is_refused_at_once(address: str, pattern: str) -> None:
    with pytest.raises(IndexingError, match=pattern), ray_cluster.connect(address, with_gpus=False):
        pass
