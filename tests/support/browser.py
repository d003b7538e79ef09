"""A browser that watches what pages do: which requests they send, and what their own policy refuses."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.postgres import STARTED_WITH, required, unavailable

NAMES = ("chromium", "chromium-browser", "google-chrome")
_REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", event =>
    console.error("CSP: " + event.violatedDirective + " " + event.blockedURI))
"""
_AXE = "async () => (await axe.run(document, {preload: false, resultTypes: ['violations']})).violations"

_TO_THE_TOP = "document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex')"
_DESCRIBE = """
const target = (element) => ["action", "href"].map((name) => element.getAttribute(name)).find(Boolean)
    || element.form?.getAttribute("action") || "";
const describe = (element) => element === document.body ? "body"
    : [element.tagName.toLowerCase(), element.name || "", target(element), element.innerText || ""].join(" ")
"""
_ACTIONS = """
[...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")]
    .filter((element) => element.checkVisibility()).map(describe)
"""


@contextmanager
def chromium() -> Iterator[Any]:
    """Debian's chromium under Playwright; the test is skipped where there is none."""
    path = STARTED_WITH.get("BILLHOOK_TEST_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        unavailable("no chromium: apt-get install chromium, or set BILLHOOK_TEST_CHROMIUM")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        unavailable("no playwright: pip install 'billhook[test]'")
    # chromium refuses to run as root with its sandbox, which a test of our own pages does not need.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()


class WatchedPage:
    """A page in a context of its own; `complaints` is what it did that none of ours may do."""

    def __init__(self, browser: Any, origin: str, **options: Any) -> None:
        self.origin = origin
        self.complaints: list[str] = []
        self.context = browser.new_context(base_url=origin, **options)
        self.page = self.context.new_page()
        self.page.add_init_script(_REPORT_VIOLATIONS)
        self.page.on("request", self._requested)
        self.page.on("console", lambda message: self._complain(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", self._asked)
        self.page.on("popup", lambda _: self.complaints.append("opened a window"))

    def _requested(self, request: Any) -> None:
        there = urlsplit(request.url)
        if f"{there.scheme}://{there.netloc}" != self.origin:
            self.complaints.append(f"request: {request.url}")

    def _complain(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def _asked(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def visit(self, path: str, *, width: int = 1280, dark: bool = False) -> Any:
        """Load a page, every fold of it opened; returns the response."""
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme="dark" if dark else "light")
        response = self.page.goto(path, wait_until="load")
        self.page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        return response

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        width: int = self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return width

    def serious_violations(self) -> list[str]:
        """What axe finds of the kinds serious and critical: rule, and where."""
        self.page.evaluate(Path(required("BILLHOOK_TEST_AXE", "axe-core")).read_text(encoding="utf-8"))
        found = self.page.evaluate(_AXE)
        return [
            f"{one['id']}: {json.dumps(one['nodes'][0]['target'])} {one['nodes'][0]['html'][:200]} "
            f"{one['nodes'][0]['failureSummary']}"
            for one in found
            if one["impact"] in ("serious", "critical")
        ]

    def tab_to(self, selector: str) -> None:
        """Move the focus by the Tab key to the first element that the selector names."""
        wanted = self.page.locator(selector).first
        for _ in range(250):
            self.page.keyboard.press("Tab")
            if wanted.evaluate("element => element === document.activeElement"):
                return
        raise AssertionError(f"the Tab key does not lead to {selector}")

    def tabbed(self, most: int = 400) -> list[str]:
        """Press Tab from the top of the page to its end; what had the focus, as `actions` has it."""
        self.page.evaluate(_TO_THE_TOP)  # a page may begin with the focus on a field
        reached: list[str] = []
        for _ in range(most):
            self.page.keyboard.press("Tab")
            focused = self.page.evaluate(f"{_DESCRIBE}; describe(document.activeElement)")
            if focused == "body":
                return reached
            reached.append(focused)
        raise AssertionError(f"the focus goes in circles: {reached[-5:]}")

    def actions(self) -> list[str]:
        """All that is to be clicked or filled in, as tag, name, target and text, in the order of the page."""
        return list(self.page.evaluate(f"{_DESCRIBE}; {_ACTIONS}"))

    def close(self) -> None:
        """Close the context."""
        self.context.close()
