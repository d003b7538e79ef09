"""Apps with a dashboard, and a browser of a sort: it keeps cookies, and sends forms as pages have them."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from typing import Any

from flask import Flask

from billhook import Handlers
from billhook.events import InvoiceApproved, PaymentFailed
from billhook.extension import get_state
from billhook.inbox import DeliveryFilter
from billhook.inbox.reading.deliveries import page
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.issues import Issue, list_issues
from support.apps import deliver
from support.signing import APPROVED

PAGES = (
    *(
        "",
        "deliveries",
        "deliveries/1",
        "deliveries/1/body",
        "failures",
        "handlers",
        "actions",
        "health",
        "workers",
    ),
    "handler?name=shop.mail",
)
ORIGIN = {"Origin": "http://localhost"}


class Site:
    """An app with a dashboard at /billhook; `broken` is what the handler `shop.book` raises."""

    def __init__(self, app: Flask, broken: list[Exception]) -> None:
        self.app = app
        self.state = get_state(app)
        self.inbox = self.state.inbox
        self.broken = broken
        self.client = app.test_client()

    def deliver(self, body: bytes = APPROVED, event_type: str = "InvoiceApproved", **more: Any) -> int:
        """Store a delivery, handle what is due, and return its id."""
        response = deliver(self.app, body, event_type, **more)
        assert response.status_code == 200, response.text
        self.state.handle_due()
        return page(self.inbox, DeliveryFilter(), 1)[0].id

    def get(self, path: str = "", **more: Any) -> Any:
        return self.client.get(f"/billhook/{path}", **more)

    def text(self, path: str) -> str:
        """The text of a page, which is there."""
        response = self.get(path)
        assert response.status_code == 200, response.text
        inline = re.sub(r"</?(?:span|bdi|wbr)[^>]*>", "", response.text)
        return html.unescape(re.sub(r"<[^>]+>", " ", inline))

    def issues(self) -> list[Issue]:
        """The issues, as a worker has found them by now."""
        update_issues(self.inbox, datetime.now(UTC))
        return list_issues(self.inbox)

    def token(self) -> str:
        """A token for forms, of the page that is made soonest and has one."""
        for path in ("deliveries", "handler?name=shop.mail"):
            if found := re.search(r'name="csrf_token" value="([^"]+)"', self.get(path).text):
                return found[1]
        raise AssertionError("no page has a form")

    def post(self, path: str, headers: dict[str, str] | None = None, **fields: Any) -> Any:
        """Send a form with a good token from a page of the site."""
        data = {"csrf_token": self.token(), **fields}
        return self.client.post(
            f"/billhook/{path}", data=data, headers=ORIGIN if headers is None else headers
        )

    def notice(self, response: Any) -> str:
        """Follow the redirect after a form; the notice that the next page shows."""
        assert response.status_code == 303, response.text
        found = re.search(r'role="status">([^<]*)<', self.client.get(response.location).text)
        assert found is not None
        return html.unescape(found[1])

    def act(self, path: str, **fields: Any) -> str:
        """Send a form, and return the notice of the page that it leads to."""
        return self.notice(self.post(path, **fields))


def shop_handlers(broken: list[Exception]) -> Handlers:
    handlers = Handlers()

    @handlers.on(InvoiceApproved, PaymentFailed, name="shop.book", timeout_seconds=30)
    def book(event: object) -> None:
        if broken:
            raise type(broken[0])(
                *broken[0].args
            )  # a new one: an exception collects the frames of each raise

    @handlers.on(InvoiceApproved, name="shop.mail", aliases=["shop.posted"], ordered_by="invoice_id")
    def mail(event: object) -> None: ...

    return handlers
