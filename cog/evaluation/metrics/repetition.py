"""Repetition and diversity: generated texts go in, Rep-n and Diversity come out."""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ORDERS = (2, 3, 4)  # the n of Rep-n, and of the product that is Diversity
WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")  # noqa: RUF001 - both apostrophes


@dataclass(frozen=True, slots=True)
class Repetition:
    """How much generated texts repeat themselves (CoG, section 4.1).

    :param rep: Rep-2, Rep-3 and Rep-4 by n, in percent, mean over texts.
    :param diversity: Product of ``1 - Rep-n / 100`` over n, in percent.
    :param num_texts: Number of texts.
    """

    rep: dict[int, float]
    diversity: float
    num_texts: int


def split_words(text: str) -> list[str]:
    """Cut a text into words and marks, as they are counted here.

    :param text: The text.
    :returns: Runs of letters and digits, and single marks.
    """
    return WORD.findall(text)


def score_repetition(words: Sequence[Hashable], *, order: int) -> float:
    """Rep-n of one text: ``100 (1 - |unique n-grams| / |n-grams|)`` (CoG, section 4.1).

    :param words: The words of the generated text, without its prompt.
    :param order: The n.
    :returns: Percent; 0 for a text of fewer than n words.
    """
    num_grams = len(words) - order + 1
    if num_grams <= 0:
        return 0.0
    unique = {tuple(words[i : i + order]) for i in range(num_grams)}
    return 100.0 * (1.0 - len(unique) / num_grams)


def score_texts(texts: Sequence[str]) -> NDArray[np.float64]:
    """Rep-n of every text.

    :param texts: Generated texts, without their prompts.
    :returns: Percent; columns are Rep-2, Rep-3 and Rep-4. *Shape:* ``(num_texts, 3)``
    """
    words = [split_words(text) for text in texts]
    scores = [[score_repetition(each, order=order) for order in ORDERS] for each in words]
    return np.array(scores, dtype=np.float64).reshape(len(texts), len(ORDERS))


def combine_diversity(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Diversity of mean Rep-2, Rep-3 and Rep-4: the product of ``1 - Rep-n / 100``.

    :param means: Percent. *Shape:* ``(num_systems, 3)``
    :returns: Percent. *Shape:* ``(num_systems,)``
    """
    diversity: NDArray[np.float64] = 100.0 * np.prod(1.0 - means / 100.0, axis=1)
    return diversity


def measure_repetition(texts: Sequence[str]) -> Repetition:
    """Rep-n and Diversity of a system.

    Differs from the authors' script, which puts the prompts before the texts: here, as in the
    paper, only what was generated counts.

    :param texts: Generated texts, without their prompts.
    :returns: Mean Rep-n, and the Diversity that follows from the means.
    :raises ValueError: If there is no text.
    """
    if not texts:
        raise ValueError("Rep-n needs at least one text")
    means = score_texts(texts).mean(axis=0, keepdims=True)
    rep = dict(zip(ORDERS, means[0].tolist(), strict=True))
    return Repetition(rep, float(combine_diversity(means)[0]), len(texts))
