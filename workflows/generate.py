"""Stage ``generate``: held-out prompts go in, ``corpora/<id>/generations.jsonl`` comes out."""

import sys
from pathlib import Path

from cog.decoding.stage import generate_corpus
from cog.errors import CogError
from cog.params import load_params
from cog.paths import find_project
from cog.progress import show_progress


def main(corpus_id: str) -> None:
    """Run the stage.

    :param corpus_id: The corpus.
    """
    paths = find_project(Path())
    params = load_params(paths.params)
    total = params.generate.num_prompts
    with show_progress(f"generate {corpus_id}", total=total, unit="texts") as progress:
        generate_corpus(paths, corpus_id, params, progress)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except CogError as error:
        sys.exit(f"generate: {error}")
