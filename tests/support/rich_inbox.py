"""An app with a dashboard, in whose inbox nearly all has happened that pages and messages tell of.

Some hours of a shop: what was handled, failed, is dead, hangs, waits, was refused, came twice, contradicts
another, cannot be read or has no handler; what operators did about it; and workers in each state.
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

from flask import Flask

from billhook import Delivery, Handlers
from billhook.clock import FrozenClock
from billhook.dashboard import Dashboard
from billhook.events import (
    CustomerCreated,
    Event,
    InvoiceApproved,
    InvoicePaymentStatusChanged,
    PaymentFailed,
    sample,
)
from billhook.inbox import Counted, WorkerRecord
from billhook.inbox.operating.subscriptions import remember, terms_of
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.issues import Issue, list_issues
from support.apps import deliver, make_app
from support.dashboard import Site
from support.inbox_view import NOON
from support.runs import claim, planned
from support.signing import APPROVED

HOUR = 3_600
BOOK = "shop.billing.ledger.book_invoice_or_failed_payment"


class RichSite(Site):
    """The app, its clock, and the notices that followed actions (`said`); `asked` are pages before one."""

    def __init__(self, app: Flask, clock: FrozenClock) -> None:
        super().__init__(app, [])
        self.clock = clock
        self.said: list[str] = []
        self.asked: list[str] = []

    def send(self, body: bytes, event_type: str, key: str, *, handle: bool = True, **more: Any) -> None:
        """Have a delivery come, and by default its handlers be called."""
        answer = deliver(self.app, body, event_type, at=self.clock.now(), message_id=key, **more)
        assert answer.status_code == 200, answer.text
        if handle:
            self.state.handle_due()

    def do(self, path: str, **fields: Any) -> None:
        """Act as an operator, and keep what the page then says."""
        self.said.append(self.act(path, **fields))

    def ids(self, query: str) -> list[str]:
        """The deliveries that the list shows for a query."""
        return re.findall(r'name="id" value="(\d+)"', self.get(f"deliveries?{query}").text)

    def found(self) -> list[Issue]:
        """The issues, as a worker has found them by now."""
        update_issues(self.inbox, self.clock.now())
        return list_issues(self.inbox)


def handlers_of_a_shop() -> Handlers:
    """Handlers of which some fail for some deliveries."""
    handlers = Handlers()

    @handlers.on(InvoiceApproved, PaymentFailed, name=BOOK, timeout_seconds=30)
    def book(event: InvoiceApproved | PaymentFailed) -> None:
        if isinstance(event, PaymentFailed) and event.currency == "USD":
            raise KeyError(event.currency)

    @handlers.on(InvoiceApproved, name="shop.mail.send_receipt", retry=[], ordered_by="invoice_id")
    def mail(event: InvoiceApproved, delivery: Delivery) -> None:
        if delivery.key.startswith("bounces"):
            raise ConnectionError("mail.shop.example: 550 5.1.1 the mailbox of this customer does not exist")

    @handlers.on(CustomerCreated, name="shop.crm.greet", newest_only=True, ordered_by="customer_id")
    def greet(event: CustomerCreated) -> None: ...

    @handlers.on(
        InvoicePaymentStatusChanged, name="shop.notify", identity=["invoice_id"], at_most=1, rate="9/min"
    )
    def notify(event: InvoicePaymentStatusChanged) -> None: ...

    @handlers.on(PaymentFailed, name="shop.dunning.remind", retry=[120, 7200])
    def remind(event: Event, delivery: Delivery) -> None:
        if delivery.key.startswith("later"):
            raise TimeoutError("the dunning service took longer than 10 s")

    return handlers


def rich_site(folder: Path, clock: FrozenClock) -> RichSite:
    """An app with such an inbox in `folder`; its history begins at the clock's time, and ends hours later."""
    app = make_app(
        folder, clock=clock, handlers=[handlers_of_a_shop()], BILLHOOK_RETRY_SCHEDULE_SECONDS=[600, 40_000]
    )
    app.secret_key = "k" * 32
    Dashboard(may_look=lambda: "alice", may_act=lambda: True, log_out_url="/").init_app(app)
    site = RichSite(app, clock)
    _usual_hours(site)
    _what_is_odd(site)
    _workers(site)
    _operators(site)
    return site


def _invoice(number: int) -> bytes:
    return APPROVED.replace(b"inv_1", b"inv_%d" % (3_000 + number))


