"""Draw generations as a terminal would show them.

JSON lines of ``cog generate --json`` go in on stdin, a picture comes out:
``cog generate --prefix "…" --json | python scripts/picture.py docs/generate.svg``
"""

import io
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from cog.cli.render import render_generation
from cog.records import Decoding, Generation, Segment

WIDTH = 132


def read_generation(content: dict[str, Any]) -> Generation:
    """Restore a generation.

    :param content: One object of ``cog generate --json``.
    :returns: The generation.
    """
    segments = tuple(
        Segment(**{"origin" if key == "from" else key: value for key, value in segment.items()})
        for segment in content["segments"]
    )
    return Generation(
        **(content | {"decoding": Decoding(**content["decoding"]), "segments": segments})
    )


def main() -> None:
    """Write the picture."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    for line in sys.stdin:
        generation = read_generation(json.loads(line))
        command = f'$ cog generate --corpus {generation.corpus} --prefix "{generation.prefix}"'
        console.print(Text(command, style="dim"))
        for part in render_generation(generation):
            console.print(part)
        console.print()
    picture = console.export_svg(title="cog: the same model, another corpus")
    lines = [line.rstrip() for line in picture.splitlines()]
    Path(sys.argv[1]).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
