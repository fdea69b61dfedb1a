"""What evaluations of a corpus keep: texts, results and measured rows, each written only once.

What decides the texts of a run is digested into its folder's name, so texts of another system,
index or decoder are never taken for these. A seed is a file of the run, a finished text a line of
that; a text is the same in any company, up to rounding.
"""

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Any

from cog.atomic import write_text_atomically
from cog.baselines.system import System
from cog.errors import EvaluationError
from cog.evaluation.records import (
    ANY_ERROR,
    EvaluatedText,
    EvaluationResult,
    SeedResult,
    parse_result,
    parse_text,
)
from cog.evaluation.rows import RowCache, stating_what_is_kept
from cog.locks import hold_lock
from cog.progress import Progress
from cog.records import Decoding, Generation, Prompt

Generate = Callable[[Sequence[Prompt], Decoding], Iterable[Generation]]
STORE_VERSION = 2
VERSION_FILE = "store.json"


@dataclass(frozen=True, slots=True)
class RunKey:
    """What decides the texts of a run, apart from prompt and seed."""

    system: System
    prompt_corpus: str
    num_tokens: int

    @property
    def folder_name(self) -> str:
        """Name of the run's folder: 16 hex digits."""
        content = f"{self.system.digest} {self.prompt_corpus} {self.num_tokens}"
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """The key as plain values, for people."""
        about = {"prompt_corpus": self.prompt_corpus, "num_tokens": self.num_tokens}
        return {"system": self.system.to_json(), **about}


class EvaluationStore:
    """The store of one corpus, made when something is kept.

    One that another version wrote is refused and left as it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not any(folder.glob("[!.]*")):  # what is hidden may be put in place just now
            return
        try:
            version = json.loads((folder / VERSION_FILE).read_bytes())["format_version"]
        except FileNotFoundError:
            version = 1
        except (OSError, *ANY_ERROR) as error:
            version = type(error).__name__
        if version != STORE_VERSION:
            raise EvaluationError(
                f"the evaluations in {folder.parent.name}/{folder.name} must be of store version "
                f"{STORE_VERSION}",
                found=f"version {version}, which is left as it is",
                run=f"{shlex.join(('mv', str(folder), f'{folder}-{version}'))}, and evaluate again",
                about=str(folder),
            )

    def rows(self, *names: str) -> RowCache:
        """Measured numbers of one kind."""
        return RowCache(self.folder.joinpath("measured", *names), before=self._make)

    def is_of_other_index(self, key: RunKey) -> bool:
        """Whether there are texts of the same system, but from another index only."""
        if (self.folder / key.folder_name).is_dir():
            return False
        for path in self.folder.glob("*/run.json"):
            try:
                system = json.loads(path.read_text(encoding="utf-8"))["system"]
                alike = (system["name"], system["corpus"]) == (key.system.name, key.system.corpus)
            except (OSError, *ANY_ERROR):
                continue
            if alike and system["index"] != key.system.index:
                return True
        return False

    def complete_seed(
        self,
        key: RunKey,
        decoding: Decoding,
        prompts: Sequence[Prompt],
        *,
        generate: Generate,
        progress: Progress,
    ) -> SeedResult:
        """Take the texts of one seed from disk, in the order of prompts, and write those that lack.

        ``generate`` gives each as soon as it is there; if it cannot be written, those before it are
        kept.
        """
        folder = self.folder / key.folder_name
        with self._open_exclusively(folder, key, decoding.seed, progress) as file:
            known = _read_texts(file)
            lacking = [each for each in prompts if _identify(each) not in known]
            if num_known := len(prompts) - len(lacking):
                progress.advance(num_known)
            written = generate(lacking, decoding) if lacking else ()
            for prompt, generation in zip(lacking, written, strict=True):
                text = EvaluatedText(prompt.prompt_id, prompt.reference, generation)
                with stating_what_is_kept(folder, f"the {len(known)} texts before are kept"):
                    _append_text(file, text)
                known[_identify(prompt)] = text
                progress.advance(1)
        texts = [replace(known[_identify(each)], reference=each.reference) for each in prompts]
        return SeedResult(decoding.seed, tuple(texts))

    def save_result(self, result: EvaluationResult) -> EvaluationResult:
        """Keep a result; scores of the same evaluation that it lacks are taken over from before."""
        path = self.folder / f"{_name_result(result)}.json"
        with stating_what_is_kept(self.folder, "all texts are kept"):
            self._make()
            with hold_lock(self.folder / ".results.lock"):  # another process may add scores, too
                if path.is_file():
                    result = _join(path, result)
                write_result(path, result)
        return result

    def load_results(self, *others: Path) -> list[EvaluationResult]:
        """Read all results, newest first, of whatever system and protocol.

        Files beside it, such as the pipeline's, may be missing or empty. Refused is only what holds
        none that can be read.
        """
        found: dict[str, EvaluationResult] = {}
        problem: EvaluationError | None = None
        results = sorted(self.folder.glob("*.json"))
        for path in [each for each in results if each.name != VERSION_FILE] + list(others):
            if path.is_file() and path.stat().st_size:  # the pipeline's is empty without prompts
                try:
                    result = load_result(path)
                except EvaluationError as error:
                    problem = error
                    continue
                name = _name_result(result)
                if name not in found or found[name].created_at < result.created_at:
                    found[name] = result
        if problem is not None and not found:
            raise problem
        return sorted(found.values(), key=lambda result: result.created_at, reverse=True)

    def _make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / VERSION_FILE
        if not path.is_file():
            write_text_atomically(path, json.dumps({"format_version": STORE_VERSION}))

    @contextmanager
    def _open_exclusively(
        self, folder: Path, key: RunKey, seed: int, progress: Progress
    ) -> Iterator[FileIO]:
        with ExitStack() as stack:
            with stating_what_is_kept(folder, "the texts before are kept"):
                self._make()
                folder.mkdir(exist_ok=True)
                if not (folder / "run.json").is_file():
                    write_text_atomically(folder / "run.json", json.dumps(key.to_json()))
                path = folder / f"seed-{seed}.jsonl"
                lock = path.with_name(f".{path.name}.lock")
                work = "writes the same generations"
                stack.enter_context(hold_lock(lock, work=work, say=progress.say))
                file = stack.enter_context(path.open("a+b", buffering=0))
            yield file


def _join(path: Path, result: EvaluationResult) -> EvaluationResult:
    try:
        before = load_result(path)
    except EvaluationError:
        return result
    is_same = before.prompts_digest == result.prompts_digest
    if is_same and (before.seeds == result.seeds or not (before.seeds and result.seeds)):
        scores = {score.name: score for score in (*before.scores, *result.scores)}
        seeds = result.seeds or before.seeds
        result = replace(result, scores=tuple(scores.values()), seeds=seeds)
    return result


def write_result(path: Path, result: EvaluationResult) -> None:
    """Write a result to a file."""
    with stating_what_is_kept(path.parent, "all texts are kept"):
        write_text_atomically(path, json.dumps(result.to_json(), ensure_ascii=False))


def load_result(path: Path) -> EvaluationResult:
    """Read a result."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EvaluationError(
            f"{path.name} must be an evaluation", found=str(error), run="cog evaluate --corpus ID"
        ) from error
    return parse_result(content, where=path.name)


