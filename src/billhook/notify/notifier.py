"""The notifier: a thread that sends messages about issues that have opened, and one when all is well again.

Every worker has one, and a row of the inbox decides which of them sends. A message counts as sent when each
address has the message, or has refused it five times. A process that dies in between leaves the message to
another one: it may come twice, and is not lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

from billhook.errors import BillhookError, OutOfResources
from billhook.inbox import Inbox
from billhook.inbox.notifications import due_notifications, record_sent
from billhook.logs import fields
from billhook.notify.addresses import NotifyAddress
from billhook.notify.messages import Message, messages
from billhook.threads import reset_in_child, start_thread, unique_process_name

logger = logging.getLogger("billhook.notify")

POLL_SECONDS = 5.0
TRIES = 5
RETRY_SECONDS = 15.0
"""After the first failure; doubled each time."""


class Notifier:
    """Sends from a thread of its own, because a mail server may take its time."""

    def __init__(
        self,
        inbox: Inbox,
        addresses: Sequence[NotifyAddress],
        now: Callable[[], datetime],
        program: Callable[[], str],
        dashboard_url: str | None = None,
    ) -> None:
        """`program` returns the beginning of a command line that works on the same inbox."""
        self._inbox = inbox
        self._addresses = addresses
        self._now = now
        self._program = program
        self._dashboard_url = dashboard_url
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self._owner = unique_process_name()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._tries: Counter[tuple[str, int]] = Counter()
        self._done: set[tuple[str, int]] = set()
        self._retry_at: dict[int, float] = {}
        self._given_up: set[int] = set()
        """Addresses that refused a message for good: each further one is tried once, until one is taken."""

    def ensure_started(self) -> None:
        """Start the thread in this process, unless it runs."""
        if self._thread is None or not self._thread.is_alive():
            self._stopping.clear()
            try:
                self._thread = start_thread(self._work, "billhook-notifier")
            except OutOfResources as error:
                logger.warning("%s", error, extra=fields(cause=error))

    def stop(self) -> None:
        """End the thread; a message that is being sent is not waited for."""
        self._stopping.set()

    def _work(self) -> None:
        while not self._stopping.wait(POLL_SECONDS):
            try:
                self.send_due()
            except BillhookError as error:
                logger.warning("notifications wait: %s", error, extra=fields(cause=error))
            except Exception as error:
                logger.exception("notifications failed", extra=fields(cause=error))

    def send_due(self) -> int:
        """Send what is due if this process is the one to do it; return how many messages were finished."""
        now = self._now()
        due = due_notifications(self._inbox, self._owner, now)
        if due is None:
            return 0
        finished = 0
        for message in messages(due, now, self._program(), self._dashboard_url):
            if self._send(message):
                record_sent(self._inbox, message.issues, now)
                finished += 1
        return finished

    def _send(self, message: Message) -> bool:
        """Send a message to each address that has not had it; return whether all have, or never will."""
        key = "".join(f"{one.id}{one.opened_at}" for one in message.issues)
        keys = [(key, place) for place in range(len(self._addresses))]
        for own, address in zip(keys, self._addresses, strict=True):
            # An address that fails holds up no other one: it waits for its own next try.
            if own not in self._done and time.monotonic() >= self._retry_at.get(own[1], 0.0):
                self._send_to(address, own, message)
        if not self._done.issuperset(keys):
            return False
        for own in keys:
            self._done.discard(own)
            self._tries.pop(own, None)
        return True

    def _send_to(self, address: NotifyAddress, own: tuple[str, int], message: Message) -> None:
        place = own[1]
        why = address.send(message.title, message.body, good=not message.issues)
        if why is None:
            self._done.add(own)
            self._given_up.discard(place)
            return
        self._tries[own] += 1
        if place in self._given_up or self._tries[own] >= TRIES:
            self._done.add(own)
            self._given_up.add(place)
        else:
            self._retry_at[place] = time.monotonic() + RETRY_SECONDS * 2 ** (self._tries[own] - 1)
        text = "could not notify address %d (%s), %s: %s"
        what = "given up" if own in self._done else "to be tried again"
        logger.warning(text, address.number, address.name, what, why, extra=fields(cause="notify"))
