"""Raw files become documents: a card and raw/ go in, documents and prompts come out as Parquet.

Everything is streamed. Memory holds one document, one row group and 8 bytes per document and per
distinct text; a document of more than 16,777,216 characters is cut into parts.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from cog.atomic import open_staging, sync_tree
from cog.cards import Card
from cog.corpus.documents import DOCUMENT_SCHEMA, PROMPT_SCHEMA, RecordWriter
from cog.corpus.duplicates import drop_near_duplicates
from cog.corpus.normalisers import ENTITY, Normaliser, get_normaliser
from cog.corpus.parts import count_words
from cog.corpus.prompts import Tokenise, iter_prompts
from cog.corpus.readers import fill_in, iter_found
from cog.corpus.report import HELD_OUT, PrepareReport
from cog.corpus.selection import SeenTexts, is_held_out, is_in_subset
from cog.corpus.sources import get_layout, list_raw_files, load_source_record
from cog.corpus.suitability import CountPieces, TextSample, measure_suitability
from cog.corpus.tally import Tally
from cog.errors import CorpusError
from cog.params import PrepareParams
from cog.paths import CorpusPaths
from cog.progress import Progress
from cog.records import Document

TELL_SECONDS = 0.1
ENTITIES = "documents hold HTML entities such as &amp;: normaliser html-v1 decodes them"


def prepare_corpus(
    card: Card,
    *,
    corpus_paths: CorpusPaths,
    tokenise: Tokenise,
    params: PrepareParams,
    progress: Progress,
    count_pieces: CountPieces | None = None,
) -> PrepareReport:
    """Normalise, filter, de-duplicate and select the documents of a corpus, and cut its prompts.

    Old files are replaced at the end, and the report is kept in ``documents.parquet`` too. With
    ``count_pieces`` the report warns of a model that does not suit the text.
    """
    assert card.format is not None
    tally = Tally(card.format.on_error)
    with open_staging(corpus_paths.documents) as staging:
        with (
            RecordWriter(staging / corpus_paths.documents.name, DOCUMENT_SCHEMA) as documents,
            RecordWriter(staging / corpus_paths.prompts.name, PROMPT_SCHEMA) as prompts,
        ):
            counter = _Counter()
            distinct = _iter_distinct(
                card, corpus_paths.raw, staging=staging, tally=tally, progress=progress
            )
            for document, is_prompt in _iter_chosen(distinct, card, tally=tally):
                if is_prompt:
                    cut = list(iter_prompts(document, tokenise=tokenise, params=params))
                    counter.num_without_prompt += not cut
                    for prompt in cut:
                        prompts.write(prompt)
                else:
                    documents.write(document)
                    counter.add(document)
            counter.measure(card, count_pieces, tally=tally)
            report = _build_report(
                card, tally, documents=documents, prompts=prompts, counter=counter
            )
            documents.finish(report)
            prompts.finish(report)
        sync_tree(staging)
        # The documents are replaced last: what reads them finds the prompts that belong to them.
        for place in (corpus_paths.prompts, corpus_paths.documents):
            (staging / place.name).replace(place)
    return report


def _iter_chosen(
    documents: Iterable[Document], card: Card, *, tally: Tally
) -> Iterator[tuple[Document, bool]]:
    # Those that are held out and those of the subset; all but the latter are counted as skipped.
    for document in documents:
        if is_held_out(card, document.document_id):
            tally.skip(HELD_OUT, document.document_id)
            yield document, True
        elif is_in_subset(card, document.document_id):
            yield document, False
        else:
            tally.skip("outside-subset", document.document_id)


class _Counter:
    def __init__(self) -> None:
        self.num_words = 0
        self.num_characters = 0
        self.num_without_prompt = 0
        self.sample = TextSample()
        self.languages: dict[str, float] = {}

    def add(self, document: Document) -> None:
        self.num_words += count_words(document.text)
        self.num_characters += len(document.text)
        self.sample.add(document)

    def measure(self, card: Card, count_pieces: CountPieces | None, *, tally: Tally) -> None:
        if count_pieces is not None:
            language = card.language
            found = measure_suitability(self.sample, language=language, count_pieces=count_pieces)
            tally.notes += found.warnings
            self.languages = found.languages


def _iter_distinct(
    card: Card, raw: Path, *, staging: Path, tally: Tally, progress: Progress
) -> Iterator[Document]:
    documents = _iter_clean(card, raw, tally=tally, progress=progress)
    if card.deduplicate != "near":
        return documents
    assert card.filters is not None
    threshold = card.filters.near_threshold
    return drop_near_duplicates(documents, folder=staging, threshold=threshold, tally=tally)


def _iter_clean(card: Card, raw: Path, *, tally: Tally, progress: Progress) -> Iterator[Document]:
    assert card.normaliser is not None
    normalise = get_normaliser(card.normaliser)
    record = load_source_record(raw)
    found = iter_found(
        card, list_raw_files(raw, record), layout=get_layout(card, record), tally=tally
    )
    is_decoding = "html-v1" in card.normaliser
    seen_ids = SeenTexts()
    seen_texts = SeenTexts()
    unmet = dict.fromkeys(card.filters.exclude if card.filters else ())
    for received in _count_aloud(found, progress):
        if not is_decoding and "&" in received.text and ENTITY.search(received.text):
            tally.count(ENTITIES)
        document = _normalise(received, normalise)
        unmet.pop(document.document_id, None)
        reason = _find_reason(card, document, seen_texts)
        if reason is not None:
            tally.skip(reason, document.document_id)
        elif not seen_ids.add(document.document_id):
            tally.reject(document.source, f"the id {document.document_id!r} was there before")
        else:
            seen_texts.add(document.text)  # not before: what is rejected makes nothing a duplicate
            yield fill_in(document, card)
    tally.notes += [f"filters.exclude names {each!r}, which is not there" for each in unmet]


def _count_aloud(documents: Iterable[Document], progress: Progress) -> Iterator[Document]:
    # what shows progress may take longer than a short document does: it is told now and then
    num_waiting, told_at = 0, time.monotonic()
    for document in documents:
        num_waiting += 1
        if time.monotonic() - told_at >= TELL_SECONDS:
            progress.advance(num_waiting)
            num_waiting, told_at = 0, time.monotonic()
        yield document
    progress.advance(num_waiting)


def _normalise(received: Document, normalise: Normaliser) -> Document:
    title = " ".join(normalise(received.title).split()) if received.title else ""
    text = normalise(received.text)
    return replace(received, title=title, text=text)


def _find_reason(card: Card, document: Document, seen_texts: SeenTexts) -> str | None:
    assert card.filters is not None
    num_words = count_words(document.text)
    if num_words == 0:
        return "empty"
    if num_words < card.filters.min_words:
        return "too-short"
    if card.filters.max_words is not None and num_words > card.filters.max_words:
        return "too-long"
    if document.document_id in card.filters.exclude:
        seen_texts.add(document.text)  # a later document of the same text goes too
        return "excluded"
    is_duplicate = card.deduplicate != "none" and document.text in seen_texts
    return "duplicate" if is_duplicate else None


def _build_report(
    card: Card, tally: Tally, *, documents: RecordWriter, prompts: RecordWriter, counter: _Counter
) -> PrepareReport:
    skipped = dict(tally.skipped)
    if documents.num_records == 0:
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.items() if count)
        raise CorpusError(
            f"corpus {card.id} must have at least one document",
            found=f"none left ({reasons})" if reasons else "none in the raw files",
            run="mend the source, the filters or the subset of the card",
        )
    if card.prompts is not None and card.prompts.held_out and prompts.num_records == 0:
        tally.notes.append("no prompts: no document that is held out is as long as a prompt")
    assert card.normaliser is not None
    return PrepareReport(
        corpus=card.id,
        normaliser=card.normaliser,
        num_read=documents.num_records + sum(skipped.values()),
        num_documents=documents.num_records,
        skipped=skipped,
        num_words=counter.num_words,
        num_characters=counter.num_characters,
        num_prompts=prompts.num_records,
        digest=documents.digest(),
        prompts_digest=prompts.digest(),
        notes=tuple(tally.list_notes()),
        examples=tally.examples,
        encodings=dict(tally.encodings),
        languages=counter.languages,
        num_without_prompt=counter.num_without_prompt,
    )
