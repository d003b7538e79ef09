"""One request or one step of the clock: a database transaction, and the time at which it happens."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection, insert, select

from billhook.events import Event
from billhook.sandbox.options import SandboxOptions
from billhook.sandbox.sending import retention
from billhook.sandbox.storage.tables import sending

__all__ = ["Transaction", "new_id"]


def new_id(prefix: str) -> str:
    """An id that nobody has: `cus_4f0e…`."""
    return f"{prefix}_{secrets.token_hex(10)}"


@dataclass(slots=True)
class Transaction:
    """What the rules of the business work on. All that they do is done together, or not at all."""

    connection: Connection
    now: datetime
    """The sandbox's time: the same throughout."""
    real_now: datetime
    """The machine's."""
    options: SandboxOptions
    raised: list[str] = field(default_factory=list)
    """Ids of the deliveries that are due once this is committed."""
    scheduled: bool = False
    """Was something put on the agenda?"""

    def raise_event(self, event: Event, *, only: Collection[str] | None = None) -> str:
        """Write `event` down with a delivery for each subscription to its type, or for the ids in `only`.

        Returns its id. Source: spec, "Events".
        """
        raised_id = new_id("evt")
        body = event.to_json()
        number = self.connection.execute(
            insert(sending.raised)
            .values(id=raised_id, event_type=event.type, body=body, raised_at=self.now)
            .returning(sending.raised.c.seq)
        ).scalar_one()
        retention.forget_old(self.connection, number, self.options.keep_events)
        wanted = select(sending.subscription.c.id, sending.subscription.c.callback_url).where(
            sending.subscription.c.event_type == event.type
        )
        if only is not None:
            wanted = wanted.where(sending.subscription.c.id.in_(only))
        for subscription_id, callback_url in self.connection.execute(wanted).all():
            self.deliver(raised_id, subscription_id, callback_url)
        return raised_id

    def deliver(self, raised_id: str, subscription_id: str, url: str) -> str:
        """Write down a delivery of what was raised, due now. Returns its id."""
        delivery_id = new_id("dlv")
        self.connection.execute(
            insert(sending.delivery).values(
                id=delivery_id, raised_id=raised_id, subscription_id=subscription_id, url=url,
                state="pending", due_at=self.real_now,
            )
        )  # fmt: skip
        self.raised.append(delivery_id)
        return delivery_id
