"""What a project is made of goes into the wheel, from the one place where git has it."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
TARGET = Path("cog", "_data")
SHIPPED = (
    "registry/cards/*.yaml",
    "models/cog-v0/*",
    "workflows/*/dvc.yaml",
    "workflows/*/README.md",
    "dvc.yaml",
    "params.yaml",
    ".gitignore",
    ".dvcignore",
    ".dvc/config",
    ".dvc/.gitignore",
    "corpora/.gitignore",
)


class BuildWithData(build_py):
    """Copy what is shipped beside code; an editable install finds it in the checkout."""

    def run(self) -> None:
        """Build the package, then add the files."""
        super().run()
        if self.editable_mode:
            return
        for pattern in SHIPPED:
            found = [path for path in sorted(ROOT.glob(pattern)) if path.is_file()]
            if not found:
                raise FileNotFoundError(f"{pattern} must be there to be shipped")
            for path in found:
                target = Path(self.build_lib, TARGET, path.relative_to(ROOT))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)


setup(cmdclass={"build_py": BuildWithData})
