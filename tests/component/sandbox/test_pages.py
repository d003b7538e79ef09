"""What the sandbox's pages show and do, on real databases, through forms and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser

import pytest

from billhook.events import EVENT_TYPES
from billhook.sandbox.pages.texts import SENTENCES, event_sentences
from billhook.sandbox.scenario import run_scenario
from billhook.sandbox.storage.tables import raised_event
from billhook.sandbox.webhooks import outbox
from support.receivers import Receiver, flush, receiving, subscribe
from support.sandbox import API_TOKEN, START, Running, running
from support.sandbox_pages import PagesBrowser, form, rules
from support.scenarios import contract, customer, fee, invoices, metered

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PING = "POST /_sandbox/subscriptions/{subscriptionId}/ping"
TRIGGER = "POST /_sandbox/trigger/{eventType}"
HOSTILE = "<script>alert(1)</script><svg onload=alert(2)>\"' onfocus=alert(3) &\u202e"


@pytest.fixture
def demo() -> Iterator[tuple[Running, PagesBrowser, Receiver]]:
    """A sandbox in which each of the events has happened, and a browser that is logged in."""
    with running(secrets=[SECRET]) as sandbox, receiving() as receiver:
        for _ in run_scenario(sandbox.sandbox.call, receiver.url, START):
            sandbox.token = ""
        flush(sandbox)
        yield sandbox, PagesBrowser.logged_in(sandbox), receiver


def links(page: str, pattern: str) -> list[str]:
    """The links of a page that match, below /pages, in their order."""
    return re.findall(rf'href="/pages({pattern})"', page)


def facts(page: str) -> dict[str, str]:
    """The names and values of a page's list of facts, without markup."""
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page, re.DOTALL)
    return {name: re.sub("<[^>]+>", "", value).strip() for name, value in found}


def test_the_timeline_tells_what_happened_with_names_and_amounts(
    demo: tuple[Running, PagesBrowser, Receiver],
) -> None:
    sandbox, browser, _ = demo
    told = {}
    for event_type in EVENT_TYPES:
        with sandbox.sandbox.service.transaction(writes=False) as tx:
            page = outbox.timeline(tx, 5, None, raised_event.c.event_type == event_type)
            traces = [event for group in page.items for event in group.events]
            told[event_type] = event_sentences(tx, traces)[traces[0].id]
    page = browser.get("/timeline?type=PaymentFailed").text

    assert set(SENTENCES) <= set(EVENT_TYPES)
    assert told["PaymentFailed"] == "Acme Ltd's payment of 430.00 USD failed: card_declined"
    assert told["InvoiceApproved"].endswith(" was approved")
    assert told["CreditPoolDepleted"] == "Acme Ltd has no Tokens credits left"
    assert told["ContractCreated"] == "Acme Ltd got the contract Acme by use"
    # No id is left, no field was missing, and nothing is said twice.
    assert [text for text in told.values() if re.search("[a-z]{3}_[0-9a-f]{8}|  |: $|None|of  ", text)] == []
    assert len(set(told.values())) == len(EVENT_TYPES)
    assert "Acme Ltd&#39;s payment of 430.00 USD failed: card_declined" in page


def test_that_nothing_was_subscribed_is_said_once() -> None:
    with running() as sandbox:
        for name in ("Acme", "Bolt"):
            sandbox.sandbox.call("POST", "/_sandbox/customers", {"name": name})
        page = PagesBrowser.logged_in(sandbox).get("/timeline").text

    assert page.count("CustomerCreated</a>") == 2
    assert page.lower().count("no subscription") == 1


