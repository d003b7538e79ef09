"""The sender: delivers what is due, on an event loop; each attempt is signed, sent and recorded.

It looks for due deliveries after a commit, after an attempt and at the next retry. Which deliveries are in
progress is known in memory only: in the database they stay due until they are settled, so after a crash they
are sent again, at least once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import Any

from sqlalchemy import Row

from billhook.errors import ConfigError
from billhook.sandbox.storage import tables
from billhook.sandbox.storage.database import Service
from billhook.sandbox.webhooks import faults, signing_secrets
from billhook.sandbox.webhooks.faults import SPOILING, FaultKind
from billhook.sandbox.webhooks.http_post import FailureReason, PostResult, destination, post
from billhook.sandbox.webhooks.outbox import count_due, find_due, next_due_at, settle
from billhook.sandbox.webhooks.signing_secrets import Secret, Signer, new_secret

KEPT_ANSWER_BYTES = 200
STALE = timedelta(hours=1)
MAX_IN_PROGRESS = 32
MAX_PER_DESTINATION = 4
"""Concurrent deliveries to one host and port, so that a receiver that hangs does not hold up all others."""
MIN_WAIT_SECONDS = 0.05
FLUSH_POLL_SECONDS = 0.01
ERROR_PAUSE_SECONDS = 1.0
_MAX_DESTINATIONS = 1_000
_HINTS = {
    FailureReason.TLS_FAILED: ": its certificate is not trusted; SSL_CERT_FILE=FILE names your own authority",
    FailureReason.FORBIDDEN_ADDRESS: ": --allow-private delivers to this machine too",
}
_HEADERS = {"Content-Type": "application/json", "User-Agent": "billhook-sandbox"}
logger = logging.getLogger("billhook.sandbox")


def _response_text(answer: bytes | None, secrets: Sequence[Secret]) -> str | None:
    """Return the beginning of a response as text, without secrets that the receiver echoed."""
    if answer is None:
        return None
    text = answer.decode("utf-8", "replace")
    for secret in secrets:
        for known in [secret] if isinstance(secret, str) else secret.values():
            for form in (known, known.removeprefix("whsec_")):
                text = text.replace(form, "[secret]")
    text = "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)
    return text.encode()[:KEPT_ANSWER_BYTES].decode("utf-8", "ignore")


class Sender:
    """Delivers until it is stopped; sleeps while nothing is due. Signs by the machine's time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._loop: asyncio.AbstractEventLoop | None = None
        self._may_be_due = asyncio.Event()
        self._stopped = threading.Event()
        self._in_progress: dict[str, str] = {}
        """The destination of each delivery, by its id."""
        self._problems: dict[str, FailureReason] = {}
        """Why the last attempt failed, by its destination."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread of the loop; deliveries left over from a crash are due and sent first."""
        # As it ends, asyncio.run() aborts the attempts in progress.
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run()), name="sandbox-sender", daemon=True
        )
        self._thread.start()

    def wake(self) -> None:
        """Look for due deliveries now."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._may_be_due.set)

    def stop(self) -> None:
        """Stop sending. Attempts in progress are aborted and made again after the next start."""
        self._stopped.set()
        self.wake()
        if self._thread is not None:
            self._thread.join()

    def flush(self, timeout_seconds: float) -> int:
        """Wait at most `timeout_seconds` until nothing is due; return how many deliveries still are."""
        ends = time.monotonic() + timeout_seconds
        self.wake()
        while True:
            with self._service.transaction(writes=False) as tx:
                due = count_due(tx)
            # Not counted again after the end: the database is closed next.
            if not due or time.monotonic() >= ends or self._stopped.wait(FLUSH_POLL_SECONDS):
                return due

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        while not self._stopped.is_set():
            self._may_be_due.clear()
            try:
                jobs, signer, wait = await asyncio.to_thread(self._select, dict(self._in_progress))
                for due, fault in jobs:
                    self._in_progress[due.id] = destination(due.url)
                    task = asyncio.create_task(self._deliver(due, signer, fault))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
            except Exception as error:  # noqa: BLE001 - the loop must go on, or nothing is sent any more
                self._log("selecting due deliveries", error)
                wait = ERROR_PAUSE_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._may_be_due.wait()

    def _select(
        self, in_progress: dict[str, str]
    ) -> tuple[list[tuple[Row[Any], FaultKind | None]], Signer, float | None]:
        """Return what is to be sent now, and the seconds until the next look; None: until woken up."""
        with self._service.transaction(writes=False) as tx:
            found = find_due(tx, MAX_IN_PROGRESS, MAX_PER_DESTINATION, in_progress)
            any_fault = bool(found) and tx.any(tables.fault)
            signer = signing_secrets.current_signer(tx)
            next_at, now = next_due_at(tx), tx.real_now
        jobs: list[tuple[Row[Any], FaultKind | None]] = [(due, None) for due in found]
        if any_fault:
            with self._service.transaction(writes=True) as tx:
                jobs = faults.decide(tx, found)
        if len(jobs) < len(found):
            return jobs, signer, 0  # other deliveries may take the place of those that faults hold
        wait = None if next_at is None else max((next_at - now).total_seconds(), MIN_WAIT_SECONDS)
        return jobs, signer, wait

    async def _deliver(self, due: Row[Any], signer: Signer, fault: FaultKind | None) -> None:
        try:
            times = 2 if fault is FaultKind.DUPLICATE else 1
            made = await asyncio.gather(*(self._attempt(due, signer, fault) for _ in range(times)))
            # In a thread, because it waits for the transactions of others.
            await asyncio.to_thread(self._settle, due, made)
        except Exception as error:  # noqa: BLE001 - the delivery stays due and is sent again
            self._log("delivery", error)
            await asyncio.sleep(ERROR_PAUSE_SECONDS)
        finally:
            del self._in_progress[due.id]
            self._may_be_due.set()

    def _settle(self, due: Row[Any], made: Sequence[dict[str, Any]]) -> None:
        with self._service.transaction(writes=True) as tx:
            settle(tx, due, made)

    async def _attempt(self, due: Row[Any], signer: Signer, fault: FaultKind | None) -> dict[str, Any]:
        """Return the columns of the attempt's row."""
        # The duration by the monotonic clock: the machine's time may be set during an attempt.
        started_at, began = self._service.clock.real.now(), time.monotonic()
        secrets: Sequence[Secret] = signer.secrets
        if fault is FaultKind.WRONG_SECRET:
            secrets = [self._unknown_secret]
        try:
            # Signed again for each attempt: a retry after hours would otherwise be refused as stale.
            signed_at = started_at - STALE if fault is FaultKind.STALE else started_at
            headers = replace(signer, secrets=secrets).sign(
                due.body, event_type=due.event_type, now=signed_at, message_id=due.id
            )
        except (ValueError, ConfigError):
            result = PostResult(problem=FailureReason.NOT_SIGNED)
        else:
            result = await self._post(due, headers, fault)
            if fault is None:
                self._log_change(destination(due.url), result.problem)
        return {
            "started_at": started_at,
            "milliseconds": round((time.monotonic() - began) * 1000),
            "status": result.status,
            "error": result.problem,
            "fault": fault,
            "answer": _response_text(result.answer, signer.secrets),
        }

    async def _post(self, due: Row[Any], headers: dict[str, str], fault: FaultKind | None) -> PostResult:
        headers = {**_HEADERS, "X-Webhook-Type": due.event_type, **headers}
        body = bytearray(due.body)
        if fault is FaultKind.CORRUPT:
            # Seeded by the delivery, so that a repeated run corrupts the same bit.
            body[random.Random(due.seq).randrange(len(body))] ^= 1  # noqa: S311
        if fault is FaultKind.LOSE:
            return PostResult(problem=FailureReason.LOST)
        options = self._service.options
        result = await post(
            due.url, headers, bytes(body),
            timeout_seconds=options.delivery_timeout_seconds, allow_private=options.allow_private,
        )  # fmt: skip
        if fault in SPOILING and result.problem is None:
            lost = fault is FaultKind.DROP
            problem = FailureReason.ANSWER_LOST if lost else FailureReason.SHOULD_HAVE_REFUSED
            return replace(result, problem=problem)
        return result

    def _log_change(self, to: str, problem: FailureReason | None) -> None:
        """Log that attempts fail now or otherwise, or no longer: once, and not for each attempt."""
        before = self._problems.pop(to, None)
        if problem is None:
            if before is not None:
                logger.info("deliveries to %s arrive again", to)
            return
        if len(self._problems) < _MAX_DESTINATIONS:
            self._problems[to] = problem
        if problem is not before:
            logger.warning("deliveries to %s fail: %s%s", to, problem, _HINTS.get(problem, ""))

    @cached_property
    def _unknown_secret(self) -> Secret:
        return new_secret(self._service.options.scheme)

    @staticmethod
    def _log(doing: str, error: Exception) -> None:
        """Log the type of the error only: its text may hold a body."""
        logger.error("%s failed, retrying: %s", doing, type(error).__name__)
