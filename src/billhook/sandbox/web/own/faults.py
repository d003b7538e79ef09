"""Faults on request: what is to go wrong with deliveries."""

from __future__ import annotations

import secrets
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Row, insert, select

from billhook.errors import Refusal
from billhook.events import EVENT_TYPES
from billhook.resources import Resource
from billhook.sandbox.limits import MAX_TIMES
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.sending import faults, signing_secrets, subscriptions
from billhook.sandbox.sending.fault_kind import SPOILING, TIMED, FaultKind
from billhook.sandbox.storage.tables.sending import fault
from billhook.sandbox.transaction import Transaction, new_id
from billhook.sandbox.web.operation import Call, Group
from billhook.wire.fields import FromOne, Integer, ListOf, Moment, Number, Text

__all__ = ["GROUP"]

GROUP = Group("_sandbox/faults", prefix="/_sandbox/faults")

MOST_SECONDS = 86_400


class NewFault(Resource, register=False):
    """What is to go wrong. Each delivery is struck once by it at most, and arrives at last."""

    fault: Annotated[Text, Field(description=f"One of {', '.join(FaultKind)}.", examples=["duplicate"])]
    event_type: Annotated[Text | None, Field(description="Only with events of this type.")] = None
    subscription_id: Annotated[Text | None, Field(description="Only with this subscription.")] = None
    probability: Annotated[
        Number | None, Field(description="Over 0 to 1; 1 if not given.", examples=[Decimal("0.5")])
    ] = None
    times: Annotated[FromOne | None, Field(description="How many deliveries it strikes; none: all.")] = None
    seconds: Annotated[
        Number | None,
        Field(description=f"For delay (5 if not given) and reorder (10), at most {MOST_SECONDS}."),
    ] = None
    seed: Annotated[
        Integer | None, Field(description="The same seed strikes the same of the deliveries.")
    ] = None


class Fault(Resource, register=False):
    """What goes wrong."""

    id: Annotated[Text, Field(description="Its id.")]
    fault: Annotated[Text, Field(description=f"One of {', '.join(FaultKind)}.")]
    event_type: Annotated[Text | None, Field(description="Only with events of this type.")] = None
    subscription_id: Annotated[Text | None, Field(description="Only with this subscription.")] = None
    probability: Annotated[Number, Field(description="How likely it strikes.")]
    times: Annotated[Integer | None, Field(description="How many deliveries it strikes.")] = None
    seconds: Annotated[Number | None, Field(description="How long it holds them.")] = None
    seed: Annotated[Integer, Field(description="What it throws its dice by.")]
    struck: Annotated[Integer, Field(description="How many deliveries it has struck.")]
    created_at: Annotated[Moment, Field(description="When it was asked for.")]


class FaultList(Resource, register=False):
    """All faults."""

    faults: Annotated[ListOf[Fault], Field(description="In the order in which they are tried.")]


@GROUP.operation("POST", "", takes=NewFault, gives=Fault)
def add(call: Call[NewFault]) -> Fault:
    """Let something go wrong from now on. Of several that fit, the oldest strikes first."""
    tx, given = call.tx, call.given
    wrong = _wrong(tx, given)
    if wrong is not None:
        raise wrong
    kind = FaultKind(given.fault)
    seed = next(one for one in (given.seed, tx.options.dice, secrets.randbits(31)) if one is not None)
    fault_id = new_id("flt")
    tx.connection.execute(
        insert(fault).values(
            id=fault_id, kind=kind, event_type=given.event_type, subscription_id=given.subscription_id,
            probability=Decimal(1) if given.probability is None else given.probability, times=given.times,
            seconds=Decimal(TIMED[kind]) if kind in TIMED and given.seconds is None else given.seconds,
            seed=str(seed), created_at=tx.now,
        )
    )  # fmt: skip
    return _shown(tx.connection.execute(select(fault).where(fault.c.id == fault_id)).one())


@GROUP.operation("GET", "", gives=FaultList)
def list_all(call: Call[None]) -> FaultList:
    """List what goes wrong, and how often it did."""
    return _all(call.tx)


@GROUP.operation("DELETE", "", gives=FaultList)
def clear(call: Call[None]) -> FaultList:
    """Let nothing go wrong any more; what is held goes at once. Answers what there was."""
    gone = _all(call.tx)
    faults.clear(call.tx)
    return gone


def _all(tx: Transaction) -> FaultList:
    rows = tx.connection.execute(select(fault).order_by(fault.c.seq))
    return FaultList(faults=[_shown(row) for row in rows])


def _wrong(tx: Transaction, given: NewFault) -> Refusal | None:
    if given.fault not in list(FaultKind):
        return invalid_request(f"fault is one of {', '.join(FaultKind)}", "fault")
    kind = FaultKind(given.fault)
    if given.event_type not in (None, *EVENT_TYPES):
        return invalid_request(f"eventType is not one of the {len(EVENT_TYPES)} types", "eventType")
    if given.subscription_id is not None and subscriptions.find(tx, given.subscription_id) is None:
        return invalid_request("there is no such subscription", "subscriptionId")
    if given.probability is not None and not 0 < given.probability <= 1:
        return invalid_request("probability is over 0, and 1 at most", "probability")
    if given.times is not None and given.times > MAX_TIMES:
        return invalid_request(f"times is {MAX_TIMES} at most; leave it out to strike all", "times")
    if given.seconds is not None and kind not in TIMED:
        return invalid_request(f"seconds are for {' and '.join(TIMED)} only: leave them out", "seconds")
    if given.seconds is not None and not 0 < given.seconds <= MOST_SECONDS:
        return invalid_request(f"seconds are over 0, and {MOST_SECONDS} at most", "seconds")
    if kind in SPOILING and not tx.options.retry_seconds:
        return invalid_request("nothing would come after it: the sandbox has no retries", "fault")
    if kind is FaultKind.STALE and not signing_secrets.signer(tx).signs_time:
        name = tx.options.scheme.name
        return invalid_request(f"{name} signs no time here: no delivery can be stale", "fault")
    return None


def _shown(row: Row[Any]) -> Fault:
    names = ("id", "event_type", "subscription_id", "probability", "times", "seconds", "struck", "created_at")
    facts = {name: value for name in names if (value := getattr(row, name)) is not None}
    return Fault(fault=row.kind, seed=int(row.seed), **facts)
