"""Reading the service's clock, and moving it ahead."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field, StrictStr, model_validator

from billhook.errors import FieldConflict, FieldMissing
from billhook.resources import Resource
from billhook.sandbox.billing import scheduled_jobs
from billhook.sandbox.durations import MAX_TIME, CalendarDuration
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.operations import Call, OperationGroup
from billhook.wire.fields import Integer, UtcDatetime

__all__ = ["CLOCK_GROUP"]

CLOCK_GROUP = OperationGroup("_sandbox/clock", prefix="/_sandbox/clock")


class ClockMove(Resource, register=False):
    """How far to move the clock ahead."""

    advance: Annotated[
        StrictStr | None,
        Field(
            description="How far to move it, as an ISO 8601 duration: P30D, P1M, PT36H.", examples=["P30D"]
        ),
    ] = None
    to: Annotated[
        UtcDatetime | None,
        Field(description="Or the time to move it to, which must not be in the past.", examples=[]),
    ] = None

    # Both together would leave open which of them counts.
    @model_validator(mode="after")
    def _one_goal(self) -> ClockMove:
        if self.advance is None and self.to is None:
            raise FieldMissing("give advance (an ISO 8601 duration) or to (a moment)", "advance")
        if self.advance is not None and self.to is not None:
            raise FieldConflict("advance and to exclude each other: give one of them", "advance", "to")
        return self


class ClockMoved(Resource, register=False):
    """The time after a move, and the number of jobs that it ran."""

    now: Annotated[UtcDatetime, Field(description="The sandbox's time.")]
    steps: Annotated[
        Integer, Field(description="Number of scheduled jobs that fell due and were run.", examples=[3])
    ]


class ClockShown(Resource, register=False):
    """The service's time."""

    now: Annotated[UtcDatetime, Field(description="The sandbox's time.")]
    next_due_at: Annotated[
        UtcDatetime | None, Field(description="When the next scheduled job falls due.")
    ] = None


@CLOCK_GROUP.operation("GET", "", gives=ClockShown)
def show(call: Call[None]) -> ClockShown:
    """Get the service's time."""
    # The field is left out without a job: a field that is set to None is sent as null.
    first = scheduled_jobs.next_due_at(call.tx)
    return ClockShown(now=call.tx.now) if first is None else ClockShown(now=call.tx.now, next_due_at=first)


# writes=False: each job has a transaction of its own, which a write lock held here would block.
@CLOCK_GROUP.operation("POST", "", takes=ClockMove, gives=ClockMoved, writes=False)
def move(call: Call[ClockMove]) -> ClockMoved:
    """Move the clock ahead, running every scheduled job that falls due, in the order of time."""
    # A function instead of a moment: `advance` counts from the end of a move that is still running.
    now, steps = call.services.move_clock(lambda now: _target(call.request, now))
    return ClockMoved(now=now, steps=steps)


def _target(request: ClockMove, now: datetime) -> datetime:
    # Jobs that have run cannot be undone, so the clock never goes back.
    if request.to is not None and request.to < now:
        raise invalid_request("the clock never goes back: give a time in the future", "to")
    try:
        target = request.to or CalendarDuration.parse(request.advance or "").after(now)
    except ValueError as error:
        raise invalid_request(f"advance is {error}: it has no sign and no space", "advance") from None
    except OverflowError:  # beyond the calendar, so beyond MAX_TIME, too
        target = datetime.max.replace(tzinfo=UTC)
    if target > MAX_TIME:
        name = "to" if request.advance is None else "advance"
        raise invalid_request(f"the clock goes up to the year {MAX_TIME.year}", name)
    return target
