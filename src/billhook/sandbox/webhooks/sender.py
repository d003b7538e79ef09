"""The sender: delivers what is due, on a pool of threads; each attempt is signed, sent and recorded.

One thread selects due deliveries and hands them to the pool; it wakes up after a commit, after an attempt
and at the next retry. Which deliveries are in progress is known in memory only: in the database they stay
due until they are settled, so after a crash they are sent again, at least once.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

from billhook.clock import Clock
from billhook.errors import ConfigError
from billhook.sandbox.service import Service
from billhook.sandbox.webhooks import faults, signing_secrets
from billhook.sandbox.webhooks.http_post import WebhookPoster
from billhook.sandbox.webhooks.outbox import DueDelivery, count_due, find_due, next_due_at, settle
from billhook.sandbox.webhooks.outcomes import SPOILING, AttemptRecord, FailureReason, FaultKind, PostResult
from billhook.sandbox.webhooks.signing_secrets import Secret, Signer, new_secret

KEPT_ANSWER_BYTES = 200
STALE = timedelta(hours=1)
THREADS = 32
MAX_PER_DESTINATION = 4
"""Concurrent deliveries to one host and port, so that a receiver that hangs does not take all threads."""
MIN_WAIT_SECONDS = 0.05
ERROR_PAUSE_SECONDS = 1.0
logger = logging.getLogger("billhook.sandbox")


class Attempter:
    """Makes delivery attempts; safe to use from many threads. Signs by the machine's time."""

    def __init__(self, poster: WebhookPoster, clock: Clock) -> None:
        self._poster = poster
        self._clock = clock
        self._lock = threading.Lock()
        self._wrong_secret: Secret | None = None

    def attempt(self, due: DueDelivery, signer: Signer, fault: FaultKind | None) -> list[AttemptRecord]:
        """Send the delivery once, or twice at the same time if the fault is DUPLICATE."""
        if fault is not FaultKind.DUPLICATE:
            return [self._send(due, signer, fault)]
        with ThreadPoolExecutor(2, thread_name_prefix="sandbox-duplicate") as both:
            return list(both.map(lambda _: self._send(due, signer, fault), range(2)))

    def _send(self, due: DueDelivery, signer: Signer, fault: FaultKind | None) -> AttemptRecord:
        # The duration by the monotonic clock: the machine's time may be set during an attempt.
        started_at, began = self._clock.now(), time.monotonic()
        secrets = [self._unknown_secret(signer)] if fault is FaultKind.WRONG_SECRET else signer.secrets
        try:
            # Signed again for each attempt: a retry after hours would otherwise be refused as stale.
            signed_at = started_at - STALE if fault is FaultKind.STALE else started_at
            headers = replace(signer, secrets=secrets).sign(
                due.body, event_type=due.event_type, now=signed_at, message_id=due.id
            )
        except (ValueError, ConfigError):
            result = PostResult(problem=FailureReason.NOT_SIGNED)
        else:
            result = self._post(due, headers, fault)
        milliseconds = round((time.monotonic() - began) * 1000)
        answer = _response_text(result.answer, signer.secrets)
        return AttemptRecord(started_at, milliseconds, result.status, result.problem, fault, answer)

    def _post(self, due: DueDelivery, headers: dict[str, str], fault: FaultKind | None) -> PostResult:
        more = {
            "Content-Type": "application/json",
            "User-Agent": "billhook-sandbox",
            "X-Webhook-Type": due.event_type,
        }
        body = _flip_one_bit(due.body, due.seq) if fault is FaultKind.CORRUPT else due.body
        if fault is FaultKind.LOSE:
            return PostResult(problem=FailureReason.LOST)
        result = self._poster.post(due.url, {**more, **headers}, body)
        if fault in SPOILING and result.problem is None:
            lost = fault is FaultKind.DROP
            problem = FailureReason.ANSWER_LOST if lost else FailureReason.SHOULD_HAVE_REFUSED
            return replace(result, problem=problem)
        return result

    def _unknown_secret(self, signer: Signer) -> Secret:
        with self._lock:
            if self._wrong_secret is None:
                self._wrong_secret = new_secret(signer.scheme)
            return self._wrong_secret


