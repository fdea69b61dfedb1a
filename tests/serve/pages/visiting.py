"""Visits to pages: addresses and what a person does go in, what is on the page comes out."""

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Browser, BrowserContext, Page

from tests.serve.serving import WAIT, RunningServer

WIDE, NARROW = (1280, 800), (390, 844)
PREFIX = "The old mill"
# so that a model that knows nothing copies
COPYING = {"phrase_bias": 30, "max_new_tokens": 96, "top_k_documents": 16}


@dataclass(slots=True)
class Visitor:
    """Somebody with a browser.

    :param browser: The browser.
    :param server: What is visited.
    :param problems: What the pages complained about.
    """

    browser: Browser
    server: RunningServer
    problems: list[str] = field(default_factory=list)
    contexts: list[BrowserContext] = field(default_factory=list)

    def visit(
        self,
        path: str,
        values: dict[str, Any] | None = None,
        *,
        size: tuple[int, int] = WIDE,
        scheme: Any = "light",  # noqa: ANN401
    ) -> Page:
        """Open a page in a window of its own."""
        context = self.browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,
            permissions=["clipboard-read", "clipboard-write"],
        )
        self.contexts.append(context)
        context.set_default_timeout(1000 * WAIT)
        page = context.new_page()
        page.on("console", lambda message: self._hear(message.type, message.text))
        page.on("pageerror", lambda error: self._hear("error", str(error)))
        query = f"?{urlencode(values, doseq=True)}" if values else ""
        page.goto(f"{self.server.url}{path}{query}")
        return page

    def write(self, corpus: str = "village", **kept: Any) -> Page:  # noqa: ANN401
        """Open the page that writes at an address that says what, and wait for the text."""
        values = {"prefix": PREFIX, "corpus": corpus, **COPYING}
        page = self.visit("/", values, **kept)
        page.wait_for_selector("#done:not([hidden])")
        return page

    def _hear(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.problems.append(f"{kind}: {text}")

    def forgive(self, pattern: str) -> None:
        """Forget complaints that a test has asked for."""
        assert any(re.search(pattern, each) for each in self.problems), self.problems
        self.problems = [each for each in self.problems if not re.search(pattern, each)]

    def leave(self) -> None:
        """Close all windows."""
        for context in self.contexts:
            context.close()
        assert self.problems == []


def copy_by(page: Page, button: str) -> str:
    """What a button copies."""
    # it says so for a moment that a busy machine may miss
    page.evaluate(
        "window.copied = false; new MutationObserver(([change]) => {"
        " copied ||= change.target.textContent === 'Copied'; })"
        f".observe(document.querySelector('{button}'), {{ childList: true }})"
    )
    page.click(button)
    page.wait_for_function("() => window.copied")
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def find_wide(page: Page) -> list[str]:
    """What a page must be moved sideways for."""
    found: list[str] = page.evaluate(
        "(() => { const { scrollWidth, clientWidth } = document.documentElement;"
        " if (scrollWidth <= clientWidth) return [];"
        " return [...document.querySelectorAll('main *')]"
        ".filter(each => each.getBoundingClientRect().right > clientWidth)"
        ".map(each => each.outerHTML.slice(0, 200)); })()"
    )
    return found
