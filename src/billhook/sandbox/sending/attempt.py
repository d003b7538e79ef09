"""One try to deliver: signed anew, sent, and what became of it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from billhook.clock import Clock
from billhook.errors import ConfigError
from billhook.sandbox.sending.due import Due
from billhook.sandbox.sending.fault_kind import SPOILING, FaultKind
from billhook.sandbox.sending.http_post import Poster
from billhook.sandbox.sending.key_material import Secret, new_secret
from billhook.sandbox.sending.outcome import Attempt, Outcome, Problem
from billhook.sandbox.sending.signing_secrets import Signer

__all__ = ["Attempter"]

KEPT_ANSWER_BYTES = 200
STALE = timedelta(hours=1)


class Attempter:
    """Makes attempts, from any number of threads. All is signed by the machine's time."""

    def __init__(self, poster: Poster, clock: Clock) -> None:
        self._poster = poster
        self._clock = clock
        self._lock = threading.Lock()
        self._stranger: Secret | None = None

    def attempt(self, due: Due, signer: Signer, fault: FaultKind | None) -> list[Attempt]:
        """Send it once, or twice at the same time where that is the fault."""
        if fault is not FaultKind.DUPLICATE:
            return [self._once(due, signer, fault)]
        made: list[Attempt] = []

        def also() -> None:
            made.append(self._once(due, signer, fault))

        twin = threading.Thread(target=also, name="sandbox-twin", daemon=True)
        twin.start()
        also()
        twin.join()
        return made

    def _once(self, due: Due, signer: Signer, fault: FaultKind | None) -> Attempt:
        started_at, began = self._clock.now(), time.monotonic()
        secrets = [self._strangers(signer)] if fault is FaultKind.WRONG_SECRET else signer.secrets
        try:
            signed_at = started_at - STALE if fault is FaultKind.STALE else started_at
            headers = replace(signer, secrets=secrets).sign(
                due.body, event_type=due.event_type, now=signed_at, message_id=due.id
            )
        except (ValueError, ConfigError):
            outcome = Outcome(problem=Problem.NOT_SIGNED)
        else:
            outcome = self._sent(due, headers, fault)
        milliseconds = round((time.monotonic() - began) * 1000)
        answer = _shown(outcome.answer, signer.secrets)
        return Attempt(started_at, milliseconds, outcome.status, outcome.problem, fault, answer)

    def _sent(self, due: Due, headers: dict[str, str], fault: FaultKind | None) -> Outcome:
        more = {
            "Content-Type": "application/json",
            "User-Agent": "billhook-sandbox",
            "X-Webhook-Type": due.event_type,
        }
        body = _flipped(due.body, due.seq) if fault is FaultKind.CORRUPT else due.body
        outcome = self._poster.post(due.url, {**more, **headers}, body)
        if fault in SPOILING and outcome.problem is None:
            lost = fault is FaultKind.DROP
            problem = Problem.ANSWER_LOST if lost else Problem.SHOULD_HAVE_REFUSED
            return replace(outcome, problem=problem)
        return outcome

    def _strangers(self, signer: Signer) -> Secret:
        with self._lock:
            if self._stranger is None:
                self._stranger = new_secret(signer.scheme)
            return self._stranger


def _flipped(body: bytes, seed: int) -> bytes:
    spoilt = bytearray(body)
    spoilt[random.Random(seed).randrange(len(spoilt))] ^= 1  # noqa: S311
    return bytes(spoilt)


def _shown(answer: bytes | None, secrets: Sequence[Secret]) -> str | None:
    """The beginning of a text; a secret that the receiver tells back is left out."""
    if answer is None:
        return None
    text = answer.decode("utf-8", "replace")
    for secret in secrets:
        for known in [secret] if isinstance(secret, str) else secret.values():
            for form in (known, known.removeprefix("whsec_")):
                text = text.replace(form, "[secret]")
    text = "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)
    return text.encode()[:KEPT_ANSWER_BYTES].decode("utf-8", "ignore")
