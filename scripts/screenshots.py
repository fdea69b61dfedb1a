"""Make the pictures of the pages of ``cog serve`` from the indexes of two small corpora.

Chromium and the indexes go in; ``docs/serve-*.png`` come out, none above 150 KB:
``dvc repro index@wiki-mini index@eu-law-mini && python scripts/screenshots.py``
"""

import argparse
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
NAMES = ("chromium", "chromium-browser", "google-chrome")
MAX_BYTES = 150_000
WIDE, NARROW = (1280, 860), (390, 844)
PREFIX = "The Baltic Sea is"
LAW = "The provider of a high-risk AI system shall"
TEXT = {"prefix": PREFIX, "corpus": "wiki-mini", "seed": 0, "max_new_tokens": 128}
SIDES = urlencode(
    [
        ("prefix", LAW),
        ("seed", 0),
        ("max_new_tokens", 96),
        ("side", "corpus=eu-law-mini"),
        ("side", "corpus=eu-law-mini&system=transformer"),
        ("side", "corpus=wiki-mini"),
    ]
)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a page.

    :param path: Address below the server's.
    :param act: What is done before it is taken.
    :param size: Of the window.
    :param scheme: ``light`` or ``dark``.
    :param is_whole: Whether what lies below the window is in it.
    """

    path: str
    act: Callable[[Page], None]
    size: tuple[int, int] = WIDE
    scheme: str = "light"
    is_whole: bool = False


def wait_for_text(page: Page) -> None:
    """Wait for the whole text."""
    page.wait_for_selector("#done:not([hidden])", timeout=300_000)


def hover(page: Page) -> None:
    """Ask for the source of a copy."""
    wait_for_text(page)
    page.locator("#written .copy").nth(1).hover()


def open_source(page: Page) -> None:
    """Open the source of a copy."""
    wait_for_text(page)
    page.locator("#written .copy").nth(2).click()
    page.wait_for_selector("#source mark.here")


def wait_for_sides(page: Page) -> None:
    """Wait for all sides of a comparison."""
    page.locator(".figures:not([hidden])").nth(2).wait_for(timeout=300_000)


PICTURES = {
    "serve-write": Picture(f"/?{urlencode(TEXT)}", hover),
    "serve-source": Picture(f"/?{urlencode(TEXT)}", open_source, scheme="dark"),
    "serve-compare": Picture(f"/compare?{SIDES}", wait_for_sides, is_whole=True),
    "serve-corpora": Picture("/corpora", lambda page: page.locator("table").first.wait_for()),
    "serve-telephone": Picture(f"/?{urlencode(TEXT)}", open_source, size=NARROW),
}


@contextmanager
def serve(project: Path) -> Iterator[str]:
    """Serve the project on a free port as long as the block runs.

    :param project: Where the indexes are.
    :yields: The address.
    """
    words = [sys.executable, "-m", "cog.cli.main", "--project", str(project), "serve"]
    process = subprocess.Popen([*words, "--port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"http://\S+?(?=/? )", line):
                yield found.group().rstrip("/")
                return
        raise SystemExit("cog serve did not start")
    finally:
        process.terminate()
        process.wait()


def shrink(content: bytes) -> bytes:
    """Leave a picture the few colours that it needs.

    :param content: A PNG.
    :returns: A PNG of 128 colours.
    """
    target = io.BytesIO()
    image = Image.open(io.BytesIO(content)).convert("RGB")
    image.quantize(128, dither=Image.Dither.NONE).save(target, "PNG", optimize=True)
    return target.getvalue()


def main() -> None:
    """Take the pictures that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(PICTURES), metavar="NAME")
    parser.add_argument("--project", type=Path, default=ROOT, help="where the indexes are")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="where pictures go")
    given = parser.parse_args()
    chromium = next(filter(None, map(shutil.which, NAMES)), None)
    with serve(given.project) as address, sync_playwright() as player:
        browser = player.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name in given.names:
            picture = PICTURES[name]
            width, height = picture.size
            page = browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme="dark" if picture.scheme == "dark" else "light",
            )
            page.goto(address + picture.path)
            picture.act(page)
            content = shrink(page.screenshot(full_page=picture.is_whole))
            assert len(content) <= MAX_BYTES, f"{name} has {len(content)} bytes"
            (given.out / f"{name}.png").write_bytes(content)
            print(f"{name}.png: {len(content) // 1000} KB")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