def test_each_delivery_leads_to_the_receivers_dashboard_where_there_is_one() -> None:
    address = "http://127.0.0.1:9/billhook/"
    for options, links_there in ({"dashboard_url": address}, 1), ({}, 0):
        with running(**options) as sandbox, receiving() as receiver:
            subscribe(sandbox, "CustomerCreated", receiver.url)
            customer(sandbox)
            flush(sandbox)
            [delivery] = sandbox.ok("GET", "/_sandbox/deliveries")["deliveries"]
            browser = PagesBrowser.logged_in(sandbox)
            timeline = browser.get("/timeline").text
            event = browser.get(links(timeline, "/timeline/evt_[0-9a-f]+")[0]).text

        link = f'href="{address}deliveries?key={delivery["id"]}"'
        assert (timeline.count(link), event.count(link)) == (links_there, links_there)


def test_no_page_shows_a_secret_or_a_signature(
    demo: tuple[Running, PagesBrowser, Receiver],
) -> None:
    sandbox, browser, receiver = demo
    event = links(browser.get("/timeline").text, "/timeline/evt_[0-9a-f]+")[0]
    pages = [browser.client.get(rule).text for rule in rules("GET")] + [browser.get(event).text]
    signatures = {got.headers["webhook-signature"] for got in receiver.got}

    secrets = {SECRET, API_TOKEN, sandbox.sandbox.jwt_key.decode(), *signatures}
    assert len(signatures) > 20
    assert [secret for secret in secrets if any(secret in page for page in pages)] == []


def test_what_is_not_there_is_said_on_a_page(sandbox: Running) -> None:
    paths = (
        "/timeline/evt_x", "/customers/cus_x", "/contracts/con_x", "/invoices/inv_x",
        "/timeline?type=Nothing", "/usage?days=5", "/invoices?status=Nothing", "/nothing",
    )  # fmt: skip
    browser = PagesBrowser.logged_in(sandbox)
    pages = {path: browser.get(path) for path in paths}

    assert {path: page.status_code for path, page in pages.items()} == dict.fromkeys(paths, 404)
    assert {page.content_type for page in pages.values()} == {"text/html; charset=utf-8"}
    assert [path for path, page in pages.items() if "Not Found" not in page.text] == []


