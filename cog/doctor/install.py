"""Checks of what is installed: nothing goes in, what else calls itself ``cog`` comes out."""

from collections.abc import Iterator
from importlib.metadata import entry_points, packages_distributions

from cog.doctor.records import Finding
from cog.extras import DISTRIBUTION

NAME = "cog"


def check_install() -> Iterator[Finding]:
    """Check that no other distribution brings a package or a command of the same name."""
    packages = {_tidy(each) for each in packages_distributions().get(NAME, ())}
    for other in sorted(packages - {DISTRIBUTION}):
        yield Finding(
            "install",
            other,
            f"it installs a package {NAME} into the same folder: files of both are mixed",
            f"pip uninstall {other} {DISTRIBUTION}, then pip install {DISTRIBUTION}",
        )
    scripts = entry_points(group="console_scripts", name=NAME)
    commands = {_tidy(each.dist.name) for each in scripts if each.dist is not None}
    for other in sorted(commands - packages - {DISTRIBUTION}):
        yield Finding(
            "install",
            other,
            f"it installs a command {NAME}, too: which one runs depends on the order",
            f"call {DISTRIBUTION} in the place of {NAME}, or pip uninstall {other}",
        )


def _tidy(name: str) -> str:
    return name.lower().replace("_", "-")
