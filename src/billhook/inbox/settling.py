"""Writing how runs ended, and what that makes of their deliveries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, case, exists, insert, update

from billhook.inbox.records import Outcome
from billhook.inbox.runs import UNFINISHED, holds
from billhook.inbox.schema import delivery, failure, run
from billhook.inbox.states import DeliveryState, RunState, check

__all__ = ["settle"]


def settle(connection: Connection, outcomes: Sequence[Outcome]) -> set[int]:
    """Write how runs ended, and what that makes of their deliveries; returns the run ids settled.

    An outcome whose token is no longer the run's own changes nothing: somebody else holds the lease.
    """
    if not outcomes:
        return set()
    settled: set[int] = set()
    succeeded = [outcome for outcome in outcomes if outcome.state is RunState.SUCCEEDED]
    if succeeded:
        settled.update(_finish(connection, succeeded, succeeded[-1]))
    for outcome in outcomes:
        check(RunState.RUNNING, outcome.state)
        if outcome.state is not RunState.SUCCEEDED:
            settled.update(_finish(connection, [outcome], outcome))
    failures = [
        {
            "run_id": outcome.run_id,
            "attempt": outcome.attempt,
            "failed_at": outcome.at,
            "error": outcome.error,
            "traceback": outcome.traceback,
        }
        for outcome in outcomes
        if outcome.run_id in settled and outcome.state in (RunState.DUE, RunState.DEAD)
    ]
    if failures:
        connection.execute(insert(failure), failures)
    _conclude(
        connection,
        {o.delivery_id for o in outcomes if o.run_id in settled and o.state is not RunState.DUE},
    )
    return settled


def _finish(connection: Connection, outcomes: list[Outcome], like: Outcome) -> Iterable[int]:
    """Settle runs that all ended `like` one of them, where the token still holds."""
    values: dict[str, object] = {"state": like.state.value, "last_error": like.error, "lease_owner": None}
    if like.state is RunState.DUE:
        values["due_at"] = like.due_at
    else:
        values["finished_at"] = like.at
    held = [(outcome.run_id, outcome.token) for outcome in outcomes]
    return connection.execute(update(run).where(holds(held)).values(values).returning(run.c.id)).scalars()


def _conclude(connection: Connection, delivery_ids: set[int]) -> None:
    """A delivery whose last run finished is done, or dead if any of them is."""
    if not delivery_ids:
        return
    own = run.c.delivery_id == delivery.c.id
    check(DeliveryState.PLANNED, DeliveryState.DONE)
    check(DeliveryState.PLANNED, DeliveryState.DEAD)
    connection.execute(
        update(delivery)
        .where(
            delivery.c.id.in_(delivery_ids),
            delivery.c.state == DeliveryState.PLANNED.value,
            ~exists().where(own, UNFINISHED),
        )
        .values(
            state=case(
                (exists().where(own, run.c.state == RunState.DEAD.value), DeliveryState.DEAD.value),
                else_=DeliveryState.DONE.value,
            )
        )
    )
