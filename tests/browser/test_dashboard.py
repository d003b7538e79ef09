"""The dashboard in a real browser, standalone under gunicorn, with deliveries that were sent to do harm."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from billhook.extension import get_state
from billhook.extension.state import BillhookState
from billhook.inbox import WorkerRecord
from billhook.inbox.watching.issue_updates import update_issues
from billhook.standalone import create_app
from support.browser import WatchedPage
from support.inbox_view import change
from support.server import Server, gunicorn
from support.signing import APPROVED, SECRET, signed

pytestmark = pytest.mark.slow

HOSTILE = '"><script>alert(1)</script><svg/onload=alert(2)><img src=x onerror=alert(3)>\u202etxt.exe\u2066'
PASSWORD = "a long enough password"
HANDLERS = """
from billhook import Handlers
handlers = Handlers()

@handlers.on_any(name="shop.book", timeout_seconds=30)
def book(event):
    raise KeyError(HOSTILE if hasattr(event, "invoice_id") and event.invoice_id != "inv_1" else "no ledger")

@handlers.on_any(name="shop.mail")
def mail(event): ...

HOSTILE = %r
"""
PAGES = {
    "overview": "/billhook/",
    "30 days": "/billhook/?range=30d",
    "deliveries": "/billhook/deliveries",
    "filters": "/billhook/deliveries?state=retrying&error=%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
    "hostile delivery": "/billhook/deliveries/1",
    "quarantined delivery": "/billhook/deliveries/2",
    "long value": "/billhook/deliveries/7",
    "failures": "/billhook/failures",
    "handlers": "/billhook/handlers",
    "handler": "/billhook/handler?name=shop.book",
    "last hour": "/billhook/?range=1h",
    "actions": "/billhook/actions",
    "workers": "/billhook/workers",
    "health": "/billhook/health",
    "not found": "/billhook/deliveries/999",
}


def opened(environ: dict[str, str]) -> BillhookState:
    """The state of an app on the same inbox, to be closed."""
    return get_state(create_app(environ))


@pytest.fixture(scope="module")
def served_with(tmp_path_factory) -> Iterator[tuple[Server, dict[str, str]]]:
    """The standalone app and its options: a hostile delivery, a broken one, and some that fail."""
    folder: Path = tmp_path_factory.mktemp("dashboard")
    (folder / "shop.py").write_text(HANDLERS % HOSTILE)
    users = folder / "users.txt"
    users.write_text(f"alice:{PASSWORD}\n")
    users.chmod(0o600)
    options = {
        "BILLHOOK_DASHBOARD": str(users),
        "BILLHOOK_HANDLERS": str(folder / "shop.py"),
        "BILLHOOK_MAX_BODY_BYTES": "3000000",
    }
    with gunicorn(folder, door="asgi", **options) as server:
        environ = {**options, "BILLHOOK_SECRETS": SECRET, "BILLHOOK_ENGINE": "worker"}
        environ["BILLHOOK_INBOX_URL"] = f"sqlite:///{server.inbox}"
        app = create_app(environ)
        state = get_state(app)
        harm = {
            "date": "2026-01-15T09:30:00Z",
            "invoiceId": HOSTILE,
            HOSTILE: HOSTILE,
            "long": "x" * 1_000_000,
        }
        client, body = app.test_client(), json.dumps(harm).encode()
        headers = {f"X-Custom-{number}": "<script>alert(4)</script>" for number in range(200)}
        for sent, event_type in (
            (body, "InvoiceApproved"),
            (b'{"a": <script>', "PingTest"),
            *[(APPROVED, "InvoiceApproved")] * 4,
            (APPROVED.replace(b"inv_1", b"value_without_a_break_" * 40), "InvoiceApproved"),
        ):
            client.post("/webhooks/billing", data=sent, headers={**headers, **signed(sent, event_type)})
        state.handle_due()
        update_issues(state.inbox, state.dispatcher.clock.now())
        state.inbox.pause_handler("shop.mail", HOSTILE, state.dispatcher.clock.now())
        started = state.dispatcher.clock.now() - timedelta(hours=2)
        worker = WorkerRecord("first", "worker", 2, started, host="billing-7", pid=4711, threads=6)
        state.inbox.record_worker(worker, started)
        change(server.inbox, "UPDATE billhook_worker SET stopped_at = seen_at")
        state.close()
        yield server, environ


@pytest.fixture
def served(served_with) -> Server:
    return served_with[0]


@pytest.fixture
def open_page(browser, served) -> Iterator[Any]:
    opened: list[WatchedPage] = []

    def make(*, live: bool = False, **options: Any) -> WatchedPage:
        login = {"username": "alice", "password": PASSWORD}
        opened.append(
            WatchedPage(browser, f"http://127.0.0.1:{served.port}", http_credentials=login, **options)
        )
        if not live:  # a page stays as it is while it is examined
            opened[-1].page.add_init_script("sessionStorage.setItem('billhook-live', 'off')")
        return opened[-1]

    yield make
    for page in opened:
        page.close()


def without_the_challenge(complaints: list[str]) -> list[str]:
    """What is left without the answers 401 and 404, which chromium's console tells of."""
    return [each for each in complaints if not re.search(r"status of (401|404)", each)]


