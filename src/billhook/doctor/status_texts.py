"""Put the figures of an inbox into words, for `billhook status` and for pages; conditions.py judges."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from billhook.clock import format_ago, short_time
from billhook.events import EVENT_TYPES
from billhook.inbox.counting.counts import OTHER_TYPES
from billhook.inbox.watching.conditions import number_text
from billhook.inbox.watching.handler_backlogs import RUNS_LIMIT
from billhook.inbox.watching.overview import TypeFigures

if TYPE_CHECKING:
    from billhook.inbox.watching.handler_backlogs import HandlerBacklog
    from billhook.inbox.watching.overview import Overview


def types_of_models(overview: Overview) -> list[TypeFigures]:
    """Return the figures of each type with a model, of deliveries without a type, and of all others as "*".

    Types without a model are counted together, as "*"; only their last deliveries are known one by one.
    """
    known: list[TypeFigures] = []
    others: list[TypeFigures] = []
    for one in overview.types:
        (known if one.event_type in EVENT_TYPES or not one.event_type else others).append(one)
    if others:
        counted = next((one for one in others if one.event_type == OTHER_TYPES), TypeFigures(OTHER_TYPES))
        last_at = max((one.last_at for one in others if one.last_at is not None), default=None)
        known.append(replace(counted, last_at=last_at))
    return known


def backlog_text(backlog: HandlerBacklog, now: datetime) -> str:
    """Return what waits for a handler in words: `8,000 limited, 2 running; oldest due 3 h ago`."""
    states = ", ".join(
        f"{number_text(number, RUNS_LIMIT)} {state}" for state, number in backlog.states.items() if number
    )
    oldest = f"oldest due {format_ago(backlog.oldest_due_at, now)}" if backlog.oldest_due_at else ""
    through = through_text(backlog, now)
    if through and not through.startswith(("retried", "all retried", "not before")):
        through = f"through {through}"
    return "; ".join(filter(None, (states, oldest, through)))


def through_text(backlog: HandlerBacklog, now: datetime) -> str:
    """Return when a handler's runs are handled: `in 2 h`, `in more than 2 h` if not all are counted.

    Where all that is left waits for a time, that time: `retried at 18:45`, `all retried by 18:45`, or `not
    before 18:45`; `after 18:45` where others wait for these in their order.
    """
    if backlog.only_retrying and backlog.through_at is not None:
        when = short_time(backlog.through_at, now)
        if backlog.through_at_least:
            return f"after {when}"
        if backlog.last_put_off:
            return f"not before {when}"
        return f"retried at {when}" if backlog.retrying == 1 else f"all retried by {when}"
    text = format_ago(backlog.through_at, now)
    return text.replace("in ", "in more than ", 1) if backlog.through_at_least else text


def unfinished_text(backlog: HandlerBacklog) -> str:
    """Return how many runs of a handler are unfinished, with a plus sign if not all are counted."""
    return f"{backlog.unfinished:,}" + ("+" if backlog.is_capped else "")
