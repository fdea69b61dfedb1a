"""Contamination: references and the indexed documents go in, the n-grams they share come out.

Counted before anything is written, and kept, since a large index takes minutes to look through.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from cog.corpus.documents import DocumentStore
from cog.corpus.grams import ORDER, hash_grams
from cog.decoding.batches import iter_batches
from cog.errors import EvaluationError
from cog.evaluation.metrics.metric import NONE, Measured, Metric, ratio_of
from cog.evaluation.records import SeedResult
from cog.evaluation.rows import digest_text, fill
from cog.evaluation.session import Evaluation
from cog.index.versions.unions import split_union
from cog.records import Document

TEXTS = Metric(f"contamination/{ORDER}-gram-texts", ratio_of(2, 3), NONE, top=1.0)
SHARE = Metric(f"contamination/{ORDER}-gram-share", ratio_of(0, 1), NONE, top=1.0)
METRICS = (TEXTS, SHARE)
DOCUMENTS_PER_LOOKUP = 256


def find_reason_against(run: Evaluation) -> str:
    """Why a system has no such scores; empty if it has."""
    return "" if run.system.documents else "searches nothing"


def measure(run: Evaluation, _seeds: tuple[SeedResult, ...]) -> list[Measured]:
    """Tell how much of the references stands in the index; nothing where it cannot be told."""
    rows = find_contamination(run)
    num_texts = int(rows[:, 3].sum())
    if not num_texts:
        return []
    share = SHARE.score(rows)
    note = ""
    if share > run.params.evaluate.max_contamination:
        note = f"{share:.0%} of the references is in the index and can be copied"
    return [
        Measured(TEXTS, rows[None], num_texts=num_texts),
        Measured(SHARE, rows[None], num_texts=num_texts, note=note),
    ]


def check_contamination(run: Evaluation) -> None:
    """Refuse to score texts whose references can be copied from the index.

    Some phrases of a field are in every text of it (of held-out articles of six EU acts, 42 %
    share 13 words in a row with the other articles, but only 7 % of their 13-grams), so what counts
    is how much of the references is there, not how many of them share something.
    """
    if find_reason_against(run):
        return
    rows = find_contamination(run)
    if not rows[:, 3].any():
        run.progress.say(f"no reference has {ORDER} words: contamination cannot be told")
    limit = run.params.evaluate.max_contamination
    share = SHARE.score(rows)
    if run.plan.allow_contamination or share <= limit:
        return
    plan = run.plan
    raise EvaluationError(
        f"at most {limit:.0%} of the references' {ORDER}-grams may be in the index of "
        f"{plan.corpus_id}",
        found=f"{share:.0%} for the prompts of {plan.prompt_corpus_id}: their references can be "
        "copied",
        run="pass --prompts-of another corpus, or --allow-contamination; in the pipeline, raise "
        "evaluate.max_contamination in params.yaml",
        about=plan.prompt_corpus_id,
    )


def find_contamination(run: Evaluation) -> NDArray[np.float64]:
    """Count what the index holds of every reference, or take it from an earlier count."""
    references = [prompt.reference for prompt in run.selection.prompts]

    def compute(positions: list[int]) -> NDArray[np.float64]:
        parts = split_union(run.plan.corpus_id)
        stores = [DocumentStore(run.paths.corpus(part).documents) for part in parts]
        documents = chain.from_iterable(store.iter_documents() for store in stores)
        return count_shared([references[i] for i in positions], documents)

    digests = [digest_text(run.system.documents, str(ORDER), text) for text in references]
    cache = run.store.rows("contamination")
    return fill(cache, digests, compute, batch_size=len(references))  # one look through the index


def count_shared(
    references: Sequence[str], documents: Iterable[Document], *, order: int = ORDER
) -> NDArray[np.float64]:
    """Look for the references' n-grams in the documents of an index, a few hundred at once.

    Gives for each reference the number of its n-grams that are there, of all its n-grams, whether
    one is there, and whether it has any. *Shape:* ``(num_references, 4)``
    """
    grams = [hash_grams(text, order=order) for text in references]
    wanted = np.unique(np.concatenate(grams))
    is_found = np.zeros(len(wanted), dtype=bool)
    for batch in iter_batches(documents, DOCUMENTS_PER_LOOKUP):
        present = np.concatenate([hash_grams(document.text, order=order) for document in batch])
        is_found |= np.isin(wanted, present)
    hits = [np.isin(each, wanted[is_found]) for each in grams]
    counts = [(each.sum(), len(each), each.any(), len(each) > 0) for each in hits]
    return np.array(counts, dtype=np.float64)