def test_each_page_is_inert_readable_on_any_screen_and_accessible(open_page):
    watched = open_page()
    watched.page.goto(PAGES["failures"])
    issue = watched.page.locator("tr a:has-text('KeyError')").first.get_attribute("href")

    for name, path in {**PAGES, "issue": issue}.items():
        for width, dark in ((1280, False), (320, True)):
            watched.visit(path, width=width, dark=dark)

            assert watched.overflow() <= 0, name
            assert watched.serious_violations() == [], name
        assert without_the_challenge(watched.complaints) == [], name


JOURNEYS = [
    # Failures: look at an issue, replay its deliveries at a rate, acknowledge it.
    ("/billhook/", "Replayed: 6 runs are due again.", [
        "nav a:has-text('Failures')", "tr a:has-text('KeyError')",
        "summary:has-text('Replay')", ("input[name=rate]", "1000"),
    ]),
    ("", "The issue is acknowledged.", [
        "summary:has-text('Acknowledge')", ("input[name=why]", "ticket 7"),
    ]),
    # Handlers: pause one for a reason, resume it.
    ("", "shop.book is paused", [
        "nav a:has-text('Handlers')", "tr a:has-text('shop.book')",
        "summary:has-text('Pause')", ("input[name=why]", "the ledger is closed"),
    ]),
    ("", "shop.book is resumed.", ["button:has-text('Resume')"]),
    # Deliveries: filter, count, replay.
    ("", "1 delivery is read again", [
        "nav a:has-text('Deliveries')", "summary:has-text('Filter')",
        ("input[name=type]", "PingTest"), "button:has-text('Replay all 1')",
        "button:text-is('Replay')",
    ]),
    # One delivery: discard it for a reason, erase it.
    ("/billhook/deliveries/6", "Discarded", [
        "summary:has-text('Discard')", ("input[name=reason]", "by hand"),
    ]),
    ("", "Erased", ["summary:has-text('Erase')", "button:has-text('Erase body')"]),
]  # fmt: skip
"""Where each begins, unless where the one before ended; its notice; what is reached by Tab, filled in, and
followed by Enter."""


def test_every_action_is_reached_by_keyboard_without_scripts(open_page):
    watched = open_page(java_script_enabled=False)

    for start, notice, steps in JOURNEYS:
        if start:
            watched.page.goto(start)
        for step in steps:
            selector, text = step if isinstance(step, tuple) else (step, "")
            watched.tab_to(selector)
            watched.page.keyboard.type(text)
            watched.page.keyboard.press("Enter")
        watched.page.get_by_role("status").get_by_text(notice).wait_for()

    assert without_the_challenge(watched.complaints) == []


def test_the_marked_deliveries_are_counted_on_the_button_and_on_the_page_that_asks(open_page):
    watched = open_page(java_script_enabled=False)
    page = watched.page
    page.goto("/billhook/deliveries")

    button = page.get_by_role("button", name="Replay selected", exact=True)
    looks = [button.screenshot()]
    for number in (4, 5):
        page.get_by_label(f"delivery {number}").check()
        looks.append(button.screenshot())
    assert len(set(looks)) == 3  # the number on the button is from the style sheet
    button.click()
    page.get_by_role("heading", name="Replay 2 deliveries?").wait_for()


