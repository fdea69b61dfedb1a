"""Stage ``fetch``: the card of a corpus goes in, ``corpora/<id>/raw/`` comes out."""

import sys
from pathlib import Path

from cog import assets
from cog.corpus.fetch import fetch_corpus
from cog.errors import CogError
from cog.params import load_params
from cog.paths import find_project
from cog.progress import show_progress
from cog.registry import load_resolved_card


def main(corpus_id: str) -> None:
    """Run the stage.

    :param corpus_id: The corpus.
    """
    paths = find_project(Path())
    params = load_params(paths.params).fetch
    with show_progress(f"fetch {corpus_id}", total=None, unit="files") as progress:
        record = fetch_corpus(
            load_resolved_card(paths, corpus_id),
            corpus_paths=paths.corpus(corpus_id),
            fetcher=assets,
            source=None,
            retries=params.retries,
            timeout_seconds=params.timeout_seconds,
            progress=progress,
        )
        progress.say(f"{corpus_id}: {record.describe()}")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except CogError as error:
        sys.exit(f"fetch: {error}")
