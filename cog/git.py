"""Git: a folder and words of a command go in, what git prints comes out."""

import subprocess
from pathlib import Path


def run_git(folder: Path, *words: str) -> str:
    """What a git command prints; empty if there is no git, no checkout, or it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # names of people and files may be anything
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
