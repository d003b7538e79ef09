"""Find out whether a Celery worker consumes the queue that billhook's messages are sent to.

By `task_routes` they may go to a queue that no worker was started with (`-Q`): nothing fails then, and
nothing is handled. Only the workers know what they consume, so they are asked where deliveries stay
unclaimed:

     0 s  a delivery is stored, and its message sent
    30 s  it is still unclaimed: the workers are asked for the first time
    50 s  the second time: one warning, and the condition `no-consumer` while it lasts

A worker with the pool `solo` answers only between two tasks. So the answers count only if every worker
that the inbox knows has answered, by its process id: that one is busy or away is no reason for a warning.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from billhook.basics.engine_kinds import CELERY
from billhook.engines.celery.broker import CeleryBroker
from billhook.engines.messages.broker import TASK
from billhook.inbox import Inbox
from billhook.inbox.running.workers import read_workers
from billhook.logs import fields

logger = logging.getLogger("billhook.engines")

LOOK_SECONDS = 20.0
"""The pause between two questions to the workers; a worker restarts in less time."""


class Answers(NamedTuple):
    """The answers of the workers: the queues that each one consumes, and whether every one has answered."""

    queues: Mapping[str, Collection[str]]
    complete: bool

    @property
    def consumed(self) -> list[str]:
        """The queues that any of them consumes, by name."""
        return sorted({name for names in self.queues.values() for name in names})


def ask_workers(broker: CeleryBroker, inbox: Inbox, now: datetime) -> Answers:
    """Ask the Celery workers what they consume. Raises any error of the broker, and InboxUnavailable."""
    queues, pids = broker.ask_workers()
    with inbox.database.read() as connection:
        workers = read_workers(connection, now)
    known = Counter(one.pid for one in workers if one.engine == CELERY.name and one.alive)
    return Answers(queues, complete=not known - Counter(pids))


@dataclass(eq=False, repr=False)
class ConsumerWatch:
    """Looks for a queue without a consumer, in a worker's thread that sweeps.

    `own_queues` returns those that this worker consumes; None while it is not connected.
    """

    broker: CeleryBroker
    inbox: Inbox
    own_queues: Callable[[], Collection[str] | None]

    def __post_init__(self) -> None:
        self._look_at = 0.0
        self._times = 0

    def look(self, now: datetime, *, is_unclaimed: bool) -> None:
        """Ask the workers if it is time to, and warn if none consumes the queue.

        `is_unclaimed`: a delivery is late.
        """
        if not is_unclaimed:
            self._times = 0
            return
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        try:
            queue = self._unconsumed(now)
        except Exception:  # noqa: BLE001 - the inbox, brokers and their drivers; the sweep says what they raise
            return
        self._times = 0 if queue is None else self._times + 1
        if queue is None or self._times < 2:
            return
        self.inbox.note_unconsumed(queue, now)
        if self._times == 2:
            text = (
                "no Celery worker consumes the queue %s, which %s is routed to: deliveries wait; start a "
                "worker with -Q %s, or change task_routes"
            )
            logger.warning(text, queue, TASK, queue, extra=fields(cause="no-consumer"))

    def _unconsumed(self, now: datetime) -> str | None:
        """Return the queue, if it is certain that no worker consumes it."""
        queue, own = self.broker.queue_name(), self.own_queues()
        if queue is None or own is None or queue in own:
            return None
        answers = ask_workers(self.broker, self.inbox, now)
        return None if not answers.complete or queue in answers.consumed else queue
