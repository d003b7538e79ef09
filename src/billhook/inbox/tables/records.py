"""The records that the inbox takes and returns.

Those of which each delivery makes some are named tuples, which cost a third of a frozen dataclass to make.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple

from billhook.inbox.tables.states import RunState


class PutStatus(StrEnum):
    """The status of a delivery after `Inbox.put`."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    # A sender is answered 200 for each of these: nothing that it repeats could change the result.
    CONFLICT = "conflict"  # quarantined: its key is stored under another type or with other bytes
    UNTYPED = "untyped"  # quarantined: it names no event type
    SURPLUS = (
        "surplus"  # its body is stored under another unknown type, with as many names of types as are kept
    )


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """An authentic delivery, to be stored. `headers` is JSON text, `body` the exact bytes.

    `event_type` is "" for one that names no usable type, and `untyped` says why; also for one whose type is
    in the field at the path `type_field` of its body, where it is read when the delivery is planned. `known`
    says whether the type has a model: conflicts of a key are kept once per known type. `digest` is the
    SHA-256 of the body.
    """

    source: str
    key: str
    event_type: str
    body: bytes
    headers: str
    signed_at: datetime | None
    received_at: datetime
    known: bool = False
    type_field: str | None = None
    untyped: str = "no event type"
    digest: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Here, in the request's thread: the only thread that commits would do it for one after another.
        object.__setattr__(self, "digest", sha256(self.body).digest())


NEW_COLUMNS = (
    *("source", "key", "event_type", "type_field", "body", "digest", "headers", "signed_at", "received_at"),
)
"""What is stored of a NewDelivery as it is."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the inbox committed for a NewDelivery.

    `delivery_id` is the id of its row; for SURPLUS, of the one with the same body.
    `stored_event_type` is the type of the first delivery of its key, which a CONFLICT has in `conflict_of`.
    `error` says why it was quarantined.
    """

    status: PutStatus
    delivery_id: int
    stored_event_type: str
    conflict_of: int | None = None
    error: str | None = None


class StoredDelivery(NamedTuple):
    """A delivery as stored in the inbox.

    With a `type_field` and without an `event_type` its type is in the body, and not read yet.
    """

    delivery_id: int
    source: str
    key: str
    event_type: str
    body: bytes
    headers: str
    signed_at: datetime | None
    received_at: datetime
    variant: str = ""
    sent_as: str | None = None
    type_field: str | None = None


@dataclass(frozen=True, slots=True)
class ContentKey:
    """How a handler recognises a content duplicate: the same content under another key.

    `digest` covers the values of `fields`, the source and the event type. Only a delivery received within
    `window_seconds` of `received_at` is a duplicate.
    """

    digest: str
    fields: tuple[str, ...]
    received_at: datetime
    window_seconds: float


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one handler's run: handled in order within `order_key`, and not for content duplicates.

    `newest_only`: of the deliveries that wait with its order key, the handler needs the newest only. Which
    that is, their `newest_key`s say, texts that are compared; without one the order of arrival.
    """

    order_key: str | None = None
    content_key: ContentKey | None = None
    newest_only: bool = False
    newest_key: str | None = None


class RunPlan(NamedTuple):
    """The plan for a received delivery: run these handlers, or quarantine it for `error`.

    `options` are by the handler's name; most handlers have none. `claimable` is the delivery if its runs may
    be claimed as they are made: it has handlers, and none with limits or options. `identifiers` say what
    it is about: three texts at most. `event_type` is the type, where it was read in the body.
    """

    delivery_id: int
    handlers: tuple[str, ...] = ()
    error: str | None = None
    # By name, not by handler: the inbox stores strings, and knows no handlers.
    options: Mapping[str, RunOptions] = MappingProxyType({})
    claimable: StoredDelivery | None = None
    identifiers: tuple[str, ...] = ()
    event_type: str | None = None


class UncalledRun(NamedTuple):
    """A run discarded without a call for `other`: the delivery that its handler has had, or a newer one."""

    delivery_id: int
    handler: str
    other: int


@dataclass(frozen=True, slots=True)
class HandlerLimits:
    """What bounds the runs of a handler, over all workers of the inbox.

    `at_most` runs are under way at once; `rate` is a number of runs and the seconds in which they may
    start. After `pause_after` failed attempts in a row it is paused. `names` are those that its runs are
    stored under: its own, then its aliases.
    """

    names: tuple[str, ...]
    at_most: int | None = None
    rate: tuple[int, float] | None = None
    pause_after: int | None = None

    @property
    def name(self) -> str:
        """The handler's own name."""
        return self.names[0]

    @property
    def bounds_starts(self) -> bool:
        """Whether a due run may have to wait because of other runs of the handler."""
        return self.at_most is not None or self.rate is not None


