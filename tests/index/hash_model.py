"""A deterministic model without weights, and corpora of any size, for tests of the index."""

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cog.corpus.documents import DOCUMENT_SCHEMA, PROMPT_SCHEMA, RecordWriter
from cog.corpus.report import SKIP_REASONS, PrepareReport
from cog.index.building.assembly import MeasureStorage
from cog.index.building.builder import BuildReport, build_index
from cog.index.versions.activation import get_kept
from cog.index.versions.folders import Keep
from cog.model.fingerprint import fingerprint_model
from cog.model.protocols import WordVectors
from cog.model.vector_code import VectorCodes
from cog.model.words import Words
from cog.params import IndexParams
from cog.paths import CorpusPaths, ProjectPaths
from cog.progress import Progress, SilentProgress
from cog.records import Document, Prompt

WORD = re.compile(r" ?[^\W_]+| ?[\W_]")
VOCABULARY = (
    "river",
    "house",
    "stone",
    "apple",
    "cloud",
    "paper",
    "glass",
    "wheel",
    "garden",
    "tea",
)
PARAMS = IndexParams(
    vector_dtype="int8",
    batch_tokens=512,
    commit_chunks=16,
    ivf_threshold_rows=100_000,
    recall_at=10,
    min_recall=0.9,
    num_probe_prefixes=4,
    keep_versions=0,
)


class PieceSplitter:
    """Words of letters and digits, or of one other character; tokens of at most four characters."""

    def split(self, text: str) -> Words:
        word_chars, word_tokens, token_ids = [0], [0], []
        for match in WORD.finditer(text):
            word = match.group()
            pieces = [word[i : i + 4] for i in range(0, len(word), 4)]
            token_ids += [zlib.crc32(piece.encode()) % 50_000 for piece in pieces]
            word_tokens.append(len(token_ids))
            word_chars.append(match.end())
        return Words(*(np.array(x, dtype=np.int32) for x in (token_ids, word_tokens, word_chars)))


def embed_words(words: Sequence[str], *, dim: int, salt: int) -> NDArray[np.float32]:
    seeds = np.array([zlib.crc32(word.encode(), salt) for word in words], dtype=np.float64)
    return np.sin(np.outer(seeds % 9973 + 1, 1 + np.arange(dim))).astype(np.float32)


def count_pieces(texts: Sequence[str]) -> NDArray[np.int64]:
    return np.array([len(PieceSplitter().split(text).token_ids) for text in texts]) + 2


@dataclass
class HashPhraseEncoder:
    dim: int = 8
    batches: list[int] = field(default_factory=list)

    def count_pieces(self, texts: Sequence[str]) -> NDArray[np.int64]:
        return count_pieces(texts)

    def encode_chunks(
        self, texts: Sequence[str], word_spans: Sequence[NDArray[np.int32]]
    ) -> list[WordVectors]:
        self.batches.append(len(texts))
        encoded = []
        for text, spans in zip(texts, word_spans, strict=True):
            words = [text[a:b] for a, b in spans.tolist()]
            encoded.append(
                WordVectors(
                    embed_words(words, dim=self.dim, salt=1),
                    embed_words(words, dim=self.dim, salt=2),
                    np.array([not word.isspace() for word in words]),
                )
            )
        return encoded


class LeaningEncoder(HashPhraseEncoder):
    """One whose vectors depend on the batch that they are encoded in, as those of a GPU do."""

    def encode_chunks(
        self, texts: Sequence[str], word_spans: Sequence[NDArray[np.int32]]
    ) -> list[WordVectors]:
        encoded = super().encode_chunks(texts, word_spans)
        if len(texts) > 8:
            encoded[-1].end[-1, -1] = np.nextafter(encoded[-1].end[-1, -1], np.float32(9))
        return encoded


