"""Search what no worker has read yet, and say what a search for a value has looked at.

What a delivery is about is known by an index from when a worker has read it. Until then a search looks for
the value in the bodies of the newest UNREAD_SEARCHED that wait.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from shlex import quote
from typing import NamedTuple

from sqlalchemy import ColumnElement, func, select

from billhook.basics.printable import printable
from billhook.clock import format_time
from billhook.inbox.inbox import Inbox
from billhook.inbox.reading.deliveries import DeliverySummary, count, page, summaries
from billhook.inbox.running.filters import DeliveryFilter, body_has
from billhook.inbox.tables.schema import UNREAD, delivery
from billhook.inbox.tables.sql import in_values
from billhook.inbox.tables.states import DeliveryState
from billhook.inbox.watching.overview import COUNT_LIMIT

UNREAD_SEARCHED = 5_000
"""How many of the newest unread deliveries a search for a value reads."""


class SearchBound(NamedTuple):
    """What a search reads: a number of deliveries, and the id and time of the oldest; None without any."""

    number: int
    from_id: int | None
    received_at: datetime | None

    @property
    def since_text(self) -> str:
        """How far back it reads, as the end of a sentence."""
        return "" if self.received_at is None else f", back to {format_time(self.received_at)} UTC"


@dataclass(frozen=True, slots=True)
class SearchScope:
    """What a search for a value has looked at.

    `since` is when the oldest delivery with its content was received; None without any. `unread` wait to be
    read, of which the `in_bodies` have the value in their bodies. `without_filters` have the value, but are
    not selected by the other filters; both are no more than a page.
    """

    value: str
    since: datetime | None
    unread: int
    in_bodies: tuple[int, ...]
    without_filters: int

    @property
    def unread_text(self) -> str | None:
        """How many of the unread were not searched; None if all were."""
        if self.unread <= UNREAD_SEARCHED:
            return None
        number = f"{self.unread:,}{'+' if self.unread >= COUNT_LIMIT else ''}"
        return (
            f"{number} are not read yet, of which the bodies of the newest {UNREAD_SEARCHED:,} were searched"
        )

    @property
    def text(self) -> str:
        """What was searched, in words."""
        if self.since is None:
            return "no delivery has been received"
        told = (
            f"searched: ids, keys and identifying values of deliveries received since {self.since:%Y-%m-%d}"
        )
        if self.unread_text is not None:
            told += f"; {self.unread_text}"
        elif self.unread:
            told += f", and the bodies of {self.unread:,} that are not read yet"
        return told

    @property
    def next_steps(self) -> Iterator[tuple[str, str]]:
        """Yield what may be the reason, and the command that tells, without the program's name."""
        value = quote(printable(self.value))
        if self.without_filters:
            yield "other filters leave it out", f"deliveries list --search {value}"
        if self.in_bodies:
            yield "not read yet", f"deliveries show {self.in_bodies[0]}"
        yield "deeper in a body", f"deliveries list --contains {value}"
        since = f"{self.since:%Y-%m-%d}" if self.since is not None else "7d"
        yield "never received, though the service has it", f"reconcile --since {since}"
        yield "erased or discarded by an operator", "actions"


def search_bound(inbox: Inbox, selection: DeliveryFilter, limit: int) -> SearchBound:
    """Return where a search for `contains` ends: at the newest `limit` of what else is selected."""
    others = replace(selection, contains=None)
    columns = (delivery.c.id, delivery.c.received_at)
    newest = select(*columns).where(*others.conditions()).order_by(delivery.c.id.desc()).limit(limit)
    part = newest.subquery()
    (found,) = inbox.fetch(select(func.count(), func.min(part.c.id), func.min(part.c.received_at)))
    return SearchBound(*found)


def page_with_unread(
    inbox: Inbox, selection: DeliveryFilter, limit: int, below: int | None = None
) -> list[DeliverySummary]:
    """Return a page of the selected, newest first, and among them what a search finds in unread bodies."""
    # The bodies first: one that a worker reads meanwhile has left them, and is found by the index then.
    unread = _in_bodies(inbox, selection, limit, below)
    found = page(inbox, selection, limit, below)
    ids = {*unread} - {one.id for one in found}
    both = [*found, *summaries(inbox, sorted(ids))] if ids else found
    return sorted(both, key=lambda one: one.id, reverse=True)[:limit]


def read_scope(inbox: Inbox, selection: DeliveryFilter, limit: int = 50) -> SearchScope | None:
    """Return what the search of a filter looked at; None without one."""
    if selection.search is None:
        return None
    filled = delivery.c.state.not_in([DeliveryState.PRUNED.value, DeliveryState.ERASED.value])
    oldest = select(delivery.c.received_at).where(filled).order_by(delivery.c.id).limit(1)
    unread = select(delivery.c.id).where(UNREAD).limit(COUNT_LIMIT).subquery()
    since = next((row.received_at for row in inbox.fetch(oldest)), None)
    ((number,),) = inbox.fetch(select(func.count()).select_from(unread))
    in_bodies = tuple(_in_bodies(inbox, selection, limit))
    alone = DeliveryFilter(search=selection.search)
    without = 0 if selection == alone else count(inbox, alone, limit)
    return SearchScope(selection.search, since, number, in_bodies, without)


def _in_bodies(inbox: Inbox, selection: DeliveryFilter, limit: int, below: int | None = None) -> list[int]:
    """Return the ids of unread deliveries whose body has the value that is searched for, newest first."""
    if selection.search is None:
        return []
    newest = select(delivery.c.id).where(UNREAD).order_by(delivery.c.id.desc()).limit(UNREAD_SEARCHED)
    others = replace(selection, search=None).conditions()
    ids = [row.id for row in inbox.fetch(newest) if below is None or row.id < below]
    if not ids:
        return []
    query = select(delivery.c.id).where(
        in_values(delivery.c.id, ids), UNREAD, _has_value(selection.search), *others
    )
    return [row.id for row in inbox.fetch(query.order_by(delivery.c.id.desc()).limit(limit))]


def _has_value(text: str) -> ColumnElement[bool]:
    """Build the condition that a body has a text as a whole JSON string, or as a number."""
    forms = {f'"{text}"'.encode(), json.dumps(text).encode()}
    if text.isascii() and text.removeprefix("-").replace(".", "", 1).isdecimal():
        forms.add(text.encode())
    return body_has(forms)
