"""A real browser, headless Chromium, that looks at the page of a node, and what it did that a page must not do."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is missing (Debian's package chromium)")
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_SECONDS = 120.0  # to fail after: a browser starts some processes first


@dataclass
class Look:
    """A page that is open in a browser. ``problems`` are what the console told of, ``elsewhere`` requests to others."""

    page: Page
    address: str
    problems: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def go(self, view: str) -> None:
        """Show a view, as ``cache/some/path``; return when it is there."""
        self.page.goto(f"{self.address}#{view}")
        self.page.wait_for_selector("#state:text-is('connected')")

    def text(self) -> str:
        """Return what can be read in the view."""
        return self.page.inner_text("#content")

    def wait_for(self, text: str) -> None:
        """Wait until ``text`` can be read somewhere on the page."""
        self.page.wait_for_selector(f":text({text!r}):visible")

    def check(self) -> None:
        """Complain about what a page must not do."""
        assert self.problems == []
        assert self.elsewhere == []

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(self.address.removesuffix("/ui/")):
            self.elsewhere.append(request.url)


@contextmanager
def browsing() -> Iterator[Browser]:
    """Start the browser; end it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def looking(browser: Browser, address: str, *, scheme: str = "light") -> Iterator[Look]:
    """Open the page at ``address``; close it."""
    context = browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light", viewport={"width": 1440, "height": 900}
    )
    context.set_default_timeout(_SECONDS * 1000)
    try:
        look = Look(context.new_page(), address)
        look.page.on("console", look._heard)
        look.page.on("pageerror", lambda problem: look.problems.append(str(problem)))
        look.page.on("request", look._asked)
        yield look
    finally:
        context.close()


@contextmanager
def page_server(socket: Path, *arguments: str) -> Iterator[str]:
    """Run ``holdfast ui``; yield the address that it prints; end it with Ctrl-C."""
    command = [sys.executable, "-P", "-m", "holdfast", "ui", "--no-open", "--socket", str(socket), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}) as process:
        try:
            assert process.stdout is not None
            ready, _, _ = select.select([process.stdout], [], [], _SECONDS)
            line = process.stdout.readline().decode() if ready else ""
            found = re.search(r"http://\S+", line)
            assert found, f"{line!r}, and nothing more was said"
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(_SECONDS)
