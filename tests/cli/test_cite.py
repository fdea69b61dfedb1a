"""``cog cite`` on what ``cog generate`` wrote."""

from pathlib import Path

from cog.errors import GenerationError
from cog.paths import ProjectPaths
from tests.calling import call


def test_cite_lists_what_was_copied(village: ProjectPaths, tmp_path: Path) -> None:
    words = ("generate", "--corpus", "village", "--prefix", "The", "--phrase-bias", "5", "--json")
    written = call(village, *words)
    file = tmp_path / "texts.jsonl"
    file.write_text(written.stdout, encoding="utf-8")
    shown = call(village, "cite", str(file))
    assert shown.exit_code == 0
    assert (
        "of village. Licence: [CC0-1.0](<https://creativecommons.org/publicdomain/zero/1.0/>)"
        in (shown.stdout)
    )
    assert call(village, "cite", "-", stdin=written.stdout).stdout == shown.stdout
    out = tmp_path / "sources.bib"
    assert call(village, "cite", str(file), "--format", "bibtex", "--out", str(out)).stdout == ""
    assert out.read_text(encoding="utf-8").startswith("@misc{village:")


def test_bad_files_are_refused(village: ProjectPaths, tmp_path: Path) -> None:
    for content in (b"", b"\xff\xfe", b"{}\n"):
        file = tmp_path / "texts.jsonl"
        file.write_bytes(content)
        assert isinstance(call(village, "cite", str(file)).exception, GenerationError)
    assert isinstance(call(village, "cite", str(tmp_path)).exception, GenerationError)
    assert isinstance(call(village, "cite", str(tmp_path / "none")).exception, GenerationError)
