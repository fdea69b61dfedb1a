"""Hugging Face data sets: a name goes in, one Parquet file per split comes out."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from cog.card_source import Source
from cog.errors import AssetError, CorpusError

CHECK_SECONDS = 20
LOCAL = "pass local files: cog corpus fetch ID --source DIR_OR_FILE"


def save_hub_splits(
    source: Source, folder: Path, *, columns: Sequence[str], project: Path
) -> tuple[list[str], str]:
    """Fetch the splits of a data set and write them as Parquet.

    The data set may be a local folder of data files. Gives the names of the files in the order of
    the splits, and the commit that they are of, which is empty for a folder and where the hub may
    not be asked.
    """
    import datasets

    assert source.dataset is not None
    is_folder = (project / source.dataset).is_dir()
    commit = "" if is_folder else _find_commit(source)
    names = []
    for split in source.split:
        try:
            with contextlib.chdir(project):  # where the library looks for a folder of that name
                rows = datasets.load_dataset(
                    source.dataset, source.config, split=split, revision=commit or source.revision
                )
        except RuntimeError as error:
            if "script" not in str(error).lower():
                raise _out_of_reach(source.dataset, error) from None
            raise CorpusError(
                f"data set {source.dataset} must be Parquet, JSON lines, CSV or text",
                found="a loading script, which is never run",
                run=LOCAL,
            ) from None
        except Exception as error:  # the hub's clients raise what their transport raises
            raise _out_of_reach(source.dataset, error) from None
        roots = {n: n if n in rows.column_names else n.split(".")[0] for n in columns}
        missing = [name for name in columns if roots[name] not in rows.column_names]
        if missing:
            raise CorpusError(
                f"data set {source.dataset} must have the column {missing[0]!r}",
                found=", ".join(rows.column_names),
                run="set format.fields in the card",
            )
        name = f"{split.replace('/', '-')}.parquet"
        rows.select_columns(list(dict.fromkeys(roots.values()))).to_parquet(folder / name)
        names.append(name)
    return names, commit


def _find_commit(source: Source) -> str:
    # One short request: load_dataset alone tries again for half a minute, aloud.
    import huggingface_hub

    if huggingface_hub.constants.HF_HUB_OFFLINE:
        return ""  # the hub's own cache may have it
    try:
        found = huggingface_hub.HfApi().dataset_info(
            source.dataset or "", revision=source.revision, timeout=CHECK_SECONDS
        )
        return found.sha or ""
    except Exception as error:  # the hub's clients raise what their transport raises
        raise _out_of_reach(source.dataset or "", error) from None


def _out_of_reach(dataset: str, error: Exception) -> AssetError:
    return AssetError(
        f"data set {dataset} must be within reach",
        found=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
        run=LOCAL,
    )
