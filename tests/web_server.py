"""A web server for tests: files and how they misbehave go in, addresses come out."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Page:
    """What is at an address.

    :param content: The bytes.
    :param tag: ETag; empty for none.
    :param has_ranges: Whether a part of it can be asked for.
    :param cut_after: Bytes of an answer after which the connection is cut; None for never.
    :param num_cuts: How many answers are cut.
    :param claims: What it says its size is; None for the truth, -1 for nothing.
    :param content_type: Its type.
    :param status: Status of every answer; a list for one after another.
    :param location: Where it redirects to.
    """

    content: bytes = b""
    tag: str = '"1"'
    has_ranges: bool = True
    cut_after: int | None = None
    num_cuts: int = 1000
    claims: int | None = None
    content_type: str = "application/octet-stream"
    status: list[int] = field(default_factory=list)
    location: str = ""


class WebServer:
    """A running server.

    :param address: What addresses begin with.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.pages: dict[str, Page] = {}
        self.asked: list[tuple[str, str]] = []  # path, range

    def put(self, path: str, content: bytes = b"", **rules: Any) -> str:  # noqa: ANN401
        """Put a page at a path; its address comes back."""
        self.pages[path] = Page(content, **rules)
        return self.address + path


@contextmanager
def run_server() -> Iterator[WebServer]:
    """Run a server while the block runs."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    http.web = WebServer(f"http://127.0.0.1:{http.server_port}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield http.web  # type: ignore[attr-defined]
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        web: WebServer = self.server.web  # type: ignore[attr-defined]
        page = web.pages.get(self.path.partition("?")[0])
        asked = self.headers.get("Range", "")
        web.asked.append((self.path, asked))
        self.close_connection = True
        if page is None:
            self.send_error(404)
            return
        status = page.status.pop(0) if page.status else 302 if page.location else 200
        begin = 0
        if asked and page.has_ranges and self.headers.get("If-Range", "") == page.tag != "":
            begin, status = int(asked.removeprefix("bytes=").rstrip("-")), 206
            if begin >= len(page.content):
                self.send_error(416)
                return
        body = page.content[begin:]
        self.send_response(status)
        if page.location:
            self.send_header("Location", page.location)
        if page.tag:
            self.send_header("ETag", page.tag)
        if status == 206:
            total = len(page.content)
            self.send_header("Content-Range", f"bytes {begin}-{total - 1}/{total}")
        if page.claims != -1:
            claimed = len(body) if page.claims is None else page.claims
            self.send_header("Content-Length", str(claimed))
        self.send_header("Content-Type", page.content_type)
        self.end_headers()
        if page.cut_after is not None and page.num_cuts > 0:
            page.num_cuts -= 1
            body = body[: page.cut_after]
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401
        """Stay silent."""