def _usual_hours(site: RichSite) -> None:
    """Deliveries by the hour; each fourth failed payment is in a currency without a ledger."""
    for number in range(60):
        site.clock.advance(seconds=HOUR / 3)
        site.send(_invoice(number), "InvoiceApproved", f"msg_{number:026x}")
        if number % 3 == 0:
            currency = "USD" if number % 4 == 0 else "EUR"
            ids = {"customer_id": f"cus_{number}", "invoice_id": f"inv_{number}"}
            body = sample(PaymentFailed, currency=currency, **ids).to_json()
            site.send(body, "PaymentFailed", f"pay_{number}")
    for number in range(3):
        site.send(_invoice(100 + number), "InvoiceApproved", f"bounces-{number}")
    site.found()
    body = sample(PaymentFailed, customer_id="cus_77", invoice_id="inv_77").to_json()
    site.send(body, "PaymentFailed", "later-1")


def _what_is_odd(site: RichSite) -> None:
    """What comes again, contradicts, cannot be read, has no handler, has no model, or is refused."""
    site.send(_invoice(0), "InvoiceApproved", f"msg_{0:026x}")
    site.send(_invoice(1), "InvoiceApproved", f"msg_{0:026x}")
    site.send(b'{"broken', "PaymentFailed", "odd-1")
    site.send(b'\xff{"a": 1}', "InvoiceApproved", "odd-2")
    site.send(b'{"ticketId": "t_1"}', "TicketOpened", "odd-3")
    site.send(b"{}", "PingTest", "odd-4")
    changed = sample(InvoicePaymentStatusChanged).to_json()
    for number in range(3):
        site.send(changed, "InvoicePaymentStatusChanged", f"same-{number}")
    for cause, number in (("mismatch", 60), ("stale", 4), ("malformed", 9), ("deadline", 2)):
        seconds = {"duration_seconds": 600.0} if cause == "stale" else {}
        for _ in range(number):
            site.inbox.count(Counted.REFUSED, site.clock.now(), source="default", cause=cause, **seconds)
    site.inbox._counts.close()
    terms = terms_of(
        "https://api.example.com", "https://shop.example.com/webhooks/billing",
        {"event_type": "CommitmentUsageCrossed", "threshold": 80},
    )  # fmt: skip
    remember(site.inbox, "ann", terms, site.clock.now())


def _workers(site: RichSite) -> None:
    """One whose calls do not return, one that is held, one that was lost, and one that stopped."""
    inbox, began = site.inbox, (site.clock.now() - NOON).total_seconds()
    for number in range(3):
        facts = {"event_type": "InvoiceApproved", "body": _invoice(200 + number), "at": site.clock.now()}
        planned(inbox, BOOK, key=f"hangs-{number}", seconds=began, **facts)
    claim(inbox, 2, began, owner="busy", lease=timedelta(hours=2))
    site.clock.advance(seconds=25 * 60)
    now = site.clock.now()
    for pid, owner in enumerate(("busy", "held", "lost", "stopped"), 4711):
        place: dict[str, Any] = {"host": "billing-worker-7d9f8b6c5", "pid": pid, "threads": 6}
        record = WorkerRecord(owner, "worker", 5, now - timedelta(hours=9), **place)
        inbox.record_worker(record, now - timedelta(minutes=9 if owner == "lost" else 0))
    inbox.record_stop("stopped")


def _operators(site: RichSite) -> None:
    """What can be done on the pages, each of it once."""
    site.do("handlers/pause", handler="shop.crm.greet", why="the CRM is closed until Monday")
    body = sample(CustomerCreated).to_json()
    site.send(body, "CustomerCreated", "paused-1")
    site.do("workers/hold", owner="held")
    (later,), first = site.ids("key=later-1"), site.ids("key=pay_3")[0]
    site.do(f"deliveries/{later}/postpone", until="2h")
    retried = site.ids("state=retrying")
    site.do(f"deliveries/{retried[-1]}/replay", handler=BOOK)
    site.do("deliveries/replay/confirmed", id=retried[:1], **{"not-before": "3h"})
    edited = sample(PaymentFailed, currency="EUR", customer_id="cus_3").to_json()
    site.do(f"deliveries/{first}/resend", handler=BOOK, body=edited.decode())
    for path, fields in (
        (f"deliveries/{first}/replay", {"handler": BOOK, "again": "1"}),
        ("deliveries/replay", {"scope": "all", "state": "dead"}),
        ("deliveries/replay", {"scope": "some", "id": retried[:3]}),
        ("deliveries/replay", {"scope": "all", "failed-since": "20h"}),
    ):
        page = site.post(path, **fields)
        assert page.status_code == 200, page.text
        site.asked.append(page.text)
    site.do(f"deliveries/{site.ids('key=odd-1')[0]}/discard", reason="the sender took it back")
    site.do(f"deliveries/{site.ids('key=pay_6')[0]}/erase")
    for one, verb, fields in zip(
        site.found(),
        ("ack", "snooze", "resolve"),
        ({"to": "bob"}, {"duration": "7d"}, {"why": "mended"}),
        strict=False,
    ):
        site.do(f"failures/{one.id}/{verb}", **fields)
    site.found()
