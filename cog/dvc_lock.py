"""dvc.lock: its text goes in, the checksums of what DVC's cache holds come out."""

import re
from pathlib import Path
from typing import Any

import yaml

from cog.atomic import write_text_atomically
from cog.errors import ProjectError
from cog.yaml_file import YamlError, load_yaml, parse_yaml

_MD5 = re.compile(r"[0-9a-f]+(\.dir)?")  # it names a file of the cache, and may not name another


def read_outs(text: str) -> dict[str, str]:
    """Read the checksums of what the stages wrote, by path; that of a folder ends in ``.dir``."""
    found: dict[str, str] = {}
    for stage in (_parse_stages(text) or {}).values():
        outs = stage.get("outs") if isinstance(stage, dict) else None
        for out in outs if isinstance(outs, list) else ():
            md5 = out.get("md5") if isinstance(out, dict) else None
            if isinstance(md5, str) and _MD5.fullmatch(md5):
                found[str(out.get("path"))] = md5
    return found


def load_outs(path: Path) -> dict[str, str]:
    """Read what the stages of a project wrote; nothing if there is no such file."""
    try:
        return read_outs(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return {}


def is_readable(path: Path) -> bool:
    """Tell whether DVC can read its lock."""
    try:
        stages = _parse_stages(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return True
    except (OSError, UnicodeDecodeError):
        return False
    return stages is not None and all(isinstance(each, dict) for each in stages.values())


def remove_stages(path: Path, corpus_id: str) -> None:
    """Let DVC forget the stages of a corpus; a lock that it cannot read is a ``ProjectError``."""
    if not is_readable(path):
        raise ProjectError(
            f"{path.name} must be as DVC writes it",
            found="another content",
            run=f"git checkout HEAD {path.name}, or rm {path.name}",
        )
    content = load_yaml(path) if path.is_file() else {"stages": {}}
    stages = content["stages"].items()
    kept = {name: each for name, each in stages if not str(name).endswith(f"@{corpus_id}")}
    if len(kept) < len(stages):
        write_text_atomically(path, yaml.safe_dump(content | {"stages": kept}, sort_keys=False))


def _parse_stages(text: str) -> dict[str, Any] | None:
    try:
        content = parse_yaml(text)
    except YamlError:
        return None
    stages = content.get("stages") if isinstance(content, dict) else None
    return stages if isinstance(stages, dict) else None
