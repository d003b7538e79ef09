"""Working off the agenda: as the clock runs, and when it is set ahead."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from billhook.sandbox.billing import agenda
from billhook.sandbox.storage import facts
from billhook.sandbox.transaction import Transaction

if TYPE_CHECKING:
    from billhook.sandbox.sandbox import Sandbox

__all__ = ["Timekeeper"]

_AHEAD = "clock_ahead_microseconds"
_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 10.0

logger = logging.getLogger("billhook.sandbox")


class Timekeeper:
    """Does what falls due, one thing after the other in the order of time, until it is stopped.

    Each step is a transaction of its own, and so far as it brings the clock forward, the clock moves in the
    same one. A process that dies in the middle leaves the clock at the last step that is done: none is left
    out, and none is done twice.
    """

    def __init__(self, sandbox: Sandbox, steps: Mapping[str, Callable[[Transaction, str], None]]) -> None:
        self._sandbox = sandbox
        self._steps = steps
        self._turn = threading.Lock()
        self._rung = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._kept: timedelta | None = None
        """How far ahead the database says; None if that is not certain."""

    def restore(self, connection: Connection) -> None:
        """Set the clock as far ahead as it was when the database was last open."""
        kept = facts.recall(connection, _AHEAD)
        ahead = self._kept = timedelta(microseconds=int(kept or 0))
        self._sandbox.clock.set_ahead(ahead)

    def start(self) -> None:
        """Do what fell due while nobody was there, then follow the clock."""
        self._thread = threading.Thread(target=self._run, name="sandbox-timekeeper", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Something was put on the agenda."""
        self._rung.set()

    def stop(self) -> None:
        """Finish the step that is being done, and do no other."""
        self._stopped.set()
        self._rung.set()
        with self._turn:
            pass
        if self._thread is not None:
            self._thread.join()

    def move(self, target: Callable[[datetime], datetime]) -> tuple[datetime, int]:
        """Set the clock to what `target` makes of its time, doing all that falls due up to then.

        Gives the time that was reached and how many steps it took. Who comes while another moves the clock
        waits, and goes on from there. A step that fails is raised and set aside: it does not stand in the
        way of what comes after it. Then the clock stands at the last step before it.
        """
        with self._turn:
            goal = target(self._sandbox.clock.now())
            steps = self._work_off(goal)
            return self._sandbox.clock.now(), steps

    def _work_off(self, goal: datetime) -> int:
        steps = 0
        while not self._stopped.is_set() and self._step(goal):
            steps += 1
        return steps

    def _step(self, goal: datetime) -> bool:
        item = None
        try:
            with self._sandbox.transaction(writes=True) as tx:
                item = agenda.take(tx, goal)
                if item is not None:
                    tx.now = item.due_at
                    self._steps[item.kind](tx, item.subject_id)
                self._set(tx, goal if item is None else item.due_at)
        except DBAPIError:  # the database's fault, and perhaps over soon
            self._kept = None
            raise
        except Exception as error:
            if item is not None:
                error.add_note(
                    f"the step {item.kind} of {item.subject_id!r}, due {item.due_at}, is set aside"
                )
                with self._sandbox.transaction(writes=True) as tx:
                    agenda.remove(tx, item)
            raise
        return item is not None

    def _set(self, tx: Transaction, moment: datetime) -> None:
        """Set the clock ahead, still within the transaction: the next one to write finds the new time."""
        clock = self._sandbox.clock
        if moment > clock.now():
            clock.set_to(moment)
        ahead = clock.ahead
        if ahead != self._kept:
            value = str(ahead // timedelta(microseconds=1))
            facts.remember(tx.connection, _AHEAD, value)
            self._kept = ahead

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._rung.clear()
            try:
                wait = self._catch_up()
            except Exception:
                logger.exception("what fell due cannot be done: the rest is tried in %g s", _AGAIN_SECONDS)
                wait = _AGAIN_SECONDS
            self._rung.wait(wait)

    def _catch_up(self) -> float:
        """Do what is due. Gives the seconds until it is time to look again."""
        with self._turn:
            if self._stopped.is_set():
                return 0
            clock = self._sandbox.clock
            with self._sandbox.transaction(writes=False) as tx:
                first = agenda.first_due(tx)
            if first is not None and first <= clock.now():
                self._work_off(clock.now())
                return 0
        if first is None:
            return _LOOK_SECONDS
        return min((first - clock.now()).total_seconds(), _LOOK_SECONDS)