def _name_result(result: EvaluationResult) -> str:
    parts = (result.system.name, result.prompt_corpus, result.system.digest)
    return "_".join((*parts, result.protocol.digest[:12]))


def _identify(prompt: Prompt) -> tuple[str, str]:
    return prompt.prompt_id, prompt.prefix


def _read_texts(file: FileIO) -> dict[tuple[str, str], EvaluatedText]:
    # only a line that a killed process left unfinished, the last one, is cut off
    file.seek(0)
    *lines, unfinished = file.readall().split(b"\n")
    known: dict[tuple[str, str], EvaluatedText] = {}
    for number, line in enumerate(lines, start=1):
        try:
            for text in map(parse_text, json.loads(line)["texts"]):
                known[text.prompt_id, text.generation.prefix] = text
        except ANY_ERROR as error:
            path = str(file.name)
            raise EvaluationError(
                f"line {number} of {path} must be texts as cog evaluate writes them",
                found=str(error).partition("\n")[0] or type(error).__name__,
                run=f"{shlex.join(('mv', path, f'{path}.broken'))}, and all its texts are"
                " written anew",
                about=path,
            ) from error
    if unfinished:
        file.truncate(file.tell() - len(unfinished))
    return known


def _append_text(file: FileIO, text: EvaluatedText) -> None:
    line = json.dumps({"texts": [text.to_json()]}).encode() + b"\n"
    before = file.seek(0, os.SEEK_END)
    try:
        rest = memoryview(line)
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError:
        file.truncate(before)
        raise
