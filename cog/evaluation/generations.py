"""Generations at rest: prompts and a seed go in, texts come out, each written only once.

A run is a folder, a seed a file in it, a finished text a line of that. What decides the texts (the
system, the index, the model, lengths, decoding, device, precision, the decoder's version) is
digested into the folder's name, so texts of another index are never taken for these. A text
is the same in any company, up to rounding.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from io import FileIO
from pathlib import Path

from cog.atomic import write_text_atomically
from cog.errors import EvaluationError, advise_on_writing
from cog.evaluation.records import ANY_ERROR, EvaluatedText, SeedResult, parse_text
from cog.locks import hold_lock
from cog.progress import Progress
from cog.records import DECODER_VERSION, Decoding, Generation, Prompt

Generate = Callable[[Sequence[Prompt], Decoding], Iterable[Generation]]


@dataclass(frozen=True, slots=True)
class RunKey:
    """What decides the texts of a run, apart from prompt and seed.

    :param system: What writes.
    :param index: Digest of the index.
    :param model: Fingerprint of the model.
    :param prompt_corpus: Whose prompts are continued.
    :param decoding: Settings; the seed in it does not count.
    :param device: ``cpu`` or ``cuda``, which round differently.
    :param precision: Of the prefix encoder.
    :param decoder: Version of the decoder, so that texts of an older one are written anew.
    """

    system: str
    index: str
    model: str
    prompt_corpus: str
    decoding: Decoding
    device: str
    precision: str
    decoder: int = DECODER_VERSION

    @property
    def folder_name(self) -> str:
        """Name of the run's folder.

        :returns: 16 hex digits.
        """
        content = asdict(self)
        del content["decoding"]["seed"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class GenerationStore:
    """The texts of the runs of one corpus.

    :param folder: Where the runs lie.
    """

    folder: Path

    def is_known(self, key: RunKey) -> bool:
        """Whether a run has begun.

        :param key: The run.
        :returns: True if there are texts of it.
        """
        return (self.folder / key.folder_name).is_dir()

    def has_other_index(self, key: RunKey) -> bool:
        """Whether there are texts that only differ in that they come from another index.

        :param key: The run.
        :returns: True if so.
        """
        for path in self.folder.glob("*/run.json"):
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
                other = RunKey(**{**content, "decoding": Decoding(**content["decoding"])})
            except (OSError, *ANY_ERROR):
                continue
            alike = (other.system, other.model, other.prompt_corpus)
            if alike == (key.system, key.model, key.prompt_corpus) and other.index != key.index:
                return True
        return False

    def complete_seed(
        self,
        key: RunKey,
        prompts: Sequence[Prompt],
        *,
        generate: Generate,
        progress: Progress,
    ) -> SeedResult:
        """Take the texts of one seed from disk, and write those that lack.

        :param key: The run; its decoding's seed is the seed.
        :param prompts: The prompts.
        :param generate: Writes texts, and gives each as soon as it is there.
        :param progress: Told of every text.
        :returns: The texts in the order of the prompts.
        :raises EvaluationError: If a finished text cannot be written; those before it are kept.
        """
        folder = self.folder / key.folder_name
        with _open_exclusively(folder, key, progress) as file:
            known = _read_texts(file)
            lacking = [each for each in prompts if _identify(each) not in known]
            if num_known := len(prompts) - len(lacking):
                progress.advance(num_known)
            written = generate(lacking, key.decoding) if lacking else ()
            for prompt, generation in zip(lacking, written, strict=True):
                text = EvaluatedText(prompt.prompt_id, prompt.reference, generation)
                with _stating_what_is_kept(folder, num_kept=len(known)):
                    _append_text(file, text)
                known[_identify(prompt)] = text
                progress.advance(1)
        texts = [replace(known[_identify(each)], reference=each.reference) for each in prompts]
        return SeedResult(key.decoding.seed, tuple(texts))


@contextmanager
def _stating_what_is_kept(folder: Path, *, num_kept: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EvaluationError(
            f"generations must be written to {folder}",
            found=f"{error.strerror or error}; the {num_kept} texts before are kept",
            run=f"{advise_on_writing(error)}, then run the same command again: it goes on "
            "where it stopped",
            about=str(folder),
        ) from error


def _write_key(path: Path, key: RunKey) -> None:
    if not path.is_file():
        write_text_atomically(path, json.dumps(asdict(key)))


def _identify(prompt: Prompt) -> tuple[str, str]:
    return prompt.prompt_id, prompt.prefix


@contextmanager
def _open_exclusively(folder: Path, key: RunKey, progress: Progress) -> Iterator[FileIO]:
    with ExitStack() as stack:
        with _stating_what_is_kept(folder, num_kept=0):
            folder.mkdir(parents=True, exist_ok=True)
            _write_key(folder / "run.json", key)
            path = folder / f"seed-{key.decoding.seed}.jsonl"
            lock = path.with_name(f".{path.name}.lock")
            work = "writes the same generations"
            stack.enter_context(hold_lock(lock, work=work, say=progress.say))
            file = stack.enter_context(path.open("a+b", buffering=0))
        yield file


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
                run=f"mv {path} {path}.broken, and all its texts are written anew",
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
