"""Stage ``index``: ``documents.parquet`` goes in, ``index/`` and ``manifest.json`` come out."""

import sys
from pathlib import Path

from cog.decoding.storage import make_storage_measure
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
        measure_storage = make_storage_measure(
            paths.corpus(corpus_id),
            model_folder=paths.model(params.model),
            params=params.index,
            device="auto",
        )
        build_corpus_index(
            paths,
            corpus_id,
            params=params,
            progress=progress,
            device="auto",
            measure_storage=measure_storage,
        )


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except CogError as error:
        sys.exit(f"index: {error}")
