"""Settle runs: write their results, finish their deliveries, release the next run of each order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, case, exists, insert, update

from billhook.inbox.claims import is_held
from billhook.inbox.ordering import release_next
from billhook.inbox.records import Lease, RunResult
from billhook.inbox.schema import delivery, failure, run
from billhook.inbox.sql import in_states, in_values
from billhook.inbox.states import DeliveryState, RunState, check

__all__ = ["finish_deliveries", "settle"]


class _SettledRun(NamedTuple):
    run_id: int
    token: int
    handler: str
    order_key: str | None

    @property
    def lease(self) -> Lease:
        return Lease(self.run_id, self.token)


def settle(connection: Connection, outcomes: Sequence[RunResult]) -> tuple[set[Lease], list[int]]:
    """Write the results of runs; under billhook.inbox.locks.

    Returns the leases settled, and the deliveries of which a run became due because the one before it in its
    order finished. A result with an old fencing token changes nothing: another worker holds the lease.
    """
    settled: list[_SettledRun] = []
    succeeded = [outcome for outcome in outcomes if outcome.state is RunState.SUCCEEDED]
    if succeeded:
        settled.extend(_write_results(connection, succeeded, succeeded[-1]))
    for outcome in outcomes:
        check(RunState.RUNNING, outcome.state)
        if outcome.state is not RunState.SUCCEEDED:
            settled.extend(_write_results(connection, [outcome], outcome))
    leases = {one.lease for one in settled}
    ours = [outcome for outcome in outcomes if outcome.lease in leases]
    _note_failures(connection, [o for o in ours if o.state in (RunState.DUE, RunState.DEAD)])
    finished = {o.run_id: o.delivery_id for o in ours if o.state is not RunState.DUE}
    finish_deliveries(connection, set(finished.values()))
    keys = [(s.handler, s.order_key) for s in settled if s.order_key is not None and s.run_id in finished]
    return leases, release_next(connection, keys, max(outcome.at for outcome in outcomes))


def _write_results(
    connection: Connection, outcomes: list[RunResult], like: RunResult
) -> Iterable[_SettledRun]:
    """Settle runs that all ended `like` one of them, where the lease still holds."""
    values: dict[str, object] = {"state": like.state.value, "last_error": like.error, "lease_owner": None}
    values["alone"] = 0  # it did not kill its worker, however it ended
    if like.excused:
        values["excused"] = run.c.excused + 1
    if like.state is RunState.DUE:
        values["due_at"] = like.due_at
    else:
        values["finished_at"] = like.at
    held = [outcome.lease for outcome in outcomes]
    return map(
        _SettledRun._make,
        connection.execute(
            update(run)
            .where(is_held(held))
            .values(values)
            .returning(run.c.id, run.c.token, run.c.handler, run.c.order_key)
        ),
    )


def _note_failures(connection: Connection, failed: Sequence[RunResult]) -> None:
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


def finish_deliveries(connection: Connection, delivery_ids: set[int]) -> None:
    """Finish planned deliveries without an unfinished run: done, or dead if any run is dead."""
    if not delivery_ids:
        return
    own = run.c.delivery_id == delivery.c.id
    unfinished = in_states(run.c.state, RunState.WAITING, RunState.DUE, RunState.RUNNING)
    connection.execute(
        update(delivery)
        .where(
            in_values(delivery.c.id, delivery_ids),
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
