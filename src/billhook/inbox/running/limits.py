"""Limit handlers over all workers: how many of their runs execute at once or start in a time; or pause them.

A claim asks, for each handler with due runs, for as many as may start now: its capacity. A paused handler has
none, `at_most` less the runs under way is the capacity of a handler with that limit, and `rate` gives as many
as the time since its last start allows. The capacities are read under a lock that is the same for all
handlers and workers. Runs for which there is no capacity stay due, lose no attempt, and are claimed before
those that become due later. With `at_most=2`, and the runs 1, 2 and 3 due:

    0 s  a claim has capacity for two, and starts 1 and 2
    4 s  1 is settled, and the same transaction claims 3, or has another worker notified of it

Had the worker of 1 died instead, there would be capacity for 3 when the lease of 1 has ended.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, and_, func, insert, or_, select, union_all, update

from billhook.inbox.running.due import IS_PAUSED, count_running, due_runs
from billhook.inbox.tables.handler_names import PRESENT_NAME, has_name_of, present_names
from billhook.inbox.tables.locks import lock_limits
from billhook.inbox.tables.records import Claim, HandlerLimits, PausedHandler, own_name
from billhook.inbox.tables.schema import handler, run
from billhook.inbox.tables.sql import in_states, in_values
from billhook.inbox.tables.states import RunState

BURST_SECONDS = 0.05
"""A rate's starts of this time may be made at once: with a transaction for each, no rate could be high."""
PAUSED_COUNT = select(func.count()).where(IS_PAUSED).scalar_subquery()
"""How many handlers are paused: mostly none."""
_PAUSED_HANDLERS = select(PRESENT_NAME).where(IS_PAUSED)
PAUSED_RUN = and_(
    in_states(run.c.state, RunState.WAITING, RunState.DUE),
    # Under every name of a handler that is paused under any of them.
    run.c.handler.in_(
        union_all(
            _PAUSED_HANDLERS,
            select(handler.c.name).where(or_(IS_PAUSED, handler.c.renamed_to.in_(_PAUSED_HANDLERS))),
        )
    ),
)
"""A run that waits because its handler is paused."""
_ERASED = "erased with its delivery"


