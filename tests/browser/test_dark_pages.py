"""The dashboard in the dark, on a screen and on a phone, with an inbox in which nearly all has happened."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from werkzeug.serving import make_server

import billhook
from billhook.clock import FrozenClock, SystemClock
from support.browser import WatchedPage
from support.rich_inbox import HOUR, RichSite, rich_site
from support.runs import at

STYLE = Path(billhook.__file__).parent / "pages" / "assets" / "style.css"
WIDTHS = (1280, 390)
STATES = ("dead", "retrying", "quarantined", "paused", "running", "waiting", "done", "erased")


class Served(NamedTuple):
    """The site, and where a server has it."""

    site: RichSite
    origin: str


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    clock = FrozenClock(at(-21 * HOUR))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SystemClock, "now", staticmethod(clock.now))
        site = rich_site(tmp_path_factory.mktemp("rich"), clock)
        site.do("workers/hold", owner="held", why="its disk is replaced")
        server = make_server("127.0.0.1", 0, site.app, threaded=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield Served(site, f"http://127.0.0.1:{server.port}")
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def watched(browser, served) -> Iterator[WatchedPage]:
    made = WatchedPage(browser, served.origin)
    yield made
    made.close()


def some_of_each(site: RichSite) -> Iterator[str]:
    """The pages, of deliveries, issues and handlers one in each state."""
    yield from (
        f"/billhook/{name}" for name in ("", "deliveries", "failures", "workers", "actions", "health")
    )
    yield from (f"/billhook/deliveries/{site.ids(f'state={state}')[0]}" for state in STATES)
    issues = {one.state: one for one in site.found()}
    yield from (f"/billhook/failures/{one.id}" for one in issues.values())
    handlers = re.findall(r'href="(/billhook/handler\?name=[^"#]+)"', site.get("handlers").text)
    yield from ("/billhook/handlers", *map(html.unescape, handlers[:2]))


def test_each_page_is_readable_in_the_dark(watched, served):
    looked_at = 0
    for path in some_of_each(served.site):
        for width in WIDTHS:
            watched.visit(path, width=width, dark=True)
            looked_at += 1

            assert watched.overflow() <= 0, (path, width)
            assert watched.serious_violations() == [], (path, width)
    assert looked_at > 40
    assert watched.complaints == []


def row(watched: WatchedPage, page: str, name: str, width: int) -> str:
    """What is seen of the row of a table that has this name."""
    watched.page.set_viewport_size({"width": width, "height": 900})
    watched.page.goto(f"/billhook/{page}")
    return " ".join(watched.page.locator(f"tr:has-text('{name}')").first.inner_text().split())


@pytest.mark.parametrize(
    ("page", "name", "shown"),
    [
        ("handlers", "shop.crm.greet", "just now: the CRM is closed until Monday"),
        ("workers", "pid 4712", "just now: its disk is replaced"),
        ("workers", "pid 4713", "9 min ago"),
    ],
)
def test_why_nothing_runs_is_seen_once_on_a_screen_and_on_a_phone(watched, page, name, shown):
    assert [row(watched, page, name, width).count(shown) for width in WIDTHS] == [1, 1]


def test_a_phone_shows_how_many_runs_of_a_handler_are_dead(watched):
    watched.page.set_viewport_size({"width": 390, "height": 900})
    watched.page.goto("/billhook/handlers")

    shown = watched.page.locator("td[data-label=dead]:visible")

    assert shown.all_inner_texts() == ["3", "3"]


def test_buttons_of_a_table_begin_at_the_same_height_in_their_rows(watched):
    watched.page.set_viewport_size({"width": 1280, "height": 900})
    watched.page.goto("/billhook/workers")

    from_the_top = watched.page.evaluate("""
        [...document.querySelectorAll("td.bare")].map((cell) => {
            const button = cell.querySelector("summary, button");
            return Math.round(button.getBoundingClientRect().top - cell.getBoundingClientRect().top);
        })
    """)

    assert len(from_the_top) > 1
    assert max(from_the_top) - min(from_the_top) <= 1


def luminance(color: str) -> float:
    """The relative luminance of `#rrggbb`. Source: WCAG 2.2, "relative luminance"."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours. Source: WCAG 2.2, "contrast ratio"."""
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def colors(watched: WatchedPage, scheme: str) -> dict[str, Any]:
    """The named colours of the style sheet, as `#rrggbb`."""
    watched.page.emulate_media(color_scheme=scheme)
    watched.page.goto("/billhook/health")
    names = sorted(set(re.findall(r"--([a-z-]+): #", STYLE.read_text())))
    found = watched.page.evaluate(
        "(names) => names.map(each => getComputedStyle(document.documentElement)"
        ".getPropertyValue('--' + each).trim())",
        names,
    )
    return {
        name: re.sub("^#(.)(.)(.)$", r"#\1\1\2\2\3\3", value)
        for name, value in zip(names, found, strict=True)
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_stands_side_by_side_in_a_chart_is_told_apart(watched, scheme):
    named = colors(watched, scheme)

    # A failed attempt and a dead run, a retried run and one that is paused: both are of the same hue.
    assert contrast(named["warn"], named["warn-fill"]) > 2
    fills = [name for name in named if name.endswith("-fill")]
    assert len(fills) == 7
    if scheme == "dark":
        faint = [name for name in fills if contrast(named[name], named["surface"]) < 3]
        assert faint == []
