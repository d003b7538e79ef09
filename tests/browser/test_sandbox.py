"""The sandbox's pages in Chromium: they hold their policy, fit narrow windows, and are for everyone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from billhook.sandbox.scenario import run_scenario
from support.browser import WatchedPage
from support.receivers import Receiver, receiving
from support.sandbox import API_TOKEN, START, Running, running
from support.sandbox_pages import form

pytestmark = pytest.mark.slow
HOSTILE = "<script>alert(1)</script><img src=https://evil.example/x onerror=alert(2)>\u202e"
LISTS = (
    "/pages/", "/pages/timeline", "/pages/customers", "/pages/contracts", "/pages/invoices",
    "/pages/trigger", "/pages/webhooks", "/pages/api",
    *(f"/pages{form(key)}" for key in (
        "POST /contracts", "POST /v2/events", "POST /_sandbox/customers", "POST /_sandbox/meters",
        "POST /_sandbox/trigger/{eventType}",
    )),
)  # fmt: skip
FIRST_OF = {
    "/pages/timeline": ".events td a",
    "/pages/customers": ".data td a",
    "/pages/contracts": ".data td a",
    "/pages/invoices": ".data td a",
}
"""Lists whose first link leads to a page of its own."""


@pytest.fixture(scope="module")
def demo(browser: Any) -> Iterator[tuple[Running, Receiver]]:
    """A sandbox in which everything has happened, some of it hostile."""
    with running() as sandbox, receiving(500, 503) as receiver:
        receiver.body = HOSTILE.encode()
        for _ in run_scenario(sandbox.sandbox.call, receiver.url, START):
            sandbox.token = ""
        sandbox.ok("POST", "/_sandbox/customers", {"name": HOSTILE[:80], "legalName": HOSTILE * 5000})
        sandbox.ok("POST", "/_sandbox/faults", {"fault": "lose", "probability": 0.5})
        sandbox.ok("POST", "/_sandbox/trigger/PaymentFailed", {"failureReason": HOSTILE})
        sandbox.ok("POST", "/_sandbox/flush")
        yield sandbox, receiver


@contextmanager
def watched(browser: Any, origin: str, **options: Any) -> Iterator[WatchedPage]:
    """A tab of a new profile."""
    visit = WatchedPage(browser, origin, **options)
    try:
        yield visit
    finally:
        visit.close()


def log_in(visit: WatchedPage) -> None:
    """By the keyboard alone."""
    keys = visit.page.keyboard
    visit.page.goto("/")
    visit.page.wait_for_function("document.activeElement.name === 'client_id'")
    keys.type("sandbox")
    keys.press("Tab")
    keys.type(API_TOKEN)
    with visit.page.expect_navigation():
        keys.press("Enter")


def addresses(visit: WatchedPage) -> list[str]:
    """Every page of the demo: the login, the lists, one of each kind, and the invoice to print."""
    found = ["/pages/login", *LISTS]
    for path, selector in FIRST_OF.items():
        visit.page.goto(path)
        found.append(str(visit.page.locator(selector).first.get_attribute("href")))
    visit.page.goto(found[-1])
    return [*found, str(visit.page.get_by_text("Print view").get_attribute("href"))]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (320, "dark")])
def test_every_page_keeps_to_itself_fits_the_window_and_keeps_no_one_out(
    browser: Any, demo: tuple[Running, Receiver], width: int, scheme: str
) -> None:
    sandbox, _ = demo
    with watched(browser, sandbox.url) as visit:
        log_in(visit)
        paths = addresses(visit)
        statuses, wide, faults = {}, {}, []
        for path in paths:
            statuses[path] = visit.visit(path, width=width, dark=scheme == "dark").status
            wide[path] = visit.overflow()
            faults += [f"{path}: {fault}" for fault in visit.serious_violations()]

    assert len(paths) == 19
    assert set(statuses.values()) == {200}
    assert [path for path, pixels in wide.items() if pixels > 0] == []
    assert faults == []
    assert visit.complaints == []


def test_the_keyboard_reaches_every_action(browser: Any, demo: tuple[Running, Receiver]) -> None:
    sandbox, _ = demo
    missed = {}
    with watched(browser, sandbox.url) as visit:
        log_in(visit)
        for path in addresses(visit):
            visit.page.goto(path)
            reached, actions = visit.tabbed(2_000), visit.actions()
            missed[path] = [one for one in actions if one not in reached]
            assert len(actions) > 1 or path.startswith("/_sandbox/pages/")

    assert {path: actions for path, actions in missed.items() if actions} == {}


def test_a_stranger_comes_to_an_invoice_by_forms_with_scripts_off(browser: Any) -> None:
    with running() as sandbox, watched(browser, sandbox.url, java_script_enabled=False) as visit:
        page = visit.page
        page.goto(sandbox.sandbox.login_address(sandbox.url))
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name="Customer", exact=True).click()
        page.locator("[name=name]").press("Enter")
        for key in ("POST /catalogProducts", "POST /_sandbox/meters"):
            page.goto("/pages/api")
            page.get_by_role("link", name=f"Form of {key}", exact=True).click()
            if "Products" in key:
                page.fill("[name=name]", "API calls")
            page.locator("[name=name]").press("Enter")  # as the button does, though others come before it
        page.goto("/pages/contracts")
        page.get_by_role("link", name="New contract").click()
        page.select_option("[name=customerId]", label="Acme Ltd")
        page.locator("button.primary:visible").click()
        contract = page.get_by_role("heading", level=1).inner_text()
        page.goto("/pages/customers")
        page.get_by_role("link", name="Acme Ltd").click()
        page.get_by_role("link", name="Send usage").click()
        page.fill("[name='events.0.data']", '{"units": 150}')
        page.locator("button.primary:visible").click()
        page.goto("/pages/")
        cycle = page.get_by_role("row").filter(has_text="cycle end")
        cycle.get_by_role("button", name="Go to this moment").click()
        page.goto("/pages/invoices")
        shown = page.locator("table.data tbody tr").inner_text()

    assert contract == "Contract"
    assert "Acme Ltd" in shown
    assert "150.00 USD" in shown
    assert visit.complaints == []


# --- that the checks can fail -----------------------------------------------------------------------


def test_a_breach_of_the_policy_would_be_noticed(browser: Any) -> None:
    for content in (
        "<script>1</script>",
        '<p style="color: red">x</p>',
        '<img alt="x" src="http://127.0.0.1:9/x.png">',
    ):
        with page_server(content) as origin, watched(browser, origin) as visit:
            visit.page.goto("/")

        assert any("Content Security Policy" in one for one in visit.complaints), content


def test_faults_of_a_page_would_be_noticed(browser: Any) -> None:
    content = '<input name="a"><pre>' + "x" * 500 + '</pre><a href="/b" tabindex="-1">b</a>'
    with page_server(content, policy="default-src *") as origin, watched(browser, origin) as visit:
        visit.visit("/", width=320)
        wide, faults = visit.overflow(), visit.serious_violations()
        missed = set(visit.actions()) - set(visit.tabbed())
        visit.page.evaluate("fetch('http://127.0.0.1:9/', {mode: 'no-cors'}).catch(() => null)")
        visit.page.evaluate("alert('asked')")

    assert "dialog: asked" in visit.complaints
    assert wide > 0
    assert any(one.startswith("label: ") for one in faults)
    assert missed == {"a  /b b"}
    assert any(one.startswith("request") and "127.0.0.1:9" in one for one in visit.complaints)


@contextmanager
def page_server(content: str, policy: str = "default-src 'none'") -> Iterator[str]:
    """Serve one page with a policy, at every address; gives the origin."""
    body = f'<!doctype html><html lang="en"><title>t</title><link rel="icon" href="data:,"><main>{content}'

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Security-Policy", policy)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
