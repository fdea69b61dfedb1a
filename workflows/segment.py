"""Stage ``segment``: ``documents.parquet`` goes in, ``segments.json`` comes out."""

import sys
from pathlib import Path

from cog.corpus.documents import DocumentStore
from cog.errors import CogError
from cog.params import load_params
from cog.paths import find_project
from cog.progress import show_progress
from cog.training.segmentation.job import segment_corpus


def main(corpus_id: str) -> None:
    """Run the stage.

    :param corpus_id: The corpus.
    """
    paths = find_project(Path())
    params = load_params(paths.params)
    total = DocumentStore(paths.corpus(corpus_id).documents).num_documents
    with show_progress(f"segment {corpus_id}", total=total, unit="documents") as progress:
        segment_corpus(paths, corpus_id, params=params, progress=progress)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except CogError as error:
        sys.exit(f"segment: {error}")
