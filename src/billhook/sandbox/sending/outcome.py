"""What became of an attempt, in few words: never in those of the receiver or of an exception."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from billhook.sandbox.sending.fault_kind import FaultKind

__all__ = ["Attempt", "Outcome", "Problem"]


class Problem(StrEnum):
    """Why an attempt is no success."""

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
    """By the fault `drop`: the receiver had answered with 2xx."""
    SHOULD_HAVE_REFUSED = "should_have_refused"
    """The receiver took what a fault had spoilt: it does not verify."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an attempt: `problem` is None where it was answered with 2xx."""

    status: int | None = None
    problem: Problem | None = None
    answer: bytes | None = None
    """How the answer's body begins, where it is text."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A row of the log."""

    started_at: datetime
    milliseconds: int
    status: int | None
    problem: Problem | None
    fault: FaultKind | None
    answer: str | None
