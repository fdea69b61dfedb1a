"""Stage ``evaluate``: held-out prompts go in, ``corpora/<id>/evaluation.json`` comes out."""

import sys
from pathlib import Path

from cog.errors import CogError
from cog.evaluation.stage import evaluate_corpus
from cog.params import load_params
from cog.paths import find_project
from cog.progress import show_progress


def main(corpus_id: str) -> None:
    """Run the stage.

    :param corpus_id: The corpus.
    """
    paths = find_project(Path())
    params = load_params(paths.params)
    with show_progress(f"evaluate {corpus_id}", total=None, unit="texts") as progress:
        evaluate_corpus(paths, corpus_id, params, progress)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except CogError as error:
        sys.exit(f"evaluate: {error}")