def test_a_form_of_another_origin_changes_nothing(open_page, served):
    watched = open_page()
    watched.visit(PAGES["handler"])
    token = watched.page.locator("input[name=csrf_token]").first.get_attribute("value")
    form = (
        f'<form method="post" action="http://127.0.0.1:{served.port}/billhook/handlers/pause">'
        f'<input name="csrf_token" value="{token}"><input name="handler" value="shop.book">'
        "<button>Go</button></form>"
    )
    # The browser's own login and cookies; only the page is another's: localhost is not 127.0.0.1.
    watched.page.route(
        "http://localhost:1/*", lambda route: route.fulfill(body=form, content_type="text/html")
    )
    watched.page.goto("http://localhost:1/evil")

    with watched.page.expect_response("**/handlers/pause") as answered:
        watched.page.get_by_role("button").click()

    assert answered.value.status == 403
    watched.visit(PAGES["handlers"])
    assert "shop.book" not in watched.page.locator("tr:has-text('paused')").all_inner_texts()[0]


def test_the_whole_row_is_a_link_and_what_else_is_in_it_is_not(open_page):
    watched = open_page(viewport={"width": 390, "height": 900})
    page = watched.page
    page.goto("/billhook/deliveries")
    row = page.locator("tr", has=page.get_by_label("delivery 3"))
    # A card of two lines, and one for the error.
    assert row.bounding_box()["height"] < 120

    page.get_by_label("delivery 3").check()
    row.locator("td.age").click(force=True)  # the link lies over it

    page.get_by_role("heading", name="Delivery 3").wait_for()
    page.get_by_role("link", name="Previous").click()
    page.get_by_role("heading", name="Delivery 4").wait_for()


CRUSHED = """
[...document.querySelectorAll("td:not(.n, .pick, .bare)")].filter((one) => one.checkVisibility()
    && one.innerText.length > 5 && one.getBoundingClientRect().width < 60).map((one) => one.innerText)
"""
"""The texts of cells that are too narrow to be read; a short word needs little room."""


def test_each_tab_is_seen_on_a_phone_and_no_table_is_crushed_on_a_tablet(open_page):
    watched = open_page()

    watched.visit(PAGES["overview"], width=390)
    tabs = watched.page.locator("nav[aria-label=Pages] a").all()
    assert len(tabs) > 5
    assert all(
        box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in (one.bounding_box() for one in tabs)
    )
    for width in (768, 820, 1024, 1440):
        for name in ("deliveries", "long value", "failures", "handlers", "actions", "workers"):
            watched.visit(PAGES[name], width=width)
            assert watched.overflow() <= 0, (name, width)
            assert watched.page.evaluate(CRUSHED) == [], (name, width)


FIRST_ACTION = """
Math.min(...[...document.querySelectorAll("main :is(button, .button, .act > summary)")]
    .filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect().bottom))
"""
BROKEN_NAMES = """
[...document.querySelectorAll("td .name, h1 .name, .lane-name .name")].filter((one) => {
    const lines = [...one.querySelectorAll("bdi")].map((part) => part.getClientRects().length);
    return lines.some((number) => number > 1) && one.parentElement.clientWidth > 300;
}).map((one) => one.innerText)
"""
"""Names of which a part between two dots is on two lines, though there is room."""


def test_on_a_phone_what_can_be_done_is_on_the_first_screen(open_page):
    watched = open_page(viewport={"width": 390, "height": 844})
    watched.page.goto(PAGES["failures"])
    issue = watched.page.locator("tr a:has-text('KeyError')").first.get_attribute("href")

    for name in ("overview", "deliveries", "hostile delivery", "quarantined delivery", "handler"):
        watched.page.goto(PAGES[name])
        assert watched.page.evaluate(FIRST_ACTION) <= 844, name
    watched.page.goto(issue)
    assert watched.page.evaluate(FIRST_ACTION) <= 844


def test_names_are_broken_at_their_dots_alone(open_page):
    watched = open_page()

    for width, name in product((1280, 768, 390), ("overview", "handlers", "failures", "handler")):
        watched.visit(PAGES[name], width=width)
        assert watched.page.evaluate(BROKEN_NAMES) == [], (width, name)


