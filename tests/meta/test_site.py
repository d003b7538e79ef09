"""The site is built without a warning, from every page, and each of its links leads somewhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from billhook.events import EVENT_TYPES
from support.browser import chromium
from support.pages import PAGES, ROOT
from support.processes import run_command

NO_PAGES = {".github/PULL_REQUEST_TEMPLATE.md"}


class Page(HTMLParser):
    """The links of a page, the files that it shows, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.targets |= {value for name in ("href", "src", "srcset") if (value := given.get(name))}
        if anchor := given.get("id"):
            self.anchors.add(anchor)


def broken(site: Path, pages: dict[Path, Page]) -> Iterator[tuple[str, str]]:
    """Each page with a target that is not there, or a fragment that the target page does not have."""
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = there / "index.html" if there.is_dir() else there
            anchors = pages[there].anchors if there in pages else {parts.fragment}
            if not there.is_file() or (parts.fragment and unquote(parts.fragment) not in anchors):
                yield path.relative_to(site).as_posix(), target


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder of the built site."""
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site").resolve()
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "deploy/site", "."]
    done = run_command([*command, str(folder / "site"), "-d", str(folder / "doctrees")], cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "site"


@pytest.mark.slow
def test_the_site_has_every_page_and_no_broken_link(site):
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    built = {path.relative_to(site).with_suffix(".md").as_posix() for path in pages}
    assert PAGES.keys() - built == NO_PAGES
    assert list(broken(site, pages)) == []
    reference = pages[site / "deploy/site/REFERENCE.html"]
    assert {name.lower() for name in EVENT_TYPES} <= reference.anchors
    assert {"billhook.Handlers.on", "billhook.Delivery.once", "billhook.testing.Deliver"} <= reference.anchors
    assert (site / "searchindex.js").is_file()
    text = re.sub(r"<[^>]+>", "", (site / "deploy/site/REFERENCE.html").read_text(encoding="utf-8"))
    assert "once(transaction: Transaction) → bool" in unescape(text)


@pytest.mark.slow
def test_no_line_of_code_is_cut_off(site):
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"file://{site}/README.html")
        blocks = "[...document.querySelectorAll('.highlight pre')]"
        cut = page.evaluate(f"{blocks}.filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)")

        assert cut == []
        assert page.evaluate(f"{blocks}.length") > 10


def test_control_a_broken_link_and_a_broken_anchor_are_noticed(tmp_path):
    one, other = tmp_path / "one.html", tmp_path / "other.html"
    one.write_text(
        '<a href="other.html#here"><a href="other.html#gone"><img src="gone.png"><a href="https://x">'
    )
    other.write_text('<h1 id="here"><a href="#here"><a href="">')

    pages = {path: Page(path.read_text()) for path in (one, other)}

    assert sorted(broken(tmp_path, pages)) == [("one.html", "gone.png"), ("one.html", "other.html#gone")]
