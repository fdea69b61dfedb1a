"""Raw files of a corpus for another that takes the same: two folders go in, links come out."""

import os
import shutil
from pathlib import Path

from cog.atomic import replacing
from cog.corpus.sources import load_source_record
from cog.paths import CorpusPaths


def share_raw(source: CorpusPaths, target: CorpusPaths) -> None:
    """Give a corpus the raw files of another without a second copy of their bytes."""
    load_source_record(source.raw)  # refuses what is not whole
    with replacing(target.raw) as raw:
        shutil.copytree(source.raw, raw, copy_function=_link)


def _link(source: str, target: str) -> str:
    try:
        os.link(Path(source).resolve(), target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
    return target
