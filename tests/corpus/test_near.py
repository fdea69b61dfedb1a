"""Near duplicates: what MinHash finds against every pair compared, and what a card removes."""

import random
from pathlib import Path

import numpy as np
import pytest
from datasketch import MinHash, MinHashLSH

from cog.corpus.duplicates import find_duplicates
from cog.corpus.near import (
    SignatureWriter,
    choose_rows,
    find_originals,
    find_pairs,
    hash_runs,
    sign_text,
)
from tests.corpus.building import make_card, prepare


def make_texts(num_texts: int, *, num_words: int = 120) -> list[str]:
    """Texts of which many are an earlier one with some words changed."""
    generator = random.Random(0)
    texts: list[list[str]] = []
    for number in range(num_texts):
        if texts and number % 3:
            words = list(generator.choice(texts))
            for _ in range(generator.choice([0, 1, 2, 4, 8, 30])):
                words[generator.randrange(num_words)] = f"new{generator.randrange(10**6)}"
        else:
            words = [f"w{generator.randrange(5000)}" for _ in range(num_words)]
        texts.append(words)
    return [" ".join(words) for words in texts]


def compare_all(texts: list[str]) -> dict[tuple[int, int], float]:
    runs = [set(hash_runs(text).tolist()) for text in texts]
    return {
        (later, earlier): len(runs[later] & runs[earlier]) / len(runs[later] | runs[earlier])
        for later in range(len(texts))
        for earlier in range(later)
    }


def sign(tmp_path: Path, texts: list[str]) -> np.ndarray:
    with SignatureWriter(tmp_path / "signatures") as writer:
        for text in texts:
            writer.write(text)
        return np.array(writer.load())


def test_signatures_estimate_what_texts_have_in_common(tmp_path: Path) -> None:
    texts = make_texts(60)
    signatures = sign(tmp_path, texts)
    for (later, earlier), share in compare_all(texts).items():
        estimate = float((signatures[later] == signatures[earlier]).mean())
        assert abs(estimate - share) < 0.19  # over four standard deviations of 128 hashes


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.8, 0.95])
def test_buckets_miss_next_to_nothing(tmp_path: Path, threshold: float) -> None:
    texts = make_texts(300)
    signatures = sign(tmp_path, texts)
    wanted = {
        (later, earlier)
        for later in range(len(texts))
        for earlier in range(later)
        if (signatures[later] == signatures[earlier]).mean() >= threshold
    }
    pairs = {(later, earlier) for later, earlier in find_pairs(signatures, threshold).tolist()}
    assert pairs <= wanted
    best = find_originals(len(texts), np.array(sorted(wanted), dtype=np.int64))
    found = find_originals(len(texts), find_pairs(signatures, threshold))
    assert np.count_nonzero((best >= 0) != (found >= 0)) <= 3
    assert np.count_nonzero(best >= 0) > 30


def test_datasketch_finds_as_much(tmp_path: Path) -> None:
    texts = make_texts(120)
    index = MinHashLSH(threshold=0.8, num_perm=128)
    kept: dict[str, MinHash] = {}
    theirs = set()
    for number, text in enumerate(texts):
        hashed = MinHash(num_perm=128)
        hashed.update_batch([run.tobytes() for run in hash_runs(text)])
        if any(hashed.jaccard(kept[key]) >= 0.8 for key in index.query(hashed)):
            theirs.add(number)
        index.insert(str(number), hashed)
        kept[str(number)] = hashed
    ours = {later for later, _ in find_pairs(sign(tmp_path, texts), 0.8).tolist()}
    exact = {later for (later, _), share in compare_all(texts).items() if share >= 0.8}
    assert len(ours & exact) >= len(theirs & exact) - 2
    assert len(ours & exact) >= 0.85 * len(exact) > 0


def test_what_counts_is_words_not_case_or_marks() -> None:
    assert (
        sign_text("One two, three four FIVE six.") == sign_text("one two three four five six")
    ).all()
    assert (sign_text("a b") != sign_text("a c")).any()
    assert (sign_text("...") != sign_text("!!!")).any()
    long = " ".join(f"w{number}" for number in range(30000))
    assert (sign_text(long) == sign_text(f"{long} tail")).mean() > 0.99


def test_rows_of_a_bucket_follow_the_threshold() -> None:
    chosen = [choose_rows(threshold) for threshold in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)]
    assert chosen == sorted(chosen)
    for threshold, rows in zip((0.5, 0.6, 0.7, 0.8, 0.9), chosen, strict=False):
        assert (1 - threshold**rows) ** (128 // rows) <= 0.003


def test_chains_keep_what_is_like_nothing_that_stays() -> None:
    pairs = np.array([[1, 0], [2, 1]])  # 2 is like 1, which goes, and not like 0
    assert find_originals(3, pairs).tolist() == [-1, 0, -1]


def test_a_card_removes_near_duplicates_and_counts_them(tmp_path: Path) -> None:
    base = " ".join(f"word{number}" for number in range(100))
    lines = [
        base,
        base,
        f"{base} more",
        base.replace("word50", "other"),
        "Another text, quite short.",
    ]
    content = "\n".join(lines).encode()
    report, documents, paths = prepare(tmp_path, {"a.txt": content}, make_card(deduplicate="near"))
    assert [document.document_id for document in documents] == ["a:1", "a:5"]
    assert (report.skipped["duplicate"], report.skipped["near-duplicate"]) == (1, 2)
    assert report.num_read == 5
    strict = make_card(
        deduplicate="near", filters={"min_words": 1, "max_words": None, "near_threshold": 1}
    )
    _, documents, _ = prepare(tmp_path, {"a.txt": content}, strict)
    assert len(documents) >= 3
    prepare(tmp_path, {"a.txt": content}, make_card(deduplicate="none"))
    found = find_duplicates(paths.documents, threshold=0.8)
    assert (found.num_documents, found.num_exact, found.num_near) == (5, 1, 2)
    assert [(each.document_id, each.original_id) for each in found.repetitions][0] == ("a:2", "a:1")
    assert found.repetitions[0].similarity == 1.0
