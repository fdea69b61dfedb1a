"""Encodings told from bytes: a sample goes in, the likeliest encoding and a confidence come out."""

import codecs
from dataclasses import dataclass
from typing import Any

MIN_CONFIDENCE = 0.75  # below it, `encoding: detect` refuses
SAMPLE_BYTES = 1 << 15

_CLOSE = 0.02  # readings that are as plausible as the best one
_NEAR = 0.08  # readings among which the language decides
_CLEARLY = 1.08  # ratio of log-likelihoods from which one language is likelier than another
_WINDOWS = ("cp125", "iso8859", "latin")  # not the code pages of DOS and the Mac
_RARE = ("mac", "cp4", "cp7", "cp8", "hp")  # told too often where they are not
_FEW_BYTES = 8  # with fewer telling bytes, statistics of languages say nothing
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_CONTAINERS = {
    b"\x1f\x8b": "gzip inside gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"PK\x03\x04": "a zip archive, or a document that is one (docx, xlsx, epub)",
    b"%PDF-": "PDF",
    b"PAR1": "Parquet",
    b"SQLite format 3\x00": "a SQLite database",
}
_TAR_MARK, _TAR_PLACE = b"ustar", 257


@dataclass(frozen=True, slots=True)
class Guess:
    """An encoding that bytes may be of."""

    encoding: str  # name that `format.encoding` takes
    # 0 to 1; it grows with the number of bytes that tell, and falls with the share of odd
    # characters and the number of encodings that read them as well
    confidence: float

    def __str__(self) -> str:
        return f"{self.encoding}, confidence {self.confidence:.2f}"


def find_container(start: bytes) -> str | None:
    """Tell what a packed or binary file is; None for text."""
    for mark, name in _CONTAINERS.items():
        if start.startswith(mark):
            return name
    is_tar = start[_TAR_PLACE : _TAR_PLACE + len(_TAR_MARK)] == _TAR_MARK
    return "a tar archive" if is_tar else None


def has_mark(start: bytes, encoding: str) -> bool:
    """Tell whether bytes begin with a byte-order mark of UTF-8, UTF-16 or UTF-32."""
    return any(start.startswith(mark) for mark, name in _MARKS.items() if name == encoding)


def is_partly_utf8(sample: bytes) -> bool:
    """Tell a UTF-8 text with foreign bytes from a text of another encoding.

    Other encodings hardly spell characters of several bytes by chance; they must not be few.
    """
    text = sample.decode("utf-8", errors="replace")
    num_wrong = text.count("\ufffd")
    num_right = sum(character >= "\x80" for character in text) - num_wrong
    return num_right >= 2 and 3 * num_right >= num_wrong


def guess_encoding(sample: bytes, *, is_utf8: bool = True) -> Guess:
    """Guess the encoding of bytes from the beginning of a text; parts may be cut out after it."""
    for mark, name in _MARKS.items():
        if sample.startswith(mark):
            return Guess(name, 1.0)
    wide = _guess_wide(sample)
    if wide is not None:
        return wide
    num_telling = sum(byte >= 0x80 for byte in sample)
    if is_utf8 and _is_utf8(sample):
        return Guess("utf-8", 1.0 if num_telling else 0.95)
    trust = num_telling / (num_telling + 1)
    if num_telling < _FEW_BYTES:
        return Guess(_guess_western(sample), round(trust * 0.8, 2))
    return _guess_by_language(sample, trust=trust)


def _guess_wide(sample: bytes) -> Guess | None:
    # Text in ASCII letters has NUL at fixed places when its characters take two or four bytes.
    if len(sample) < 4:
        return None
    zeros = [sample[place::4].count(0) / max(1, len(sample[place::4])) for place in range(4)]
    patterns = {
        "utf-32-le": (zeros[1], zeros[2], zeros[3]),
        "utf-32-be": (zeros[0], zeros[1], zeros[2]),
        "utf-16-le": (zeros[1], zeros[3]),
        "utf-16-be": (zeros[0], zeros[2]),
    }
    for name, shares in patterns.items():
        others = sum(zeros) - sum(shares)
        if min(shares) > 0.5 and others < 0.2:
            return Guess(name, round(min(shares) - others / 4, 2))
    return None


def _is_utf8(sample: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return False
    return True


def _guess_western(sample: bytes) -> str:
    return "cp1252" if any(0x80 <= byte < 0xA0 for byte in sample) else "latin-1"


def _is_windows(match: Any) -> bool:  # noqa: ANN401
    return bool(match.encoding.startswith(_WINDOWS))


def _rate_language(text: str) -> float:
    import py3langid

    return float(py3langid.classify(text)[1])  # log-likelihood under the likeliest language


def _guess_by_language(sample: bytes, *, trust: float) -> Guess:
    import charset_normalizer

    matches = list(charset_normalizer.from_bytes(sample))
    if not matches:
        return Guess(_guess_western(sample), 0.1)
    least = min(match.chaos for match in matches)
    rivals = {str(match): match.encoding for match in matches if match.chaos <= least + _CLOSE}
    usual = _guess_western(sample)
    text = sample.decode("cp1252", errors="replace")
    is_western = all(name.startswith(_WINDOWS) for name in rivals.values())
    best = next(match for match in matches if match.chaos <= least + _CLOSE)
    if _is_windows(best):
        # Letters of the North read French as well; as words of a language they are less likely.
        near = [m for m in matches if m.chaos <= least + _NEAR and _is_windows(m)]
        best = max(near, key=lambda match: _rate_language(str(match)))
        limit = _CLEARLY * _rate_language(str(best))
        western = (m for m in near if str(m) == text and _rate_language(text) >= limit)
        best = next(western, best)
    if len(rivals) > 1 and str(best) == text and text in rivals and is_western:
        # cp1250 and others read it as well, but hardly any text is theirs.
        return Guess(usual, round(trust * (1.0 - least) * 0.9, 2))
    name = usual if str(best) == text else best.encoding.replace("_", "-")
    if best.encoding.startswith(_RARE):
        trust *= 0.7
    return Guess(name, round(trust * (1.0 - best.chaos) / len(rivals), 2))