@dataclass(eq=False, repr=False)
class Limiter:
    """Decides in one transaction which runs may start; `limits` are by the names that runs are stored under.

    `results` are the names that settled runs are stored under, with their errors; None for a success. Call
    `count_failures` after what takes other locks, and `capacities` after that. `paused` are the handlers that
    `count_failures` paused.
    """

    connection: Connection
    limits: Mapping[str, HandlerLimits]
    results: list[tuple[str, str | None]] = field(default_factory=list)
    paused: list[PausedHandler] = field(default_factory=list)
    _left: dict[str, int] = field(default_factory=dict)

    def _bounded(self, names: Iterable[str]) -> dict[str, HandlerLimits]:
        """Return the limits of those of the handlers that have some, by their own names."""
        found = (self.limits[name] for name in names if name in self.limits)
        return {limits.name: limits for limits in found if limits.bounds_starts}

    def _read(self, names: Collection[str]) -> dict[str, Row[Any]]:
        """Return the rows of these handlers by name; one that has none is given one.

        For a handler that newer code has renamed it is the row of the new name: they are one handler.
        """
        query = select(handler).where(in_values(handler.c.name, sorted(names)))
        found = {row.name: row for row in self.connection.execute(query)}
        missing = [name for name in names if name not in found]
        if missing:
            self.connection.execute(insert(handler), [{"name": name} for name in missing])
            return self._read(names)
        renamed = {name: row.renamed_to for name, row in found.items() if row.renamed_to is not None}
        present = self._read({*renamed.values()}) if renamed else {}
        return found | {name: present[to] for name, to in renamed.items()}

    def _write(self, row: Row[Any], **values: Any) -> None:
        self.connection.execute(update(handler).where(handler.c.id == row.id).values(values))

    def capacities(
        self, names: Collection[str], most: int, now: datetime, idle: int | None
    ) -> dict[str, int]:
        """Return how many runs of each handler may be claimed, `most` of each; 0 of one that is paused.

        The handlers are by the names that their runs are stored under; several may be of one handler, which
        `admit` looks at. `idle` threads are free (None: all that are claimed start at once): where a rate
        counts starts, a run is not claimed before it can start.
        """
        bounded = self._bounded(names)
        if bounded:
            lock_limits(self.connection)
            rows, running = self._read(bounded), count_running(self.connection, bounded.values())
            for name, limits in bounded.items():
                capacity = most if limits.at_most is None else limits.at_most - running[name]
                if limits.rate is not None:
                    capacity = min(
                        capacity, _starts(rows[name], limits.rate, now), most if idle is None else idle
                    )
                self._left[name] = max(0, capacity)
        self._left |= dict.fromkeys(self._paused_as_others(names), 0)
        return {name: min(most, self._left.get(own_name(self.limits, name), most)) for name in names}

    def _paused_as_others(self, names: Iterable[str]) -> set[str]:
        """Return those of the handlers that are paused now, or under another of their names."""
        aliased = [self.limits[name].names for name in names if name in self.limits]
        every = {name for of_it in aliased if len(of_it) > 1 for name in of_it}
        paused = {each.name for each in self.paused}
        if every:
            query = select(handler.c.name).where(IS_PAUSED, in_values(handler.c.name, sorted(every)))
            paused.update(self.connection.execute(query).scalars())
        return {own_name(self.limits, name) for name in paused}

    def admit(self, rows: Sequence[Row[Any]], idle: int | None) -> list[Row[Any]]:
        """Return those of the runs that may start, where a handler's runs are stored under several names.

        Runs whose starts are counted come first, at most `idle` of all handlers together: they must not
        wait for a thread.
        """
        taken: Counter[str] = Counter()
        admitted: list[Row[Any]] = []
        for row in sorted(rows, key=lambda row: not self._has_rate(row.handler)):
            if idle is not None and len(admitted) >= idle and self._has_rate(row.handler):
                continue
            name = own_name(self.limits, row.handler)
            taken[name] += 1
            if taken[name] <= self._left.get(name, taken[name]):
                admitted.append(row)
        return admitted

    def _has_rate(self, stored_under: str) -> bool:
        """Return whether the starts of a handler's runs are counted."""
        limits = self.limits.get(stored_under)
        return limits is not None and limits.rate is not None

    def record_started(self, claims: Iterable[Claim], now: datetime) -> None:
        """Count claimed runs against the rates of their handlers."""
        names = (claim.handler for claim in claims if self._has_rate(claim.handler))
        started = Counter(own_name(self.limits, name) for name in names)
        for name, state in self._read(started).items() if started else ():
            if (rate := self.limits[name].rate) is not None:
                interval, _ = _interval_and_burst(rate)
                self._write(state, next_start_at=_next_start(state, rate, now) + interval * started[name])

    def startable(self, settled: Collection[str], now: datetime) -> list[int]:
        """Return deliveries whose runs may start because runs of these handlers were settled."""
        bounded = self._bounded(settled)
        running = count_running(self.connection, bounded.values())
        deliveries: list[int] = []
        for name, limits in bounded.items():
            # A settled run gives capacity where runs under way are counted, not where starts are.
            capacity = 0 if limits.at_most is None or limits.rate else limits.at_most - running[name]
            for stored_under in limits.names if capacity > 0 else ():
                due = self.connection.execute(due_runs(stored_under, now, capacity)).all()
                deliveries += [row.delivery_id for row in due]
        return deliveries

    def count_failures(self, now: datetime) -> None:
        """Count the failed attempts in a row of handlers with `pause_after`, and pause those with too many.

        It counts the `results` since the last call, and takes the lock of limits, which is the last to take.
        """
        results, self.results = self.results, []
        by_name: defaultdict[str, list[str | None]] = defaultdict(list)
        for stored_under, error in results:
            limits = self.limits.get(stored_under)
            if limits is not None and limits.pause_after is not None:
                by_name[limits.name].append(error)
        if not by_name:
            return
        lock_limits(self.connection)
        for name, state in self._read(by_name).items():
            failures, most = state.failures, self.limits[name].pause_after
            why = last_error = None
            for error in by_name[name]:
                failures = 0 if error is None else failures + 1
                # Or more: the option may have been lowered since they were counted.
                if why is None and most is not None and failures >= most:
                    why, last_error = f"{failures} failed attempts in a row", error
            if why is not None and state.paused_at is None:
                self._write(state, failures=failures)
                _pause(self.connection, state.name, paused_at=now, paused_why=why, paused_error=last_error)
                self.paused.append(PausedHandler(name, now, _reason(why, last_error)))
            elif failures != state.failures:
                self._write(state, failures=failures)


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


