"""Index the events that the deliveries of an inbox report, by event type and object.

It keeps ids and not bodies, so that an inbox may be larger than the memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from billhook.errors import InvalidJSON, InvalidPayload, PayloadError
from billhook.events import (
    AnonymousCustomer,
    ContractCreated,
    ContractExpired,
    CreditPoolDepleted,
    CreditPoolIncreased,
    CustomerCreated,
    InvoiceApproved,
    InvoicePaymentStatusChanged,
    parse_event,
)
from billhook.events.type_field import read_type
from billhook.fields import strict_json
from billhook.inbox import DeliveryState, Inbox
from billhook.inbox.reading.deliveries import details
from billhook.inbox.reading.searches import ReadBody, read_bodies

PROVING_TYPES: dict[str, tuple[str, ...]] = {
    InvoiceApproved.type: ("invoiceId",),
    InvoicePaymentStatusChanged.type: ("invoiceId", "billingStatus"),
    ContractCreated.type: ("contractId",),
    ContractExpired.type: ("contractId",),
    CustomerCreated.type: ("customerId",),
    AnonymousCustomer.type: ("id",),
    CreditPoolIncreased.type: ("customerId",),
    CreditPoolDepleted.type: ("customerId",),
}
"""The event types about an object which the API lists, and the fields that identify it."""

_CREDITS = (CreditPoolIncreased.type, CreditPoolDepleted.type)
SAME_CHANGE = timedelta(hours=1)
"""How far the date of an event may be from that of its ledger entry: nothing says that they are equal."""


@dataclass(frozen=True, slots=True)
class CreditChange:
    """A change of a customer's credits: a ledger entry, or an event. `amount` is None for a depletion."""

    at: datetime
    amount: Decimal | None
    balance: Decimal | None

    def fits(self, other: CreditChange) -> bool:
        """Return whether both may be the same change. A balance may be of the pool, or of all pools."""
        return self.amount == other.amount and abs(self.at - other.at) <= SAME_CHANGE


class DeliveredEvents:
    """The events of an inbox's deliveries. Quarantined ones, which no handler received, are kept apart."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """How many deliveries there are of each type."""
        self.customer_ids: set[str] = set()
        """Every customer that one of them names."""
        self._handled: set[tuple[str, ...]] = set()
        self._quarantined: dict[tuple[str, ...], int] = {}
        self._credits: defaultdict[tuple[str, str], list[CreditChange]] = defaultdict(list)
        self._new_customers: dict[str, int] = {}

    @classmethod
    def read(
        cls, inbox: Inbox, since: datetime, progress: Callable[[], object] = lambda: None
    ) -> DeliveredEvents:
        """Read the deliveries received since then, with a call of `progress` for each.

        Raises InboxUnavailable.
        """
        delivered = cls()
        for read in read_bodies(inbox, PROVING_TYPES, since):
            delivered.add(read)
            progress()
        return delivered

    def add(self, read: ReadBody) -> None:
        """Add a delivery. One that is not readable as its type is left out."""
        try:
            body: Any = strict_json.loads(read.body)
        except InvalidJSON:
            return
        if not read.event_type and read.type_field is not None and isinstance(body, dict):
            with suppress(InvalidPayload):
                read = read._replace(event_type=read_type(body, read.type_field))
        if read.event_type not in PROVING_TYPES:
            return
        names = PROVING_TYPES[read.event_type]
        values = [body.get(name) for name in names] if isinstance(body, dict) else []
        found = tuple(value for value in values if isinstance(value, str))
        if len(found) < len(names):
            return
        key = (read.event_type, *found)
        if read.state == DeliveryState.QUARANTINED:
            # Not as delivered: no handler was called, so the event is missing until an operator replays it.
            self._quarantined.setdefault(key, read.delivery_id)
            return
        self.counts[read.event_type] += 1
        if isinstance(body.get("customerId"), str):
            self.customer_ids.add(body["customerId"])
        # A customer's credits change many times: the customer's id alone does not identify a change.
        if read.event_type in _CREDITS:
            change = _change(read)
            if change is not None:
                self._credits[read.event_type, found[0]].append(change)
            return
        self._handled.add(key)
        if read.event_type == CustomerCreated.type:
            self._new_customers[found[0]] = read.delivery_id

    def has(self, event_type: str, *ids: str) -> bool:
        """Return whether a delivery that is not quarantined reports this event of the object."""
        return (event_type, *ids) in self._handled

    def quarantined_as(self, event_type: str, *ids: str) -> int | None:
        """Return the first quarantined delivery that reports this event of the object; None without one."""
        return self._quarantined.get((event_type, *ids))

    def knows_customer(self, customer_id: str) -> bool:
        """Return whether a delivery reports that this customer is new."""
        return self.has(CustomerCreated.type, customer_id) or self.has(AnonymousCustomer.type, customer_id)

    def new_customer(self, inbox: Inbox, customer_id: str) -> dict[str, Any] | None:
        """Return the body of the customer's CustomerCreated, in camelCase; None without one."""
        for delivery in details(inbox, [self._new_customers.get(customer_id, 0)]):
            body = strict_json.loads(delivery.body) if delivery.body else None
            return body if isinstance(body, dict) else None
        return None

    def unmatched(
        self, event_type: str, customer_id: str, changes: Collection[CreditChange]
    ) -> Iterator[int]:
        """Yield the positions of the changes of a customer's credits that no event of this type reports.

        Each event reports one change. First those are paired that agree in all but the moment, then those
        whose balances differ.
        """
        events = list(self._credits.get((event_type, customer_id), ()))
        left = dict(enumerate(changes))
        for same_balance in (True, False):
            for position, change in list(left.items()):
                fitting = [
                    event
                    for event in events
                    if event.fits(change) and (event.balance == change.balance or not same_balance)
                ]
                if fitting:
                    events.remove(min(fitting, key=lambda event: abs(event.at - change.at)))
                    del left[position]
        yield from left


def _change(read: ReadBody) -> CreditChange | None:
    try:
        event = parse_event(read.event_type, read.body)
    except PayloadError:
        return None
    if isinstance(event, CreditPoolIncreased):
        return CreditChange(event.date, event.granted_amount, event.balance)
    return CreditChange(event.date, None, event.balance) if isinstance(event, CreditPoolDepleted) else None
