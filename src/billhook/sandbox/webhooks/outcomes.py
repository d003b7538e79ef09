"""The result of a delivery attempt, and the faults that can be injected into one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """A fault that can be injected into a delivery."""

    DUPLICATE = "duplicate"
    """Sent twice at the same time."""
    DELAY = "delay"
    """Sent some seconds late."""
    REORDER = "reorder"
    """Held until a later one to the same URL was sent, for some seconds at most."""
    DROP = "drop"
    """The receiver's response is treated as lost, so the delivery is sent again."""
    CORRUPT = "corrupt"
    """One bit of the body is flipped after signing."""
    WRONG_SECRET = "wrong_secret"  # noqa: S105 - the name of a fault
    """Signed with a random secret."""
    STALE = "stale"
    """Signed an hour ago."""
    LOSE = "lose"
    """Never sent: the delivery has failed at its first attempt."""


SPOILING = (FaultKind.DROP, FaultKind.CORRUPT, FaultKind.WRONG_SECRET, FaultKind.STALE)
"""Faults after which the delivery is sent again."""

TIMED = {FaultKind.DELAY: 5, FaultKind.REORDER: 10}
"""Faults with a delay, and its default in seconds."""


class FailureReason(StrEnum):
    """Why an attempt failed; never in words of the receiver or of an exception."""

    UNFIT_URL = "unfit_url"
    UNKNOWN_NAME = "unknown_name"
    FORBIDDEN_ADDRESS = "forbidden_address"
    NOT_CONNECTED = "not_connected"
    TLS_FAILED = "tls_failed"
    TIMED_OUT = "timed_out"
    BROKEN_OFF = "broken_off"
    UNREADABLE_ANSWER = "unreadable_answer"
    REDIRECTED = "redirected"
    BAD_STATUS = "bad_status"
    NOT_SIGNED = "not_signed"
    """The scheme cannot sign this event or this id."""
    ANSWER_LOST = "answer_lost"
    """By the fault `drop`: the receiver had responded with 2xx."""
    LOST = "lost"
    """By the fault `lose`: nothing was sent."""
    SHOULD_HAVE_REFUSED = "should_have_refused"
    """The receiver accepted a delivery with an invalid signature: it does not verify."""


@dataclass(frozen=True, slots=True)
class PostResult:
    """The result of one POST: `problem` is None after a 2xx response."""

    status: int | None = None
    problem: FailureReason | None = None
    answer: bytes | None = None
    """The beginning of the response's body, if it is text."""