CUT = """
[...document.querySelectorAll("td.cut:not(.error) > *")].filter((one) => one.checkVisibility()
    && (one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 4))
    .map((one) => one.innerText)
"""
"""Texts of a list that are cut, but for the errors, which get what the others leave."""
LONG = """
const texts = {title: "CurrencyCommitmentUsageCrossed", about: "cus_1042 inv_300712 1249.90",
               runs: "book_invoice_or_payment dead", error: ERROR};
const cell = (row, name) => row.querySelector(`td.${name} > *`);
const rows = [...document.querySelectorAll("tbody tr")];
const row = rows.find((row) => Object.keys(texts).every((name) => cell(row, name)));
for (const name in texts) cell(row, name).textContent = texts[name];
"""
"""Gives a delivery long names and an ERROR."""


def test_the_list_cuts_no_name_and_no_key_where_another_column_has_room(open_page):
    watched = open_page(bypass_csp=True)

    for error in ("KeyError: 'b'", "no route to host, " * 30):
        watched.visit("/billhook/deliveries?search=inv_1", width=1280)
        watched.page.evaluate(LONG.replace("ERROR", json.dumps(error)))

        assert watched.page.evaluate(CUT) == [], error
        assert watched.overflow() <= 0


UNLABELLED = """
[...document.querySelectorAll(".brief td")].filter((one) => one.checkVisibility()
    && /^[0-9.,]+( %| m?s)?$/.test(one.innerText.trim())
    && !getComputedStyle(one, "::before").content.match(/"[a-z]/))
    .map((one) => one.closest("tr").innerText)
"""


def test_on_a_phone_each_number_has_a_label(open_page):
    watched = open_page()

    for name in ("overview", "handlers", "workers", "actions", "failures", "hostile delivery"):
        watched.visit(PAGES[name], width=390)
        assert watched.page.evaluate(UNLABELLED) == [], name


def test_one_box_marks_all_rows_and_without_scripts_it_is_not_shown(open_page):
    watched, plain = open_page(), open_page(java_script_enabled=False)
    for each in (watched, plain):
        each.page.goto(PAGES["deliveries"])

    watched.page.get_by_label("Select all on this page").check()
    marked = watched.page.locator(".pick :checked").count()
    watched.page.get_by_label("Select all on this page").uncheck()

    assert marked == watched.page.locator("tbody tr").count() > 1
    assert watched.page.locator(".pick :checked").count() == 0
    assert plain.page.locator(".all").is_hidden()


def test_the_link_to_log_out_has_the_browser_ask_again(open_page):
    watched = open_page()
    watched.page.goto(PAGES["overview"])

    with watched.page.expect_response("**/log-out") as answered:
        watched.page.get_by_role("link", name="Log out").click()

    assert answered.value.status == 401


# --- live ---------------------------------------------------------------------------------------------

REFRESH = "document.dispatchEvent(new Event('visibilitychange'))"


def refreshed(page: Any) -> None:
    """Have the page refresh itself now, and wait for it."""
    page.evaluate("document.querySelector('main').firstElementChild.dataset.old = 'yes'")
    page.evaluate(REFRESH)
    page.locator("[data-old]").wait_for(state="detached")


def test_a_page_refreshes_itself_and_keeps_what_its_visitor_did(open_page, served):
    watched = open_page(live=True, viewport={"width": 1280, "height": 300})
    page = watched.page
    page.goto("/billhook/deliveries")
    before = page.locator("tbody tr").count()
    page.locator("summary:has-text('As a command')").click()
    page.get_by_label("delivery 4").check()
    page.get_by_role("link", name="PingTest").first.focus()
    place = page.get_by_label("delivery 1").bounding_box()

    assert served.post(APPROVED, signed(APPROVED, "InvoiceApproved")).status == 200
    refreshed(page)

    assert page.locator("tbody tr").count() == before + 1
    assert [one.get_attribute("value") for one in page.locator(".pick :checked").all()] == ["4"]
    assert page.locator("details[open] summary").all_inner_texts() == ["As a command"]
    assert "PingTest" in page.evaluate("document.activeElement.textContent")
    assert page.get_by_label("delivery 1").bounding_box()["y"] == pytest.approx(place["y"], abs=2)
    assert page.get_by_role("button", name="Live", pressed=True).count() == 1

    # Of texts that were sent to do harm nothing runs when they come by the script.
    page.goto(PAGES["hostile delivery"])
    refreshed(page)
    assert "<script>alert(1)" in page.locator("main").inner_text()
    assert without_the_challenge(watched.complaints) == []