def _flip_one_bit(body: bytes, seed: int) -> bytes:
    changed = bytearray(body)
    # Seeded by the delivery, so that a repeated run corrupts the same bit.
    changed[random.Random(seed).randrange(len(changed))] ^= 1  # noqa: S311
    return bytes(changed)


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
    """Delivers until it is stopped; sleeps while nothing is due."""

    def __init__(self, service: Service) -> None:
        self._service = service
        options = service.options
        self._poster = WebhookPoster(options.delivery_timeout_seconds, allow_private=options.allow_private)
        self._attempter = Attempter(self._poster, service.clock.real)
        self._changed = threading.Condition()
        self._wake_up = False
        self._changes = 0
        self._stopped = threading.Event()
        self._in_progress: dict[str, str] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the threads; deliveries left over from a crash are due and sent first."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sandbox-sender")
        self._thread = threading.Thread(target=self._run, name="sandbox-sender", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look for due deliveries now."""
        with self._changed:
            self._wake_up = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop sending. Attempts in progress are aborted and made again after the next start."""
        self._stopped.set()
        self.wake()
        if self._thread is not None:
            self._thread.join()
        self._poster.close()
        if self._threads is not None:
            self._threads.shutdown(wait=True)

    def flush(self, timeout_seconds: float) -> int:
        """Wait at most `timeout_seconds` until nothing is due; return how many deliveries still are."""
        ends = time.monotonic() + timeout_seconds
        self.wake()
        while True:
            with self._changed:
                seen = self._changes  # before counting, so that a change in between is not missed
            with self._service.transaction(writes=False) as tx:
                due = count_due(tx)
            left = ends - time.monotonic()
            if not due or left <= 0:
                return due
            with self._changed:
                self._changed.wait_for(
                    lambda: self._changes != seen or self._stopped.is_set(),  # noqa: B023 - called at once
                    left,
                )
            if self._stopped.is_set():  # not counted again: the database is closed next
                return due

    def _run(self) -> None:
        while not self._stopped.is_set():
            with self._changed:
                self._wake_up = False
            try:
                wait = self._send_due()
            except Exception as error:  # noqa: BLE001 - this thread must survive, or nothing is sent any more
                self._log_and_pause("selecting due deliveries", error)
                continue
            with self._changed:
                self._changed.wait_for(lambda: self._wake_up or self._stopped.is_set(), wait)

    def _send_due(self) -> float | None:
        """Hand out due deliveries. Returns the seconds until the next poll; None: until woken up."""
        with self._changed:
            sent = set(self._in_progress)
            busy = Counter(self._in_progress.values())
        with self._service.transaction(writes=False) as tx:
            found = find_due(tx, THREADS - len(sent), busy, sent, MAX_PER_DESTINATION)
            any_fault = bool(found) and faults.any_fault(tx)
            signer = signing_secrets.current_signer(tx)
            next_at, now = next_due_at(tx), tx.real_now
        jobs: list[tuple[DueDelivery, FaultKind | None]] = [(due, None) for due in found]
        if any_fault:
            with self._service.transaction(writes=True) as tx:
                jobs = faults.decide(tx, found)
        for due, fault in jobs:
            self._hand_out(due, signer, fault)
        if len(jobs) < len(found):
            self._notify_change()  # other deliveries may take the place of those that faults hold
        return None if next_at is None else max((next_at - now).total_seconds(), MIN_WAIT_SECONDS)

    def _hand_out(self, due: DueDelivery, signer: Signer, fault: FaultKind | None) -> None:
        with self._changed:
            self._in_progress[due.id] = due.destination
        assert self._threads is not None  # noqa: S101 - for the type
        self._threads.submit(self._deliver, due, signer, fault)

    def _deliver(self, due: DueDelivery, signer: Signer, fault: FaultKind | None) -> None:
        try:
            if self._stopped.is_set():
                return
            made = self._attempter.attempt(due, signer, fault)
            # stop() may have aborted the attempt: then its result says nothing about the receiver.
            if not self._stopped.is_set():
                with self._service.transaction(writes=True) as tx:
                    settle(tx, due, made)
        except Exception as error:  # noqa: BLE001 - the delivery stays due and is sent again
            self._log_and_pause("delivery", error)
        finally:
            with self._changed:
                del self._in_progress[due.id]
            self._notify_change()

    def _notify_change(self) -> None:
        """Wake up the thread that hands out, and the callers of `flush`."""
        with self._changed:
            self._changes += 1
            self._wake_up = True
            self._changed.notify_all()

    def _log_and_pause(self, doing: str, error: Exception) -> None:
        """Log the type of the error only: its text may hold a body."""
        logger.error("%s failed, retrying: %s", doing, type(error).__name__)
        self._stopped.wait(ERROR_PAUSE_SECONDS)
