"""The sandbox's time: reading it, and setting it ahead."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field, model_validator

from billhook.errors import FieldConflict, FieldMissing
from billhook.resources import Resource
from billhook.sandbox.billing import agenda
from billhook.sandbox.periods import LAST, Period
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.web.operation import Call, Group
from billhook.wire.fields import Integer, Moment, Text

__all__ = ["GROUP"]

GROUP = Group("_sandbox/clock", prefix="/_sandbox/clock")


class ClockMove(Resource, register=False):
    """How far the clock is to be set ahead."""

    advance: Annotated[
        Text | None,
        Field(description="By how much, as an ISO 8601 duration: P30D, P1M, PT36H.", examples=["P30D"]),
    ] = None
    to: Annotated[
        Moment | None, Field(description="Or to what moment, which cannot be over.", examples=[])
    ] = None

    @model_validator(mode="after")
    def _one_way(self) -> ClockMove:
        if self.advance is None and self.to is None:
            raise FieldMissing("give advance (an ISO 8601 duration) or to (a moment)", "advance")
        if self.advance is not None and self.to is not None:
            raise FieldConflict("advance and to exclude each other: give one of them", "advance", "to")
        return self


class ClockMoved(Resource, register=False):
    """What time it is now, and what it took to get there."""

    now: Annotated[Moment, Field(description="The sandbox's time.")]
    steps: Annotated[Integer, Field(description="How many things fell due and were done.", examples=[3])]


class ClockShown(Resource, register=False):
    """What time it is."""

    now: Annotated[Moment, Field(description="The sandbox's time.")]
    next_due_at: Annotated[Moment | None, Field(description="When the next thing falls due by itself.")] = (
        None
    )


@GROUP.operation("GET", "", gives=ClockShown)
def show(call: Call[None]) -> ClockShown:
    """Tell the sandbox's time."""
    first = agenda.first_due(call.tx)
    return ClockShown(now=call.tx.now) if first is None else ClockShown(now=call.tx.now, next_due_at=first)


# Every step is a transaction of its own: a write lock held here would stand in the way of the first.
@GROUP.operation("POST", "", takes=ClockMove, gives=ClockMoved, writes=False)
def move(call: Call[ClockMove]) -> ClockMoved:
    """Set the clock ahead, and do all that falls due meanwhile, in the order of time."""
    now, steps = call.sandbox.timekeeper.move(lambda now: _target(call.given, now))
    return ClockMoved(now=now, steps=steps)


def _target(given: ClockMove, now: datetime) -> datetime:
    if given.to is not None and given.to < now:
        raise invalid_request("the clock never goes back: give a moment to come", "to")
    try:
        target = given.to or Period.parse(given.advance or "").after(now)
    except ValueError as error:
        raise invalid_request(f"advance is {error}: it has no sign and no space", "advance") from None
    except OverflowError:
        target = datetime.max.replace(tzinfo=UTC)
    if target > LAST:
        name = "to" if given.advance is None else "advance"
        raise invalid_request(f"the clock goes up to the year {LAST.year}", name)
    return target
