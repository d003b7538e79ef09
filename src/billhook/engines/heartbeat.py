"""Renewing leases while handlers run, for an engine that has no loop to do it in."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from billhook.clock import Clock
from billhook.errors import BillhookError
from billhook.inbox import Claim, Inbox
from billhook.inbox.forking import SETTING_UP

__all__ = ["Heartbeat"]

logger = logging.getLogger("billhook.engines")

Lease = tuple[int, int]
"""Run id and token."""


class Heartbeat:
    """One thread a process, begun with the first claim; asleep while nothing is held.

    A claim costs an entry in a dictionary: the thread looks when a lease may need it, a third of its
    length later, and most handlers have returned by then.
    """

    def __init__(self, inbox: Inbox, clock: Clock, *, lease_seconds: float) -> None:
        self._inbox = inbox
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._start_over()

    def _start_over(self) -> None:
        self._held: dict[Lease, float] = {}
        self._awake = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()  # last: whoever sees it uses what is above

    @contextmanager
    def holding(self, claim: Claim) -> Iterator[None]:
        """The claim's lease is renewed until the block ends."""
        lease = (claim.run_id, claim.token)
        if self._thread is None or self._pid != os.getpid():
            self._start()
        self._held[lease] = time.monotonic() + self._lease_seconds / 3
        if not self._awake.is_set():
            self._awake.set()
        try:
            yield
        finally:
            self._held.pop(lease, None)

    def _start(self) -> None:
        with SETTING_UP:
            if self._pid != os.getpid():
                self._start_over()
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="billhook-heartbeat", daemon=True)
                self._thread.start()

    def _beat(self) -> None:
        while True:
            held = self._held.copy()
            if not held:
                self._awake.clear()
                if not self._held:  # pragma: no branch - one may be claimed right here
                    self._awake.wait()
                continue
            pause = min(held.values()) - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            else:
                now = time.monotonic()
                self._renew([lease for lease, at in held.items() if at <= now])

    def _renew(self, leases: Sequence[Lease]) -> None:
        until = self._clock.now() + timedelta(seconds=self._lease_seconds)
        try:
            with self._inbox.turn(f"heartbeat:{os.getpid()}") as turn:
                renewed = turn.renew(leases, until)
            again_at = time.monotonic() + self._lease_seconds / 3
        except BillhookError as error:
            logger.error("%d leases were not renewed: %s", len(leases), error)  # noqa: TRY400 - says it all
            renewed = set(leases)
            again_at = time.monotonic() + min(1.0, self._lease_seconds / 10)
        for lease in leases:
            if lease not in self._held:
                continue
            if lease in renewed:
                self._held[lease] = again_at
            else:
                self._held.pop(lease, None)  # lost: whoever has it now says how it ended
