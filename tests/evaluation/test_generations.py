import errno
import json
import os
import resource
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cog.errors import EvaluationError
from cog.evaluation import generations as module
from cog.evaluation.generations import GenerationStore, RunKey
from cog.evaluation.records import SeedResult
from cog.progress import SilentProgress
from cog.records import VOCABULARY, Decoding, Generation, Prompt, Segment

DECODING = Decoding("nucleus", 0.95, 3, 4, 16, 0.0)
KEY = RunKey("cog", "d" * 64, "m" * 64, "village", DECODING, "cpu", "float32")
PROMPTS = [Prompt(f"p{i}", "d", f"prefix {i}", f"reference {i}", 0, 9) for i in range(5)]


class Writer:
    """Writes texts that name their prompt, and counts."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, prompts: Sequence[Prompt], decoding: Decoding) -> list[Generation]:
        self.batches.append([prompt.prompt_id for prompt in prompts])
        return [
            Generation(
                prompt.prefix,
                f" text é {prompt.prompt_id} {decoding.seed}",
                "village",
                "d" * 64,
                "m" * 64,
                decoding,
                1,
                4,
                {"decode": 0.5},
                (Segment(f" text é {prompt.prompt_id} {decoding.seed}", VOCABULARY, 0.5),),
            )
            for prompt in prompts
        ]


def complete(
    folder: Path, write: Writer, prompts: Sequence[Prompt] = PROMPTS, *, batch_size: int = 2
) -> SeedResult:
    return GenerationStore(folder).complete_seed(
        KEY, prompts, batch_size=batch_size, generate=write, progress=SilentProgress()
    )


def seed_file(folder: Path) -> Path:
    return folder / KEY.folder_name / "seed-3.jsonl"


def test_texts_are_written_once_and_come_back_equal(tmp_path: Path) -> None:
    write = Writer()
    first = complete(tmp_path, write)
    assert write.batches == [["p0", "p1"], ["p2", "p3"], ["p4"]]
    assert complete(tmp_path, write) == first
    assert len(write.batches) == 3
    assert [text.prompt_id for text in first.texts] == [p.prompt_id for p in PROMPTS]
    assert first.texts[4].reference == "reference 4"


def test_interrupted_run_goes_on_after_its_last_whole_batch(tmp_path: Path) -> None:
    write = Writer()
    whole = complete(tmp_path, write)
    path = seed_file(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][: len(lines[1]) // 2])  # as a kill leaves it
    assert complete(tmp_path, write) == whole
    assert write.batches[3:] == [["p2", "p3"], ["p4"]]
    assert path.read_bytes().splitlines(keepends=True)[0] == lines[0]
    assert [json.loads(line)["batch"] for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("line", [b"not JSON", b"{}", b""])
def test_what_is_damaged_is_refused_and_nothing_is_removed(tmp_path: Path, line: bytes) -> None:
    write = Writer()
    complete(tmp_path, write)
    path = seed_file(tmp_path)
    first, _, last = path.read_bytes().splitlines(keepends=True)
    damaged = first + line + b"\n" + last + last[:9]
    path.write_bytes(damaged)
    with pytest.raises(EvaluationError, match=f"line 2 of {path} must be texts .* mv {path} "):
        complete(tmp_path, write)
    assert path.read_bytes() == damaged
    assert len(write.batches) == 3


def test_more_prompts_reuse_only_batches_of_the_same_company(tmp_path: Path) -> None:
    write = Writer()
    complete(tmp_path, write, PROMPTS[:3])
    complete(tmp_path, write, PROMPTS)
    assert write.batches == [["p0", "p1"], ["p2"], ["p2", "p3"], ["p4"]]
    complete(tmp_path, write, PROMPTS, batch_size=5)
    assert write.batches[4:] == [["p0", "p1", "p2", "p3", "p4"]]


def test_everything_but_the_seed_makes_another_run() -> None:
    later = Decoding("nucleus", 0.95, 9, 4, 16, 0.0)
    other_seed = RunKey("cog", "d" * 64, "m" * 64, "village", later, "cpu", "float32")
    others = [
        replace(KEY, decoding=Decoding("greedy", 0.95, 3, 4, 16, 0.0)),
        replace(KEY, index="e" * 64),
        replace(KEY, device="cuda"),
        replace(KEY, precision="int8"),
        replace(KEY, decoder=KEY.decoder + 1),
    ]
    assert other_seed.folder_name == KEY.folder_name
    assert len({each.folder_name for each in (KEY, *others)}) == 6


def test_texts_of_another_index_are_noticed(tmp_path: Path) -> None:
    store = GenerationStore(tmp_path)
    rebuilt = RunKey("cog", "e" * 64, "m" * 64, "village", DECODING, "cpu", "float32")
    assert not store.has_other_index(rebuilt)
    complete(tmp_path, Writer())
    assert store.has_other_index(rebuilt)
    assert not store.has_other_index(KEY)
    assert store.is_known(KEY)
    assert not store.is_known(rebuilt)


def test_full_disk_is_said_and_keeps_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Writer()
    real, calls = os.fsync, []

    def full(descriptor: int) -> None:
        path = seed_file(tmp_path)
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(EvaluationError, match="No space left.*the 2 texts before are kept.*room"):
        complete(tmp_path, write)
    assert len(seed_file(tmp_path).read_bytes().splitlines()) == 1
    result: Any = complete(tmp_path, write)
    assert len(result.texts) == 5
    assert write.batches[2:] == [["p2", "p3"], ["p4"]]


def test_error_of_the_system_is_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    def broken(prompts: Sequence[Prompt], decoding: Decoding) -> list[Generation]:
        raise OSError("the index is gone")

    with pytest.raises(OSError, match="the index is gone"):
        GenerationStore(tmp_path).complete_seed(
            KEY, PROMPTS, batch_size=2, generate=broken, progress=SilentProgress()
        )


def test_file_size_limit_of_the_system_loses_no_finished_seed(tmp_path: Path) -> None:
    # a real refusal to write, half way through a line
    write = Writer()
    finished = complete(tmp_path, write)
    later = replace(KEY, decoding=replace(DECODING, seed=4))
    store = GenerationStore(tmp_path)
    words: Any = {"batch_size": 2, "generate": write, "progress": SilentProgress()}
    size = seed_file(tmp_path).stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size * 3 // 5, hard))
    try:
        with pytest.raises(EvaluationError, match="File too large; the 2 texts before are kept"):
            store.complete_seed(later, PROMPTS, **words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    num_batches = len(write.batches)
    assert complete(tmp_path, write) == finished
    assert len(write.batches) == num_batches
    assert len(store.complete_seed(later, PROMPTS, **words).texts) == 5
    assert write.batches[num_batches:] == [["p2", "p3"], ["p4"]]
