"""Stage ``retro``: an index goes in, ``retro/`` with an adapter comes out."""

import sys
from pathlib import Path

from cog.errors import CogError
from cog.evaluation.retro_training import train_retro_on_corpus
from cog.params import load_params
from cog.paths import find_project


def main(corpus_id: str) -> None:
    """Run the stage.

    :param corpus_id: The corpus.
    """
    paths = find_project(Path())
    train_retro_on_corpus(paths, load_params(paths.params), corpus_id)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except CogError as error:
        sys.exit(f"retro: {error}")