@dataclass
class HashRetriever:
    dim: int = 12

    def count_pieces(self, texts: Sequence[str]) -> NDArray[np.int64]:
        return count_pieces(texts)

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        sums = [
            embed_words(text.split() or [""], dim=self.dim, salt=3).sum(axis=0) for text in texts
        ]
        vectors = np.stack(sums) + np.float32(1e-3)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@dataclass(frozen=True)
class Limits:
    max_chunk_tokens: int = 32
    min_chunk_tokens: int = 8


@dataclass
class HashModel:
    fingerprint: str = "a" * 64
    config: Limits = Limits()
    splitter: PieceSplitter = field(default_factory=PieceSplitter)
    phrase_encoder: HashPhraseEncoder = field(default_factory=HashPhraseEncoder)
    retriever: HashRetriever = field(default_factory=HashRetriever)
    numerics: str = "hashes"
    batch_tolerance: float = 0.0
    num_workers: int = 1

    @contextmanager
    def pin_threads(self) -> Iterator[int]:
        yield self.num_workers


def make_text(num_words: int, *, seed: int) -> str:
    generator = np.random.default_rng(seed)
    words = [VOCABULARY[i] for i in generator.integers(0, len(VOCABULARY), num_words)]
    words[::9] = [f"{word}{seed}." for word in words[::9]]
    return " ".join(words)


def make_documents(num_documents: int, *, num_words: int = 60) -> list[Document]:
    return [
        Document(
            document_id=f"document-{i}",
            title=f"Títle {i}",
            text=make_text(num_words, seed=i),
            url=f"https://example.org/{i}",
            licence="CC0-1.0",
            source=f"file.txt:{i}",
        )
        for i in range(num_documents)
    ]


def write_corpus(
    corpus_paths: CorpusPaths,
    documents: Sequence[Document],
    *,
    num_skipped: int = 0,
    prefixes: Sequence[str] = (),
) -> None:
    corpus_paths.root.mkdir(parents=True, exist_ok=True)
    with (
        RecordWriter(corpus_paths.documents, DOCUMENT_SCHEMA) as writer,
        RecordWriter(corpus_paths.prompts, PROMPT_SCHEMA) as prompts,
    ):
        for document in documents:
            writer.write(document)
        for i, prefix in enumerate(prefixes):
            prompts.write(Prompt(f"p{i}", f"held-out-{i}", prefix, " and so on", 0, 99))
        report = PrepareReport(
            corpus=corpus_paths.root.name,
            normaliser="plain-v1",
            num_read=len(documents) + num_skipped,
            num_documents=len(documents),
            skipped=dict.fromkeys(SKIP_REASONS, 0) | {"empty": num_skipped},
            num_words=sum(len(document.text.split()) for document in documents),
            num_characters=sum(len(document.text) for document in documents),
            num_prompts=len(prefixes),
            digest=writer.digest(),
            prompts_digest=prompts.digest(),
            notes=(),
        )
        writer.finish(report)
        prompts.finish(report)


def build(
    corpus_paths: CorpusPaths,
    *,
    model: HashModel | None = None,
    params: IndexParams = PARAMS,
    force: bool = False,
    progress: Progress | None = None,
    measure_storage: MeasureStorage | None = None,
    get_codes: Callable[[], VectorCodes] | None = None,
    get_kept: Callable[[], Keep | None] = lambda: Keep(frozenset(), 0),
) -> BuildReport:
    model = model or HashModel()
    return build_index(
        corpus_paths,
        model_fingerprint=model.fingerprint,
        load_model=lambda: model,
        params=params,
        progress=progress or SilentProgress(),
        force=force,
        measure_storage=measure_storage,
        get_codes=get_codes,
        get_kept=get_kept,
    )


def build_in(project: ProjectPaths, corpus_id: str) -> str:
    """Build the index of a corpus of a project with the tiny model; gives its digest."""
    report = build(
        project.corpus(corpus_id),
        model=HashModel(fingerprint=fingerprint_model(project.root / "models" / "tiny")),
        get_kept=lambda: get_kept(project, corpus_id),
    )
    return report.manifest.digest
