"""Stage ``prepare``: ``raw/`` goes in, ``documents.parquet`` and ``prompts.parquet`` come out."""

import sys
from pathlib import Path

from cog.corpus.prepare import prepare_corpus
from cog.errors import CogError
from cog.model.piece_counts import load_cutter
from cog.params import load_params
from cog.paths import find_project
from cog.progress import show_progress
from cog.registry import load_resolved_card


def main(corpus_id: str) -> None:
    """Run the stage.

    :param corpus_id: The corpus.
    """
    paths = find_project(Path())
    params = load_params(paths.params)
    cutter = load_cutter(paths.root / params.model)
    with show_progress(f"prepare {corpus_id}", total=None, unit="documents") as progress:
        report = prepare_corpus(
            load_resolved_card(paths, corpus_id),
            corpus_paths=paths.corpus(corpus_id),
            tokenise=cutter.splitter.token_chars,
            progress=progress,
            prompt_tokens=params.prepare.prompt_tokens,
            reference_tokens=params.prepare.reference_tokens,
            count_pieces=cutter.count,
        )
        for line in report.describe():
            progress.say(line)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except CogError as error:
        sys.exit(f"prepare: {error}")
