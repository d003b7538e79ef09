"""Record the actions of operators: a row and a log line for each.

A row says who did what to which deliveries or handler, and when. It is written before the first change, so
that an action which is interrupted has one too. No text of a payload is in it: a condition such as
`--contains` is there without its value, and so is the customer of an erasure. An operator's reasons are not
in it either, for these may name a customer.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, insert, select, update

from billhook.basics.printable import printable
from billhook.inbox.inbox import Inbox
from billhook.inbox.tables.schema import action, issue
from billhook.inbox.tables.sql import in_values
from billhook.logs import fields

logger = logging.getLogger("billhook.actions")

KEPT_FOR = timedelta(days=396)
"""How long a row is kept: 13 months, a year and the time to look at it."""
_LONGEST_WHO = 100
_ISSUE = re.compile(r"issue (\w+)")
_MOST_RANGES = 50
"""Ranges of ids in a row; the number of deliveries is exact however many there are."""


@dataclass(frozen=True, slots=True)
class Action:
    """One action of an operator. `deliveries` is how many it changed; None for an action on a handler."""

    id: int
    at: datetime
    who: str
    what: str
    which: str
    deliveries: int | None


@dataclass(eq=False, repr=False)
class ActionRecorder:
    """Counts what an action has changed, in its row; see `recorded`."""

    inbox: Inbox
    action_id: int
    selected_by: str
    deliveries: int | None = None

    def __post_init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self.which = self.selected_by

    def add(self, number: int, delivery_ids: Iterable[int] = ()) -> None:
        """Add `number` changed deliveries; `delivery_ids` are those that the conditions selected."""
        self.deliveries = (self.deliveries or 0) + number
        ids = _text(_merge(self._ranges, delivery_ids))
        self.which = ": ".join(filter(None, [self.selected_by, ids]))
        values = {"deliveries": self.deliveries, "which": self.which}
        self.inbox.apply(update(action).where(action.c.id == self.action_id).values(values))


@contextmanager
def recorded(inbox: Inbox, who: str, what: str, which: str, now: datetime) -> Iterator[ActionRecorder]:
    """Record an action while the block does it; call the recorder's `add` after each batch of deliveries.

    `who` is the operator's name, as the caller knows it; `what` is the verb, as the command line has it;
    `which` is the handler, or the ids or conditions that select the deliveries. An action that fails keeps
    its row. Deletes rows of 13 months ago.
    """
    who = shown_name(who)
    row = {"at": now, "who": who, "what": what, "which": which}
    prune_actions(inbox, now)
    with inbox.database.write() as connection:
        action_id = connection.execute(insert(action).values(row).returning(action.c.id)).scalar_one()
    recorder = ActionRecorder(inbox, action_id, which)
    try:
        yield recorder
    finally:
        number = recorder.deliveries
        count = "" if number is None else f" ({number} deliveries)"
        extra = fields(who=who, action=what, count=number)
        logger.info("%s by %s: %s%s", what, who, printable(recorder.which), count, extra=extra)


def shown_name(who: str) -> str:
    """Return the name of an operator as it is stored: printable, and not too long."""
    return printable(who)[:_LONGEST_WHO]


def prune_actions(inbox: Inbox, now: datetime) -> None:
    """Delete the records that are older than KEPT_FOR."""
    inbox.apply(delete(action).where(action.c.at < now - KEPT_FOR))


def list_actions(
    inbox: Inbox, limit: int, below: int | None = None, since: datetime | None = None
) -> list[Action]:
    """Return actions, newest first; `below` is the last id of the page before."""
    query = select(action).order_by(action.c.id.desc()).limit(limit)
    if below is not None:
        query = query.where(action.c.id < below)
    if since is not None:
        query = query.where(action.c.at >= since)
    return [Action(*row) for row in inbox.fetch(query)]


def issues_acted_on(inbox: Inbox, actions: Iterable[Action]) -> dict[int, tuple[str, str]]:
    """Return the id and the title of the issue that an action names, by the id of the action.

    The title is that of the issue now: an erasure cuts it there, and no record has it.
    """
    named = {one.id: found[1] for one in actions if (found := _ISSUE.match(one.which))}
    query = select(issue.c.fingerprint, issue.c.title).where(
        in_values(issue.c.fingerprint, sorted({*named.values()}))
    )
    titles: dict[str, str] = dict(map(tuple, inbox.fetch(query)))
    return {number: (its_id, titles[its_id]) for number, its_id in named.items() if its_id in titles}


def ids_text(ids: Iterable[int]) -> str:
    """Return ids as `1-3, 7`, cut with … where there are too many."""
    return _text(_merge([], ids))


def _merge(ranges: list[tuple[int, int]], ids: Iterable[int]) -> list[tuple[int, int]]:
    """Add ids to ranges, of which one more than are shown is kept."""
    for delivery_id in sorted(ids):
        if ranges and delivery_id == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], delivery_id)
        elif len(ranges) <= _MOST_RANGES:
            ranges.append((delivery_id, delivery_id))
    return ranges


def _text(ranges: Sequence[tuple[int, int]]) -> str:
    parts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:_MOST_RANGES]]
    return ", ".join([*parts, "…"] if len(ranges) > _MOST_RANGES else parts)
