"""The fine-tuned Transformer: a corpus id goes in, the folder of its model comes out."""

from pathlib import Path

from cog.errors import CheckpointError
from cog.index.versions.unions import split_union
from cog.model.language_model import identify_tokenizer
from cog.params import Params
from cog.paths import ProjectPaths


def get_tuned_folder(paths: ProjectPaths, params: Params, corpus_id: str) -> Path:
    """Where the model lies that was trained on a corpus with the objective ``tokens``.

    :param paths: The project.
    :param params: Its parameters.
    :param corpus_id: The corpus.
    :returns: ``models/tokens-<corpus id>``.
    :raises CheckpointError: If there is none, or it counts tokens otherwise than the project's
        model, so that texts would differ in length.
    """
    folder = paths.root / "models" / f"tokens-{corpus_id}"
    is_union = len(split_union(corpus_id)) > 1
    text = "--data FILES" if is_union else f"--corpus {corpus_id}"
    run = f"cog train --objective tokens {text} --out models/{folder.name}"
    if not folder.is_dir():
        raise CheckpointError(
            f"the system transformer-ft needs a model in models/{folder.name}",
            found="no such folder",
            run=run,
            about=str(folder),
        )
    wanted = identify_tokenizer(paths.model(params.model))
    found = identify_tokenizer(folder)
    if found != wanted:
        raise CheckpointError(
            f"models/{folder.name} must have the tokenizer of {params.model}",
            found=f"{found:.16} instead of {wanted:.16}",
            run=f"{run}, with a profile of the same base model",
            about=str(folder),
        )
    return folder