def test_a_page_that_is_hidden_edited_or_switched_off_stays_as_it_is(open_page):
    watched = open_page(live=True)
    page = watched.page
    page.goto("/billhook/deliveries")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/assets/" not in request.url else None)
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true})"

    page.evaluate(hide % "true")
    page.evaluate(REFRESH)
    page.evaluate(hide % "false")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")
    page.evaluate(REFRESH)
    page.evaluate("getSelection().removeAllRanges()")
    page.locator("summary:has-text('Filter')").click()
    page.locator("input[name=key]").fill("msg")
    page.evaluate(REFRESH)
    page.locator("input[name=key]").blur()
    page.evaluate(REFRESH)
    assert asked == []
    page.reload()
    asked.clear()
    page.get_by_role("button", name="Live").click()
    page.evaluate(REFRESH)

    assert asked == []
    assert page.get_by_role("button", name="Live", pressed=False).count() == 1
    page.get_by_role("button", name="Live").click()
    refreshed(page)
    assert len(asked) >= 1


def test_fifty_deliveries_are_a_line_each(open_page, served):
    for _ in range(50):
        assert served.post(APPROVED, signed(APPROVED, "InvoiceApproved")).status == 200
    watched = open_page(viewport={"width": 1440, "height": 900})

    watched.page.goto(PAGES["deliveries"])

    rows = watched.page.locator("tbody tr").all()
    assert len(rows) == 50
    assert max(one.bounding_box()["height"] for one in rows) < 30
    assert watched.page.evaluate("document.documentElement.scrollHeight") <= 1900


RED = """
() => {
    const probe = document.body.appendChild(document.createElement("i"));
    const reds = ["--bad", "--bad-fill", "--bad-back"].map((name) => {
        probe.style.color = `var(${name})`;
        return getComputedStyle(probe).color;
    });
    probe.remove();
    const looks = (one) => {
        const style = getComputedStyle(one);
        return [style.color, style.backgroundColor, style.borderLeftColor, style.fill]
            .some((one) => reds.includes(one));
    };
    return [...document.querySelectorAll("main *")].filter((one) => one.checkVisibility() && looks(one))
        .map((one) => one.tagName + "." + (one.getAttribute("class") || ""));
}
"""


def test_red_is_what_holds_of_the_highest_severity(open_page, served_with):
    server, environ = served_with
    # The pages' own policy lets no script set a style, as the probe does.
    watched = open_page(bypass_csp=True)
    state = opened(environ)
    now = state.dispatcher.clock.now()
    worker = WorkerRecord("host:1", "worker", 2, now - timedelta(days=1))
    change(server.inbox, "UPDATE run SET state = 'dead' WHERE id IN (SELECT min(id) FROM run)")
    change(server.inbox, "UPDATE delivery SET state = 'dead' WHERE id IN (SELECT min(delivery_id) FROM run)")
    change(server.inbox, "UPDATE delivery SET state = 'quarantined' WHERE id = 2")

    def red(*names: str) -> list[tuple[str, str]]:
        found = []
        for scheme, name in product(("light", "dark"), names):
            watched.page.emulate_media(color_scheme=scheme)
            watched.page.goto(PAGES[name])
            found += [(name, one) for one in watched.page.evaluate(RED)]
        return found

    state.inbox.record_worker(worker, now + timedelta(hours=1))  # seen, however long the pages take
    update_issues(state.inbox, now)
    of_warnings = red(
        "overview", "deliveries", "hostile delivery", "failures", "handlers", "handler", "workers"
    )
    watched.page.goto(PAGES["overview"])
    told = watched.page.locator(".banner.warn").inner_text()
    state.inbox.record_worker(worker, now - timedelta(minutes=10))
    update_issues(state.inbox, now)
    of_critical = red("overview", "failures")
    state.inbox.record_worker(worker, now + timedelta(hours=1))
    state.close()

    assert "dead" in told
    assert "quarantined" in told
    assert of_warnings == []
    for one in (("overview", "P.banner bad"), ("overview", "A.figure bad"), ("failures", "SPAN.state bad")):
        assert of_critical.count(one) == 2, one
