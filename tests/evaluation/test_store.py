import errno
import json
import os
import resource
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cog.errors import EvaluationError
from cog.evaluation import store as module
from cog.evaluation.records import EvaluationResult, SeedResult
from cog.evaluation.store import EvaluationStore, RunKey
from cog.progress import SilentProgress
from cog.records import VOCABULARY, Decoding, Generation, Prompt, Segment
from tests.evaluation.making import copied, rep, result, system

DECODING = Decoding("nucleus", 0.95, 3, 4, 16, 0.0)
KEY = RunKey(system("village"), "village", 4)
PROMPTS = [Prompt(f"p{i}", "d", f"prefix {i}", f"reference {i}", 0, 9) for i in range(5)]


class Writer:
    """Writes texts that name their prompt, and counts."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def __call__(self, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Generation]:
        for prompt in prompts:
            self.written.append(prompt.prompt_id)
            yield Generation(
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


def complete(folder: Path, write: Writer, prompts: Sequence[Prompt] = PROMPTS) -> SeedResult:
    return EvaluationStore(folder).complete_seed(
        KEY, DECODING, prompts, generate=write, progress=SilentProgress()
    )


def seed_file(folder: Path) -> Path:
    return folder / KEY.folder_name / "seed-3.jsonl"


def test_texts_are_written_once_and_come_back_equal(tmp_path: Path) -> None:
    write = Writer()
    first = complete(tmp_path, write)
    assert write.written == ["p0", "p1", "p2", "p3", "p4"]
    assert complete(tmp_path, write) == first
    assert len(write.written) == 5
    assert [text.prompt_id for text in first.texts] == [p.prompt_id for p in PROMPTS]
    assert first.texts[4].reference == "reference 4"


def test_interrupted_run_goes_on_after_its_last_whole_text(tmp_path: Path) -> None:
    write = Writer()
    whole = complete(tmp_path, write)
    path = seed_file(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][: len(lines[1]) // 2])  # as a kill leaves it
    assert complete(tmp_path, write) == whole
    assert write.written[5:] == ["p1", "p2", "p3", "p4"]
    assert path.read_bytes().splitlines(keepends=True) == lines


@pytest.mark.parametrize("line", [b"not JSON", b"{}", b""])
def test_what_is_damaged_is_refused_and_nothing_is_removed(tmp_path: Path, line: bytes) -> None:
    write = Writer()
    complete(tmp_path, write)
    path = seed_file(tmp_path)
    first, _, *_, last = path.read_bytes().splitlines(keepends=True)
    damaged = first + line + b"\n" + last + last[:9]
    path.write_bytes(damaged)
    with pytest.raises(EvaluationError, match=f"line 2 of {path} must be texts .* mv {path} "):
        complete(tmp_path, write)
    assert path.read_bytes() == damaged
    assert len(write.written) == 5


def test_of_more_prompts_those_that_lack_are_written(tmp_path: Path) -> None:
    write = Writer()
    complete(tmp_path, write, PROMPTS[1:3])
    whole = complete(tmp_path, write, PROMPTS)
    assert write.written == ["p1", "p2", "p0", "p3", "p4"]
    assert [text.prompt_id for text in whole.texts] == [p.prompt_id for p in PROMPTS]
    other = replace(PROMPTS[0], prefix="another window")
    assert complete(tmp_path, write, [other]).texts[0].generation.prefix == "another window"


def test_texts_that_were_kept_in_batches_are_read(tmp_path: Path) -> None:
    write = Writer()
    whole = complete(tmp_path, write)
    path = seed_file(tmp_path)
    texts = [json.loads(line)["texts"][0] for line in path.read_text().splitlines()]
    path.write_text(json.dumps({"batch": "0" * 64, "texts": texts}) + "\n")
    assert complete(tmp_path, write) == whole
    assert len(write.written) == 5


def test_what_decides_the_texts_makes_another_run_and_what_is_not_used_does_not() -> None:
    changes: list[dict[str, Any]] = [
        {"method": "greedy"},
        {"max_verbatim_words": 5},
        {"index": "e" * 64},
        {"device": "cuda"},
        {"precision": "int8"},
        {"decoder": KEY.system.decoder + 1},
    ]
    others = [RunKey(system("village", **each), "village", 4) for each in changes]
    others += [replace(KEY, prompt_corpus="hamlet"), replace(KEY, num_tokens=5)]
    assert len({each.folder_name for each in (KEY, *others)}) == 9
    unused = replace(KEY, system=system("village", verify_threshold=0.5, seed=9))
    assert unused.folder_name == KEY.folder_name


def test_texts_of_another_index_are_noticed(tmp_path: Path) -> None:
    store = EvaluationStore(tmp_path)
    rebuilt = replace(KEY, system=system("village", index="e" * 64))
    assert not store.is_of_other_index(rebuilt)
    complete(tmp_path, Writer())
    assert store.is_of_other_index(rebuilt)
    assert not store.is_of_other_index(KEY)


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
    with pytest.raises(EvaluationError, match="No space left.*the 1 texts before are kept.*room"):
        complete(tmp_path, write)
    assert len(seed_file(tmp_path).read_bytes().splitlines()) == 1
    result: Any = complete(tmp_path, write)
    assert len(result.texts) == 5
    assert write.written[2:] == ["p1", "p2", "p3", "p4"]


def test_error_of_the_system_is_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    def broken(prompts: Sequence[Prompt], decoding: Decoding) -> list[Generation]:
        raise OSError("the index is gone")

    with pytest.raises(OSError, match="the index is gone"):
        EvaluationStore(tmp_path).complete_seed(
            KEY, DECODING, PROMPTS, generate=broken, progress=SilentProgress()
        )


def test_file_size_limit_of_the_system_loses_no_finished_seed(tmp_path: Path) -> None:
    # a real refusal to write, half way through a line
    write = Writer()
    finished = complete(tmp_path, write)
    later = replace(DECODING, seed=4)
    store = EvaluationStore(tmp_path)
    words: Any = {"generate": write, "progress": SilentProgress()}
    size = seed_file(tmp_path).stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, hard))
    try:
        with pytest.raises(EvaluationError, match="File too large; the 2 texts before are kept"):
            store.complete_seed(KEY, later, PROMPTS, **words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    num_written = len(write.written)
    assert complete(tmp_path, write) == finished
    assert len(write.written) == num_written
    assert len(store.complete_seed(KEY, later, PROMPTS, **words).texts) == 5
    assert write.written[num_written:] == ["p2", "p3", "p4"]


def test_a_store_of_another_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    old = tmp_path / "evaluations"
    (old / "0123456789abcdef").mkdir(parents=True)
    (old / "0123456789abcdef" / "run.json").write_text("{}")
    with pytest.raises(EvaluationError, match=f"version 1.*; next: mv {old} {old}-1"):
        EvaluationStore(old)
    assert [path.name for path in old.rglob("*")] == ["0123456789abcdef", "run.json"]
    write = Writer()
    complete(tmp_path / "new", write)
    EvaluationStore(tmp_path / "new")
    (tmp_path / "new" / "store.json").write_text('{"format_version": 9}')
    with pytest.raises(EvaluationError, match="version 9, which is left as it is"):
        complete(tmp_path / "new", write)


def test_a_store_that_another_process_just_makes_is_not_taken_for_an_old_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "store" / ".store.json~0123456789ab").mkdir(parents=True)  # as `replacing` does
    assert len(complete(tmp_path / "store", Writer()).texts) == 5


def test_scores_that_are_added_at_the_same_time_are_all_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EvaluationStore(tmp_path)
    store.save_result(result("village", []))
    real, both = module.load_result, threading.Barrier(2)

    def load_slowly(path: Path) -> EvaluationResult:
        found = real(path)
        with suppress(threading.BrokenBarrierError):  # the other one waits for the lock
            both.wait(timeout=0.5)
        return found

    monkeypatch.setattr(module, "load_result", load_slowly)
    added = [result("village", [each]) for each in (rep([1.0, 2.0]), copied([0.5, 0.25]))]
    threads = [threading.Thread(target=store.save_result, args=(each,)) for each in added]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    monkeypatch.undo()
    (kept,) = store.load_results()
    assert {score.name for score in kept.scores} == {"repetition/rep-2", "copies/tokens"}


def test_scores_of_the_same_texts_are_joined(tmp_path: Path) -> None:
    store = EvaluationStore(tmp_path)
    first = store.save_result(result("village", [rep([1.0, 2.0])]))
    both = store.save_result(result("village", [copied([0.5, 0.25])]))
    assert [score.name for score in both.scores] == ["repetition/rep-2", "copies/tokens"]
    alone = store.save_result(replace(first, scores=(), seeds=()))
    assert (len(alone.scores), alone.seeds) == (2, first.seeds)
    assert store.load_results() == [alone]
