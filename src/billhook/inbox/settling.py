"""Writing how runs ended, and what that makes of their deliveries and of those that waited behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, case, exists, insert, update

from billhook.inbox.clauses import among, in_state
from billhook.inbox.ordering import advance
from billhook.inbox.records import Outcome
from billhook.inbox.runs import holds
from billhook.inbox.schema import delivery, failure, run
from billhook.inbox.states import DeliveryState, RunState, check

__all__ = ["Lease", "conclude", "settle"]

Lease = tuple[int, int]
"""A run's id and its token: one claim of it, and no other."""


class _Settled(NamedTuple):
    run_id: int
    token: int
    handler: str
    order_key: str | None

    @property
    def lease(self) -> Lease:
        return self.run_id, self.token


def settle(connection: Connection, outcomes: Sequence[Outcome]) -> tuple[set[Lease], list[int]]:
    """Write how runs ended, one or more; under billhook.inbox.locks.

    Returns the leases settled, and the deliveries of which a run became due because it is its turn now. An
    outcome whose token is no longer the run's own changes nothing: somebody else holds the lease.
    """
    settled: list[_Settled] = []
    succeeded = [outcome for outcome in outcomes if outcome.state is RunState.SUCCEEDED]
    if succeeded:
        settled.extend(_finish(connection, succeeded, succeeded[-1]))
    for outcome in outcomes:
        check(RunState.RUNNING, outcome.state)
        if outcome.state is not RunState.SUCCEEDED:
            settled.extend(_finish(connection, [outcome], outcome))
    leases = {one.lease for one in settled}
    ours = [outcome for outcome in outcomes if (outcome.run_id, outcome.token) in leases]
    _note_failures(connection, [o for o in ours if o.state in (RunState.DUE, RunState.DEAD)])
    finished = {o.run_id: o.delivery_id for o in ours if o.state is not RunState.DUE}
    conclude(connection, set(finished.values()))
    keys = [(s.handler, s.order_key) for s in settled if s.order_key is not None and s.run_id in finished]
    return leases, advance(connection, keys, max(outcome.at for outcome in outcomes))


def _finish(connection: Connection, outcomes: list[Outcome], like: Outcome) -> Iterable[_Settled]:
    """Settle runs that all ended `like` one of them, where the token still holds."""
    values: dict[str, object] = {"state": like.state.value, "last_error": like.error, "lease_owner": None}
    values["alone"] = 0  # it came back, however it ended
    if like.excused:
        values["excused"] = run.c.excused + 1
    if like.state is RunState.DUE:
        values["due_at"] = like.due_at
    else:
        values["finished_at"] = like.at
    held = [(outcome.run_id, outcome.token) for outcome in outcomes]
    return map(
        _Settled._make,
        connection.execute(
            update(run)
            .where(holds(held))
            .values(values)
            .returning(run.c.id, run.c.token, run.c.handler, run.c.order_key)
        ),
    )


def _note_failures(connection: Connection, failed: Sequence[Outcome]) -> None:
    if failed:
        rows = [
            {
                "run_id": outcome.run_id,
                "attempt": outcome.attempt,
                "failed_at": outcome.at,
                "error": outcome.error,
                "traceback": outcome.traceback,
            }
            for outcome in failed
        ]
        connection.execute(insert(failure), rows)


def conclude(connection: Connection, delivery_ids: set[int]) -> None:
    """A planned delivery without an unfinished run is done, or dead if any of them is."""
    if not delivery_ids:
        return
    own = run.c.delivery_id == delivery.c.id
    check(DeliveryState.PLANNED, DeliveryState.DONE)
    check(DeliveryState.PLANNED, DeliveryState.DEAD)
    unfinished = in_state(run.c.state, RunState.WAITING, RunState.DUE, RunState.RUNNING)
    connection.execute(
        update(delivery)
        .where(
            among(delivery.c.id, delivery_ids),
            delivery.c.state == DeliveryState.PLANNED.value,
            ~exists().where(own, unfinished),
        )
        .values(
            state=case(
                (exists().where(own, run.c.state == RunState.DEAD.value), DeliveryState.DEAD.value),
                else_=DeliveryState.DONE.value,
            )
        )
    )
