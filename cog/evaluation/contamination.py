"""The guard against known answers: an evaluation goes in, what its index holds of them comes out.

Counted before anything is written, and kept, since a large index takes minutes to look through.
"""

from itertools import chain

import numpy as np
from numpy.typing import NDArray

from cog.corpus.documents import DocumentStore
from cog.errors import EvaluationError
from cog.evaluation.cache import RowCache, digest_text, fill
from cog.evaluation.metrics.contamination import ORDER, Shares, measure_contamination
from cog.evaluation.session import Evaluation
from cog.index.versions.unions import split_union

FOLDER = "contamination"


def find_contamination(run: Evaluation) -> Shares:
    """Count what the index holds of the references, or take it from an earlier count.

    :param run: The evaluation.
    :returns: The shares.
    """
    prompts = run.selection.prompts

    def compute(_positions: list[int]) -> NDArray[np.float64]:
        parts = split_union(run.plan.corpus_id)
        stores = [DocumentStore(run.paths.corpus(part).documents) for part in parts]
        documents = chain.from_iterable(store.iter_documents() for store in stores)
        references = {prompt.prompt_id: prompt.reference for prompt in prompts}
        found = measure_contamination(references, documents)
        return np.array([[found.share_of_texts, found.share_of_grams, found.num_texts]])

    digest = digest_text(
        run.identity.documents, str(ORDER), *(prompt.reference for prompt in prompts)
    )
    cache = RowCache(run.store.folder / FOLDER)
    (row,) = fill(cache, [digest], compute, batch_size=1)
    return Shares(float(row[0]), float(row[1]), int(row[2]))


def check_contamination(run: Evaluation) -> None:
    """Refuse to score texts whose references can be copied from the index.

    Some phrases of a field are in every text of it (of held-out articles of six EU acts, 42 %
    share 13 words in a row with the other articles, but only 7 % of their 13-grams), so what counts
    is how much of the references is there, not how many of them share something.

    :param run: The evaluation.
    :raises EvaluationError: If more of the references is in the index than params.yaml admits.
    """
    if not run.identity.documents:
        return  # nothing is copied from or searched
    limit = run.params.evaluate.max_contamination
    found = find_contamination(run)
    if not found.num_texts:
        run.progress.say(f"no reference has {ORDER} words: contamination cannot be told")
    if run.plan.allow_contamination or found.of_grams <= limit:
        return
    plan = run.plan
    raise EvaluationError(
        f"at most {limit:.0%} of the references' {ORDER}-grams may be in the index of "
        f"{plan.corpus_id}",
        found=f"{found.of_grams:.0%} for the prompts of {plan.prompt_corpus_id}: their "
        "references can be copied",
        run="pass --prompts-of another corpus, or --allow-contamination",
        about=plan.prompt_corpus_id,
    )
