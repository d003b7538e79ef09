"""Limit handlers over all workers: how many of their runs execute at once or start in a time; or pause them.

A claim finds due runs that may not start now, and holds them. A held run is still due, but at a moment that
never comes, one moment for each handler. So no claim, poll or sweep reads it again, the index by `due_at`
finds the held runs of a handler, and the runs after it in its order go on waiting. It loses no attempt. It is
released, so that it is due since its delivery was received, when its handler may start more:

- limited by `at_most`: in the transaction that settles a run of the handler
- limited by `rate`: at the time of the next start
- paused: when an operator resumes it, a batch in each poll

Only the claim decides whether a run starts, under a lock that is the same for all handlers and workers. A
release is no promise: the run may be held again. With `at_most=2`, and the runs 1, 2 and 3 due:

    0 s  a claim starts 1 and 2, and holds 3
    4 s  1 is settled, and the same transaction releases 3
    4 s  the next claim starts 3, or holds it again if another worker started a run meanwhile

Had the worker of 1 died instead, a poll would release 3 a second after the lease of 1 expires, at the latest.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    case,
    func,
    insert,
    or_,
    select,
    update,
)

from billhook.inbox.locks import lock_limits
from billhook.inbox.pending import CLAIMABLE, HELD_FROM
from billhook.inbox.records import Claim, HandlerLimits, Lease, PausedHandler
from billhook.inbox.schema import delivery, handler, run
from billhook.inbox.sql import in_parameter, in_states, in_values, seconds_after
from billhook.inbox.states import RunState

BATCH = 500
"""Runs held or released for one handler in one transaction, where no limit says fewer."""
BURST_SECONDS = 0.05
"""The starts of this time may be made together: with a transaction for each, no rate could be high."""
RECHECK_SECONDS = 1.0
"""Runs that are settled release others at once. For runs lost with their worker, which settle nothing, the
limits are checked again after this time."""

PAUSED_COUNT = select(func.count()).where(handler.c.paused_at.is_not(None)).scalar_subquery()
"""How many handlers are paused: mostly none, and then a claim need not ask which."""
_IS_PAUSED = handler.c.paused_at.is_not(None)
PAUSED_RUN = and_(
    in_states(run.c.state, RunState.WAITING, RunState.DUE),
    or_(
        run.c.handler.in_(select(handler.c.name).where(_IS_PAUSED)),
        # Held for a paused handler, whose former name it is stored under.
        run.c.due_at.in_(select(seconds_after(HELD_FROM, handler.c.id)).where(_IS_PAUSED)),
    ),
)
"""A run that waits because its handler is paused."""
_LAST = ", the last one: "
_MOMENT = bindparam("moment", type_=run.c.due_at.type)
_RECEIVED_AT = select(delivery.c.received_at).where(delivery.c.id == run.c.delivery_id).scalar_subquery()
_MOVE = update(run).where(in_parameter(run.c.id, "run_ids")).returning(run.c.delivery_id)
_HOLD = _MOVE.values(due_at=_MOMENT)
_RELEASE = _MOVE.values(due_at=case((_RECEIVED_AT < _MOMENT, _RECEIVED_AT), else_=_MOMENT))
"""Due since the delivery came: behind the others that are due, a run would wait for them each time again."""


class Limiter:
    """Decides in one transaction which runs may start; `limits` are by the names that runs are stored under.

    Call `record_results` and `release` after what takes other locks, and `admit` after them. `held` says
    whether `admit` held a run; `released` are the deliveries of which a run was released; `paused` are the
    handlers that `record_results` paused.
    """

    def __init__(self, connection: Connection, limits: Mapping[str, HandlerLimits]) -> None:
        self._connection = connection
        self._limits = limits
        self._locked = False
        self._released_of: set[str] = set()
        self.held = False
        self.released: list[int] = []
        self.paused: list[PausedHandler] = []

    def _lock(self) -> None:
        if not self._locked:
            lock_limits(self._connection)
            self._locked = True

    def _bounds_starts(self, stored_under: str) -> bool:
        limits = self._limits.get(stored_under)
        return limits is not None and limits.bounds_starts

    def _own_name(self, stored_under: str) -> str:
        limits = self._limits.get(stored_under)
        return stored_under if limits is None else limits.name

    def _read(self, names: Collection[str]) -> dict[str, Row[Any]]:
        """Return the rows of these handlers by name; a limited one that has none is given one."""
        query = select(handler).where(in_values(handler.c.name, sorted(names)))
        found = {row.name: row for row in self._connection.execute(query)}
        missing = [name for name in names if name not in found and self._needs_row(name)]
        if missing:
            self._connection.execute(insert(handler), [{"name": name} for name in missing])
            return self._read(names)
        return found

    def _states(self, names: set[str], *, paused: int) -> dict[str, Row[Any]]:
        """Return what is known of these handlers: the row of a former name, if that one is paused."""
        states = self._read(names)
        if paused:
            for row in self._connection.execute(select(handler).where(handler.c.paused_at.is_not(None))):
                name = self._own_name(row.name)
                if name in names and (name not in states or states[name].paused_at is None):
                    states[name] = row
        return states

    def _needs_row(self, name: str) -> bool:
        limits = self._limits.get(name)
        return limits is not None and (limits.bounds_starts or limits.pause_after is not None)

    def _write(self, row: Row[Any], **values: Any) -> None:
        self._connection.execute(update(handler).where(handler.c.id == row.id).values(values))

    # --- claim ----------------------------------------------------------------------------------------

    def admit(self, rows: list[Row[Any]], now: datetime, idle: int | None) -> list[Row[Any]]:
        """Return which of some due runs may start, and hold the others, with more of their handlers.

        With fewer returned than given there may be others to start: read the due runs again. The first `idle`
        start at once (None: all), the others when a thread is free. Where a rate counts starts, a run is not
        claimed before.
        """
        if not (rows[0].paused or any(self._bounds_starts(row.handler) for row in rows)):
            return rows
        self._lock()
        states = self._states({self._own_name(row.handler) for row in rows}, paused=rows[0].paused)
        left = {name: self._allowance(row, now) for name, row in states.items()}
        admitted: list[Row[Any]] = []
        over_limit: dict[str, Row[Any]] = {}
        # The longest waiting first: held runs are released before one that is due only now is admitted.
        released_first = {name for name, row in states.items() if self._release_held_first(row, now)}
        for row in rows:
            name = self._own_name(row.handler)
            if name in released_first:
                continue
            if name not in states:
                admitted.append(row)
            elif left[name] and (idle is None or len(admitted) < idle or not self._rate(name)):
                left[name] -= 1
                admitted.append(row)
            else:
                over_limit[name] = states[name]
        for state in over_limit.values():
            self._hold(state, now, [row.run_id for row in admitted])
        return admitted

    def _release_held_first(self, state: Row[Any], now: datetime) -> bool:
        """Release held runs of a handler that has some; return whether the due runs have to be read again."""
        if state.release_at is None or state.name in self._released_of:
            return False
        return bool(self._release(state, now))

    def record_started(self, claims: Iterable[Claim], now: datetime) -> None:
        """Count claimed runs against the limits of their handlers."""
        by_name: defaultdict[str, list[Claim]] = defaultdict(list)
        for claim in claims:
            if self._bounds_starts(claim.handler):
                by_name[self._own_name(claim.handler)].append(claim)
        for name, state in self._read(by_name).items() if by_name else ():
            values: dict[str, Any] = {}
            if self._limits[name].at_most is not None:
                started = [*self._started(state), *(claim.lease for claim in by_name[name])]
                values["started"] = json.dumps(sorted(set(started)))
            if (rate := self._rate(name)) is not None:
                interval, _ = _interval_and_burst(rate)
                values["next_start_at"] = _next_start(state, rate, now) + interval * len(by_name[name])
            self._write(state, **values)

    def _rate(self, name: str) -> tuple[int, float] | None:
        limits = self._limits.get(name)
        return None if limits is None else limits.rate

    def _allowance(self, state: Row[Any], now: datetime) -> int:
        """Return how many more runs of a handler may start now."""
        if state.paused_at is not None:
            return 0
        return max(0, min(self._free(state), _starts(state, self._rate(state.name), now)))

    def _free(self, state: Row[Any]) -> int:
        limits = self._limits.get(state.name)
        if limits is None or limits.at_most is None:
            return BATCH
        return limits.at_most - len(self._started(state))

    def _started(self, state: Row[Any]) -> list[Lease]:
        """Return the started runs of a handler that were not settled, lost or claimed anew since."""
        known = {Lease(*pair) for pair in json.loads(state.started)}
        running = select(run.c.id, run.c.token).where(
            in_values(run.c.id, [lease.run_id for lease in known]), run.c.state == RunState.RUNNING.value
        )
        return [lease for lease in map(Lease._make, self._connection.execute(running)) if lease in known]

    # --- hold and release -----------------------------------------------------------------------------

    def _hold(self, state: Row[Any], now: datetime, admitted: Collection[int]) -> None:
        names = self._limits[state.name].names if state.name in self._limits else (state.name,)
        due = [run.c.state == RunState.DUE.value, run.c.due_at <= now, in_values(run.c.handler, names)]
        self._move([*due, ~in_values(run.c.id, admitted)], BATCH, _held_at(state))
        self.held = True
        if state.paused_at is None:
            self._write(state, release_at=self._next_release(state, now))

    def _move(self, conditions: Iterable[ColumnElement[bool]], limit: int, moment: datetime) -> list[int]:
        """Make due runs due at another moment; return their deliveries."""
        # Two statements: in one, PostgreSQL may run the inner one again, and find other rows.
        query = select(run.c.id).where(CLAIMABLE, *conditions).order_by(run.c.due_at, run.c.id).limit(limit)
        run_ids = list(self._connection.execute(query.with_for_update(skip_locked=True)).scalars())
        move = _HOLD if moment >= HELD_FROM else _RELEASE
        return list(self._connection.execute(move, {"run_ids": run_ids, "moment": moment}).scalars())

    def release(self, settled: Collection[str], now: datetime, *, release_due: bool) -> None:
        """Release held runs of handlers of which a run was `settled`, or whose time has come."""
        own_names = {self._own_name(name) for name in settled if self._bounds_starts(name)}
        if not (own_names or release_due):
            return
        self._lock()
        query = select(handler).where(
            handler.c.paused_at.is_(None),
            handler.c.release_at.is_not(None),
            or_(handler.c.release_at <= now, in_values(handler.c.name, sorted(own_names))),
        )
        for state in self._connection.execute(query).all():
            self._release(state, now)

    def _release(self, state: Row[Any], now: datetime) -> list[int]:
        """Release as many held runs of a handler as may start now; return their deliveries."""
        held = [run.c.state == RunState.DUE.value, run.c.due_at == _held_at(state)]
        allowance = self._allowance(state, now)
        moved = self._move(held, allowance, now)
        # Fewer than may start: none is left. But a row that another transaction locks was skipped.
        left = select(run.c.id).where(CLAIMABLE, *held).limit(1)
        some_left = len(moved) == allowance or self._connection.execute(left).first() is not None
        self._write(state, release_at=self._next_release(state, now) if some_left else None)
        self._released_of.add(state.name)
        self.released += moved
        return moved

    def _next_release(self, state: Row[Any], now: datetime) -> datetime:
        """Return when to look at the held runs of a handler again, if none of its runs is settled before."""
        limits, rate = self._limits.get(state.name), self._rate(state.name)
        if limits is not None and limits.at_most is not None and (rate is None or self._free(state) <= 0):
            return now + timedelta(seconds=RECHECK_SECONDS)
        if rate is None:
            return now
        next_start = _next_start(state, rate, now)
        # Where runs may start now, some were just released or claimed: these take the time until the next.
        return next_start if next_start > now else now + _interval_and_burst(rate)[0]

    # --- failures in a row ----------------------------------------------------------------------------

    def record_results(self, results: Sequence[tuple[str, str | None]], now: datetime) -> None:
        """Count the failed attempts in a row of handlers with `pause_after`, and pause those with too many.

        `results` are the names that settled runs are stored under, with their errors; None for a success.
        """
        by_name: defaultdict[str, list[str | None]] = defaultdict(list)
        for stored_under, error in results:
            limits = self._limits.get(stored_under)
            if limits is not None and limits.pause_after is not None:
                by_name[limits.name].append(error)
        if not by_name:
            return
        self._lock()
        for name, state in self._read(by_name).items():
            failures, most = state.failures, self._limits[name].pause_after
            why = None
            for error in by_name[name]:
                failures = 0 if error is None else failures + 1
                # Or more: the option may have been lowered since they were counted.
                if why is None and most is not None and failures >= most:
                    why = f"{failures} failed attempts in a row{_LAST}{error}"
            if why is not None and state.paused_at is None:
                self._write(state, failures=failures, paused_at=now, paused_why=why, release_at=None)
                self.paused.append(PausedHandler(name, now, why))
            elif failures != state.failures:
                self._write(state, failures=failures)


def _held_at(state: Row[Any]) -> datetime:
    return HELD_FROM + timedelta(seconds=state.id)


def _interval_and_burst(rate: tuple[int, float]) -> tuple[timedelta, int]:
    """Return the time between two starts, and how many may be made together."""
    number, seconds = rate
    burst = max(1, int(number * BURST_SECONDS / seconds))
    # Slower by the burst: in no stretch of `seconds` there are more than `number` starts. Rounded up: by
    # intervals that are a little too short, one more would fit in.
    return timedelta(microseconds=math.ceil(seconds * 1e6 / (number - burst + 1))), burst


def _next_start(state: Row[Any], rate: tuple[int, float], now: datetime) -> datetime:
    """Return when the next run may start; starts that were not used in time are lost, but for a burst."""
    interval, burst = _interval_and_burst(rate)
    earliest: datetime = now - interval * (burst - 1)
    return earliest if state.next_start_at is None else max(state.next_start_at, earliest)


def _starts(state: Row[Any], rate: tuple[int, float] | None, now: datetime) -> int:
    """Return how many runs may start now by the rate."""
    if rate is None:
        return BATCH
    interval, _ = _interval_and_burst(rate)
    waited = now - _next_start(state, rate, now)
    return 0 if waited < timedelta(0) else int(waited / interval) + 1


# --- for operators ------------------------------------------------------------------------------------


def find_paused(connection: Connection) -> list[PausedHandler]:
    """Return the paused handlers, by name."""
    query = select(handler.c.name, handler.c.paused_at, handler.c.paused_why)
    rows = connection.execute(query.where(handler.c.paused_at.is_not(None)).order_by(handler.c.name))
    return [PausedHandler(*row) for row in rows]


def pause(connection: Connection, name: str, why: str | None, now: datetime) -> bool:
    """Pause a handler; False if it was paused already, which keeps its time and takes the new reason."""
    lock_limits(connection)
    state = connection.execute(select(handler).where(handler.c.name == name)).first()
    if state is None:
        connection.execute(insert(handler).values(name=name, paused_at=now, paused_why=why))
        return True
    values = {"paused_at": state.paused_at or now, "paused_why": why, "release_at": None}
    connection.execute(update(handler).where(handler.c.id == state.id).values(values))
    return state.paused_at is None


def resume(connection: Connection, name: str, now: datetime) -> bool:
    """Resume a paused handler, with no failures counted; False if it was not paused."""
    lock_limits(connection)
    values = {"paused_at": None, "paused_why": None, "failures": 0, "release_at": now}
    resumed = update(handler).where(handler.c.name == name, handler.c.paused_at.is_not(None))
    return bool(connection.execute(resumed.values(values)).rowcount)


def forget_errors(connection: Connection, errors: Collection[str]) -> None:
    """Remove these errors from the reasons why handlers were paused after failures in a row."""
    for paused in find_paused(connection):
        before, last, error = (paused.why or "").partition(_LAST)
        if last and error in errors:
            lock_limits(connection)
            same = update(handler).where(handler.c.name == paused.name, handler.c.paused_why == paused.why)
            connection.execute(same.values(paused_why=f"{before}{last}erased with its delivery"))