def test_a_page_that_fails_says_so_and_nothing_of_why(
    sandbox: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = PagesBrowser.logged_in(sandbox)
    sandbox.sandbox.service.close()
    monkeypatch.setattr(sandbox.sandbox.service, "transaction", None)
    page = browser.get("/customers")

    assert page.status_code == 500
    assert "Its log has the details." in page.text
    assert "TypeError" not in page.text


class _Dangers(HTMLParser):
    """Notes what of a hostile text would become an element or an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [tag] if tag == "script" else []
        self.found += [name for name, _ in attrs if name.startswith("on")]


def dangers(page: str) -> list[str]:
    """What of the hostile text a browser would act on, or turn the reading direction by."""
    parser = _Dangers()
    parser.feed(page)
    return [*parser.found, *re.findall("\u202e", page)]


def test_hostile_texts_are_inert_on_every_page() -> None:
    short = HOSTILE[:80]
    with running() as sandbox, receiving(500) as receiver:
        receiver.body = HOSTILE.encode()
        subscribe(sandbox, "CustomerCreated", f"{receiver.url}?{'%3Cscript%3E'}")
        made = customer(sandbox, name=short, aliases=[short], legalName=HOSTILE, status=HOSTILE)
        metered(sandbox, short)
        deal = contract(sandbox, made, name=HOSTILE, products=[fee(12.5) | {"displayName": HOSTILE}])
        event = {"name": short, "timestamp": "2026-01-10T09:00:00Z", "customerAlias": short, "ref": short}
        sandbox.ok("PUT", "/events", {"events": [{**event, "data": {HOSTILE: HOSTILE}}]})
        grant = {"customerId": made, "creditAmount": 5, "creditProductId": short}
        sandbox.ok("POST", "/_sandbox/credits/grant", grant)
        sandbox.ok(
            "POST",
            TRIGGER.removeprefix("POST ").format(eventType="PaymentFailed"),
            {"failureReason": HOSTILE},
        )
        sandbox.advance("P32D")
        flush(sandbox)
        browser = PagesBrowser.logged_in(sandbox)
        [invoice] = [one["id"] for one in invoices(sandbox)]
        created = links(browser.get("/timeline?type=CustomerCreated").text, "/timeline/evt_[0-9a-f]+")[0]
        paths = [
            *(form(f"POST {path}") for path in ("/contracts", "/v2/events", "/credits/top-up")),
            form("PUT /customers/{customerId}", customerId=made),
            *(created, f"/customers/{made}", f"/contracts/{deal['id']}", f"/invoices/{invoice}"),
        ]
        pages = [browser.client.get(rule) for rule in rules("GET")] + [browser.get(path) for path in paths]
        printed = re.search(r'href="(/_sandbox/pages/[^"]+)"', pages[-1].text)
        assert printed
        pages.append(browser.get(printed[1]))
        pages.append(browser.fill(form("POST /_sandbox/customers"), name=HOSTILE, currency=HOSTILE))

    assert {page.status_code for page in pages[:-1]} <= {200, 404}
    assert [found for page in pages if (found := dangers(page.text))] == []
    shown = [page for page in pages if "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text]
    assert len(shown) >= 14
    assert pages[-1] in shown


def test_control_a_hostile_text_that_is_not_escaped_would_be_noticed() -> None:
    assert dangers(f"<option>{HOSTILE}</option>") == ["script", "onload", "\u202e"]
    assert dangers(f'<input value="{HOSTILE}">') == ["onfocus", "\u202e"]


def test_an_address_is_subscribed_sent_any_sample_pinged_and_ended_as_a_whole_or_by_type() -> None:
    with running() as sandbox, receiving() as receiver:
        browser = PagesBrowser.logged_in(sandbox)
        made = browser.act("/webhooks", url=receiver.url)
        threshold = {"callbackUrl": receiver.url, "eventType": "CreditPoolThresholdCrossed"}
        browser.run("POST /webhook", **threshold, threshold="75.5")
        flush(sandbox)
        receiver.got.clear()
        for event_type in EVENT_TYPES:
            form_of_sample = browser.get(form(TRIGGER, eventType=event_type)).text
            [body] = re.findall(
                r'<textarea[^>]* name="other"[^>]*>(.*?)</textarea>', form_of_sample, re.DOTALL
            )
            sent = browser.post(form(TRIGGER), eventType=event_type, other=unescape(body))
        flush(sandbox)
        shown = browser.client.get(sent.location).text
        triggered = {got.headers["x-webhook-type"] for got in receiver.got}
        last = receiver.got[-1].id
        receiver.got.clear()
        page = browser.get("/webhooks").text
        ids = re.findall(r'name="subscriptionId" value="([^"]+)"', page)
        pinged = browser.run(PING, subscriptionId=ids[0])
        flush(sandbox)
        one = browser.run("DELETE /_sandbox/subscriptions/{subscriptionId}", subscriptionId=ids[0])
        ended = browser.act("/webhooks/end", url=receiver.url)
        again = browser.run(PING, subscriptionId=ids[0])
        refused = browser.run("POST /webhook", **threshold, threshold="many")
        left = browser.get("/webhooks").text

    assert made == f"The address is subscribed to all {len(EVENT_TYPES)} types of events."
    assert triggered == set(EVENT_TYPES)
    assert (last in shown, ">delivered<" in shown) == (True, True)
    assert facts(page)["subscribed to"] == f"{len(EVENT_TYPES) + 1} types of events"
    assert page.count("</section>") == 1  # one for the address, whatever the number of its types
    assert "75.5 %" in page
    assert pinged == "A PingTest is sent."
    assert [one.headers["x-webhook-type"] for one in receiver.got] == ["PingTest"]
    assert one == "The subscription is ended."
    assert ended == "23 subscriptions are ended, and their pending deliveries are cancelled."
    assert again == "Refused: there is no such subscription"
    assert refused.startswith("Refused: ")
    assert "No address is subscribed." in left