def own_name(limits: Mapping[str, HandlerLimits], stored_under: str) -> str:
    """Return the name of the handler whose runs are stored under a name."""
    return limits[stored_under].name if stored_under in limits else stored_under


@dataclass(frozen=True, slots=True)
class PausedHandler:
    """A handler whose runs wait until an operator resumes it; `why` is the reason given."""

    name: str
    since: datetime
    why: str | None


class Lease(NamedTuple):
    """A time-limited right to a run: the run's id and the fencing token of one claim of it."""

    run_id: int
    token: int


class Claim(NamedTuple):
    """A claimed run, leased until `leased_until` unless renewed.

    `uncounted` of its attempts, this one included, do not count; by `postponements` of them its handler put
    it off. A `suspect` lost its last attempt with its worker: it runs alone. `replays` is how often it was
    replayed after it was finished. `ordered`: it has an order key.
    """

    lease: Lease
    handler: str
    attempt: int
    leased_until: datetime
    delivery: StoredDelivery
    uncounted: int = 0
    suspect: bool = False
    replays: int = 0
    ordered: bool = False
    postponements: int = 0

    @property
    def run_id(self) -> int:
        """Id of the run."""
        return self.lease.run_id

    @property
    def token(self) -> int:
        """Fencing token of the claim."""
        return self.lease.token

    def ended(self, state: RunState, at: datetime, **more: Any) -> RunResult:
        """Return the result of the attempt, with `more` of its fields."""
        ids = (self.lease, self.delivery.delivery_id, self.attempt)
        return RunResult(*ids, state, at, ordered=self.ordered, **more)

    def interrupted(self, at: datetime, due_at: datetime) -> RunResult:
        """Return the result of an attempt still running when its worker stops: due again, and not counted."""
        error = "the worker was stopped, and the handler did not return within the grace"
        return self.ended(RunState.DUE, at, due_at=due_at, error=error, uncounted=True)


UNSTORABLE_ERROR = "the database refused the text of this error"


class RunResult(NamedTuple):
    """How a claimed run ended. `due_at` is set for DUE only; `error` for all but SUCCEEDED.

    An `uncounted` attempt was interrupted by an orderly stop, or its handler put the run off, `not_before` a
    time; it does not count against the run.
    `duration_seconds` is how long the call took; None without a call. Failures of one bug have one `group`,
    and `place` is where the user's code failed; None for what is no failure of a handler. `ordered` is the
    claim's: without an order key it settles beside all others.
    """

    lease: Lease
    delivery_id: int
    attempt: int
    state: RunState
    at: datetime
    due_at: datetime | None = None
    error: str | None = None
    traceback: str | None = None
    uncounted: bool = False
    duration_seconds: float | None = None
    group: str | None = None
    place: str | None = None
    ordered: bool = True
    not_before: datetime | None = None

    def without_texts(self) -> RunResult:
        """Return the result with none of its error's words, which the database refuses."""
        if self.error is None:
            return self
        return self._replace(error=UNSTORABLE_ERROR, traceback=None, place=None)


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A process that claims runs. `owner` is the name that its runs have as `worker`.

    `handlers` is their number and `threads` how many runs it executes at once, if known; `pid_space` and
    `pid_ticks` are as in basics.process_identity. A process of the engine `inline` is alive only while it
    is used, and is no worker that operators expect.
    """

    owner: str
    engine: str
    handlers: int | None
    started_at: datetime
    host: str = field(default="", kw_only=True)
    pid: int | None = field(default=None, kw_only=True)
    pid_space: str | None = field(default=None, kw_only=True)
    pid_ticks: int | None = field(default=None, kw_only=True)
    threads: int | None = field(default=None, kw_only=True)


FINGERPRINT_LENGTH = 12


def fingerprint(subject: str, key: str) -> str:
    """Return 12 hexadecimal digits for what is wrong with a subject, such as a handler.

    They are the same in every process, and fit for an address and a command.
    """
    text = f"{subject}\0{key}".encode("utf-8", "backslashreplace")
    return sha256(text).hexdigest()[:FINGERPRINT_LENGTH]
