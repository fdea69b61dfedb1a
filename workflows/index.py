"""Stage ``index``: ``documents.parquet`` goes in, ``index/`` and ``manifest.json`` come out."""

import sys
from pathlib import Path

from cog.errors import CogError
from cog.index.project import build_corpus_index, count_corpus_words
from cog.params import load_params
from cog.paths import find_project
from cog.progress import show_progress


def main(corpus_id: str) -> None:
    """Run the stage.

    :param corpus_id: The corpus.
    """
    paths = find_project(Path())
    params = load_params(paths.params)
    total = count_corpus_words(paths, corpus_id)
    with show_progress(f"index {corpus_id}", total=total, unit="words") as progress:
        build_corpus_index(paths, corpus_id, params=params, progress=progress, device="auto")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except CogError as error:
        sys.exit(f"index: {error}")