def _starts(state: Row[Any], rate: tuple[int, float], now: datetime) -> int:
    """Return how many runs may start now by the rate."""
    interval, _ = _interval_and_burst(rate)
    waited = now - _next_start(state, rate, now)
    return 0 if waited < timedelta(0) else int(waited / interval) + 1


def _reason(why: str | None, error: str | None) -> str | None:
    """Return why a handler is paused, with the error that was the last."""
    return why if error is None else f"{why}, the last one: {error}"


def find_paused(connection: Connection, name: str | None = None) -> list[PausedHandler]:
    """Return the paused handlers, by the names that they have now; or the one that has, or had, a name."""
    columns = (PRESENT_NAME.label("name"), handler.c.paused_at, handler.c.paused_why, handler.c.paused_error)
    rows = connection.execute(select(*columns).where(IS_PAUSED))
    present = None if name is None else present_names(connection).get(name, name)
    # Of one that is paused under several names, the first pause.
    latest_first = sorted(rows, key=lambda row: row.paused_at, reverse=True)
    found = {
        own: PausedHandler(own, since, _reason(why, error))
        for own, since, why, error in latest_first
        if present in (None, own)
    }
    return sorted(found.values(), key=lambda each: each.name)


def pause(connection: Connection, name: str, why: str | None, now: datetime) -> bool:
    """Pause a handler; False if it was paused already: then its time stays, and without `why` its reason."""
    lock_limits(connection)
    own = select(handler).where(has_name_of(handler.c.name, name))
    states = connection.execute(own).all()
    name = next((each.renamed_to for each in states if each.renamed_to is not None), name)
    since = min((each.paused_at for each in states if each.paused_at is not None), default=None)
    if not any(each.name == name for each in states):
        connection.execute(insert(handler).values(name=name))
    if since is None or why:
        _pause(connection, name, paused_at=since or now, paused_why=why, paused_error=None)
    return since is None


def _pause(connection: Connection, name: str, **values: Any) -> None:
    # Under its former names too: processes of older code know it by one of them.
    pausing = update(handler).where(or_(handler.c.name == name, handler.c.renamed_to == name))
    connection.execute(pausing.values(values))


def pause_renamed(connection: Connection, names: Collection[str]) -> None:
    """Pause handlers under all their names where they are paused under one: those that have been renamed."""
    own = PRESENT_NAME.label("own")
    rows = connection.execute(select(own, handler).where(in_values(PRESENT_NAME, sorted(names)))).all()
    paused = {row.own: row for row in rows if row.paused_at is not None}
    if paused:
        lock_limits(connection)
    for name, row in sorted(paused.items()):
        if not any(each.name == name for each in rows):
            connection.execute(insert(handler).values(name=name))
        values = {"paused_why": row.paused_why, "paused_error": row.paused_error}
        _pause(connection, name, paused_at=row.paused_at, **values)


def resume(connection: Connection, name: str) -> bool:
    """Resume a paused handler, with no failures counted; False if it was not paused."""
    lock_limits(connection)
    values = {"paused_at": None, "paused_why": None, "paused_error": None, "failures": 0}
    resumed = update(handler).where(has_name_of(handler.c.name, name), IS_PAUSED)
    return bool(connection.execute(resumed.values(values)).rowcount)


def forget_errors(connection: Connection, errors: Collection[str]) -> None:
    """Remove these errors from the reasons why handlers were paused after failures in a row."""
    query = select(handler.c.id).where(in_values(handler.c.paused_error, sorted(errors)))
    if connection.execute(query).first():
        lock_limits(connection)
        forgotten = update(handler).where(in_values(handler.c.paused_error, sorted(errors)))
        connection.execute(forgotten.values(paused_error=_ERASED))
