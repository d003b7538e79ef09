"""One delivery attempt: sign, apply the fault if any, send, record the result."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from billhook.clock import Clock
from billhook.errors import ConfigError
from billhook.sandbox.webhooks.http_post import WebhookPoster
from billhook.sandbox.webhooks.outbox import DueDelivery
from billhook.sandbox.webhooks.outcomes import SPOILING, AttemptRecord, FailureReason, FaultKind, PostResult
from billhook.sandbox.webhooks.signing_secrets import Secret, Signer, new_secret

__all__ = ["Attempter"]

KEPT_ANSWER_BYTES = 200
STALE = timedelta(hours=1)


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
        made: list[AttemptRecord] = []

        def send_once() -> None:
            made.append(self._send(due, signer, fault))

        second = threading.Thread(target=send_once, name="sandbox-duplicate", daemon=True)
        second.start()
        send_once()
        second.join()
        return made

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
