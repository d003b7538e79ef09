"""Handlers: a user's function and its options, the delivery it receives, and one call of it.

A handler is the receiver of a blinker signal, either a decorated function (billhook.Handlers) or a plain
receiver that the user connected. Runs are stored under its name.
"""

from __future__ import annotations

import inspect
import json
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from functools import cached_property
from inspect import iscoroutinefunction
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any

from blinker import Signal

from billhook.basics import failpoints
from billhook.basics.callables import function_name, signature_of
from billhook.basics.concurrency import end_forked_child
from billhook.basics.printable import exception_text
from billhook.errors import ConfigError, Discard, DuplicateHandlerName, HandlerSignature, ModelFailed, Retry
from billhook.events import EVENT_TYPES, Event, UnknownEvent
from billhook.handlers.event_loop import EVENT_LOOPS
from billhook.handlers.field_keys import content_digest, newest_key, order_key
from billhook.handlers.grouping import FailureGroup, group_of
from billhook.handlers.options import Options
from billhook.signals import EVENT_SIGNALS, event_signal
from billhook.signing.source import RECONCILE_SOURCE

if TYPE_CHECKING:
    from billhook.client import BillingClient
    from billhook.effects import Transaction


class Headers(Mapping[str, str]):
    """Request headers by name, in any case: `headers["webhook-id"]`; iteration gives `Webhook-Id`."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = _by_lower_name(headers)

    def __getitem__(self, name: str) -> str:
        return self._headers[name.lower()][1]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._headers.values())

    def __len__(self) -> int:
        return len(self._headers)

    def __repr__(self) -> str:
        return f"Headers({dict(self)})"


def _by_lower_name(headers: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    # HTTP header names are compared without case, and servers and proxies change the case.
    return {name.lower(): (name, value) for name, value in headers.items()}


class StoredHeaders(Headers):
    """Headers as the inbox stores them, parsed at their first use, because most handlers use none."""

    def __init__(self, text: str) -> None:
        """`text` is JSON, with the names in WSGI's form: webhook_id."""
        self._text = text

    @cached_property
    def _headers(self) -> dict[str, tuple[str, str]]:  # type: ignore[override]
        stored = json.loads(self._text)
        return _by_lower_name({name.replace("_", "-").title(): value for name, value in stored.items()})


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery, as passed to one handler for one attempt.

    A handler runs at least once: `once()` says whether its effect is still to be made. `idempotency_key` is
    the same at every attempt and every replay, for calls of other services. `key` is the message id of the
    sender's signature, or a hash of the signed content: unique among the deliveries of one source only.
    `attempt` counts from 1. Times are aware UTC; `signed_at` is None for a scheme that signs no time. `body`
    is the exact bytes that were signed, `headers` are those of the request, by name in any case. `variant` is
    "" except for conflicts: deliveries with the key of another one but another type or other bytes.
    `handler` is the name under which the run is stored, `replays` how often it was replayed after it was
    finished.
    """

    id: int
    key: str
    source: str
    event_type: str
    attempt: int
    received_at: datetime
    signed_at: datetime | None
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    # A function rather than the client, which needs options and the extra `client` that most handlers do not
    # use.
    make_client: Callable[[], BillingClient] | None = field(default=None, repr=False, compare=False)
    variant: str = field(default="", repr=False)
    handler: str = ""
    replays: int = 0

    @property
    def idempotency_key(self) -> str:
        """`source:key`, unique among all deliveries, as no source's name has a colon.

        A conflict that an operator replayed is an event of its own: `source:key,variant`. No key has a comma.
        """
        return f"{self.source}:{self.key}" + (f",{self.variant}" if self.variant else "")

    @property
    def synthetic(self) -> bool:
        """Whether `billhook reconcile --inject` made it, from what the service's API shows.

        Its event was not signed by the sender, and has only the values that the API shows.
        """
        return self.source == RECONCILE_SOURCE

    def __reduce__(self) -> str:
        """Raise TypeError: a delivery belongs to the process and the attempt that called the handler."""
        raise TypeError(
            "a Delivery cannot be pickled or copied to another process: pass its event, or its id and key"
        )

    def once(self, transaction: Transaction) -> bool:
        """Return True the first time that this handler has this delivery, and False ever after.

        The answer is a row of the table `billhook_effect` in your own database, written in your own open
        transaction: commit it together with the effect, and both have happened or neither. `transaction` is a
        SQLAlchemy session (scoped ones too) or connection, or a DB-API connection to SQLite or PostgreSQL. An
        operator replays a finished run on purpose, so the replay counts as a new occurrence.

        >>> if delivery.once(db.session):  # doctest: +SKIP
        ...     db.session.add(Payment(event.invoice_id, event.amount))
        >>> db.session.commit()  # doctest: +SKIP

        Commit when the answer is False as well: the question has locked SQLite's file. Another attempt at the
        same moment waits until this transaction ends. Raises ConfigError for a connection that commits each
        statement by itself, and without the table (see billhook.effects).
        """
        if not self.handler:
            raise ConfigError("this delivery was made by hand, without handler='the.name': once() needs it")
        from billhook import effects  # imports SQLAlchemy, which `import billhook` alone must not

        return effects.record(transaction, self.handler, self.idempotency_key, self.replays)

    @property
    def client(self) -> BillingClient:
        """The API client of this process, for calls to the billing service.

        Made from the options `BILLHOOK_API_…` at its first use, and shared by all handlers and threads.
        Raises ConfigError, which names the options that are not set, and MissingExtra.
        """
        if self.make_client is None:
            raise ConfigError("this delivery was made by hand and not by an app, so it has no client")
        return self.make_client()


@dataclass(eq=False, repr=False)
class Handler(Options):
    """A function and its options, called as `handler(sender, event=…, delivery=…)`.

    `plain`: the function is a blinker receiver, `function(sender, *, event, delivery)`; any other raises
    HandlerSignature if it does not take an event.
    """

    function: Callable[..., Any]
    _: KW_ONLY
    plain: bool = False

    def __post_init__(self) -> None:
        self.name = self.name or function_name(self.function)
        self.has_run_options = self.ordered_by is not None or bool(self.identity)
        """Whether its runs have an order key or a content key, which are made from the event."""
        self._takes_delivery = not self.plain and _takes_delivery(self.function, self.name)

    def __call__(self, sender: object, *, event: Event | UnknownEvent, delivery: Delivery) -> object:
        """Call the function and return its result: a coroutine, if it is async (`call` runs it)."""
        if self.plain:
            return self.function(sender, event=event, delivery=delivery)
        return self.function(event, delivery) if self._takes_delivery else self.function(event)

    def __repr__(self) -> str:
        return f"<Handler {self.name}>"

    def handles(self, source: str) -> bool:
        """Return whether the handler handles deliveries of that source."""
        return not self.sources or source in self.sources

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which runs of it are stored."""
        return self.name, *self.aliases

    @property
    def is_async(self) -> bool:
        """Whether the handler is cancelled at its time-out, because its function is async."""
        function = self.function
        return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004

    @property
    def is_limited(self) -> bool:
        """Whether its claims and results have to be counted, for a limit or for failures in a row."""
        return (self.at_most, self.rate, self.pause_after) != (None, None, None)

    def order_key(self, source: str, event: Event | UnknownEvent) -> str | None:
        """Return the order key of its run for an event; None if its runs are not ordered."""
        return None if self.ordered_by is None else order_key(source, getattr(event, self.ordered_by))

    def newest_key(self, event: Event | UnknownEvent) -> str | None:
        """Return what says how new an event is, sortable; None if the order of arrival does.

        Raises ModelFailed for what a function of the user's raises, and TypeError for other kinds of values.
        """
        by = self.newest_by
        if by is None:
            return None
        if not callable(by):
            return newest_key(getattr(event, by))
        try:
            return newest_key(by(event))
        except Exception as error:
            text = f"newest_by of the handler {self.name} raised {exception_text(error)}"
            raise ModelFailed(text) from error

    def content_digest(self, source: str, event: Event | UnknownEvent) -> str | None:
        """Return the digest of the event's identity fields; None if it recognises no duplicates."""
        return content_digest(source, event, self.identity) if self.identity else None


class ConnectedHandlers:
    """The handlers of one app, read from its signals at each call: plain receivers may come and go."""

    def __init__(self, sender: object) -> None:
        self._sender = sender

    def by_name(self, event_type: str, *, unique: bool = True) -> dict[str, Handler]:
        """Return the handlers of an event type (or of `unknown_event`). Raises DuplicateHandlerName.

        Without `unique` the first of each name: if two handlers share one, its runs fail when called.
        """
        model = EVENT_TYPES.get(event_type)
        signal = EVENT_SIGNALS[model.signal_name if model else UnknownEvent.signal_name]
        found: dict[str, Handler] = {}
        receivers: list[Callable[..., Any]] = [*signal.receivers_for(self._sender)]
        for receiver in receivers if len(receivers) < 2 else _in_order_of_connection(signal, receivers):
            handler = receiver if isinstance(receiver, Handler) else Handler(receiver, plain=True)
            # Refuse equal names rather than number them: a stored run has only the name, and must not reach
            # the wrong function.
            if unique and handler.name in found:
                raise DuplicateHandlerName(handler.name)
            found.setdefault(handler.name, handler)
        return found

    def count(self) -> int:
        """Return how many handlers there are, for any event type."""
        return len(self.every())

    def every(self) -> list[Handler]:
        """Return the handlers of all event types, one for each name."""
        signals = (*EVENT_TYPES, UnknownEvent.signal_name)
        found: dict[str, Handler] = {}
        for event_type in signals:
            found |= self.by_name(event_type, unique=False)
        return list(found.values())

    def names(self, event_type: str) -> tuple[str, ...]:
        """Return the handler names of an event type."""
        return tuple(self.by_name(event_type, unique=False))

    def find(self, event_type: str, name: str) -> Handler | None:
        """Return the handler that a stored run belongs to, by its name or one of its aliases.

        Raises DuplicateHandlerName.
        """
        found = self.by_name(event_type)
        # A name takes precedence over an alias: a new handler may have taken the former name of another one.
        if name in found:
            return found[name]
        return next((handler for handler in found.values() if name in handler.aliases), None)

    def check_names(self) -> None:
        """Raise DuplicateHandlerName if two handlers of one event type have the same name."""
        for event_type in (*EVENT_TYPES, UnknownEvent.signal_name):
            self.by_name(event_type)


def _in_order_of_connection(
    signal: Signal, receivers: Iterable[Callable[..., Any]]
) -> list[Callable[..., Any]]:
    """Return receivers of a signal in the order in which they were connected.

    Blinker gives them in the order of a set of their addresses, which is another in each process.
    """
    places = {key: place for place, key in enumerate(signal.receivers)}
    return sorted(receivers, key=lambda receiver: places.get(_blinker_key(receiver), len(places)))


def _blinker_key(receiver: Callable[..., Any]) -> object:
    """Return the key of a receiver in `Signal.receivers`: a bound method is made anew at each access."""
    if isinstance(receiver, MethodType):
        return id(receiver.__func__), id(receiver.__self__)
    return id(receiver)


def connect(registered: Iterable[tuple[tuple[str, ...], Handler]], sender: object) -> None:
    """Connect decorated handlers to their signals for one app."""
    for signals, handler in registered:
        for name in signals:
            # Do not connect weakly: only the registry holds the handler, so blinker would drop it.
            event_signal(name).connect(handler, sender=sender, weak=False)


def _takes_delivery(function: Callable[..., Any], name: str) -> bool:
    """Return True for (event, delivery), False for (event). Raises HandlerSignature for anything else."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise HandlerSignature(name, "of a generator, which does nothing when called")
    try:
        signature = signature_of(function)
    except (TypeError, ValueError):
        raise HandlerSignature(name, "that cannot be read") from None
    # Bind values rather than count parameters, which handles *args, defaults and functools.partial. Try two
    # first, because a handler that can take the delivery should get it.
    for takes_delivery in (True, False):
        try:
            signature.bind(*([None, None] if takes_delivery else [None]))
        except TypeError:
            continue
        return takes_delivery
    raise HandlerSignature(name, str(signature))


ERROR_LIMIT = 2_000
TRACEBACK_LIMIT = 16_000
_CALLERS = (
    "billhook/handlers/handler.py",
    "billhook/handlers/event_loop.py",
    *("asyncio/runners.py", "asyncio/base_events.py"),
    *("concurrent/futures/_base.py", "concurrent/futures/thread.py"),
)
"""The files whose code calls handlers; those of the standard library call async ones."""


@dataclass(frozen=True, slots=True)
class HandlerFailure:
    """A failed attempt: the exception, its text and its traceback, both cut to a size worth storing.

    `group` is what it has in common with other failures of the same bug; None for Retry and Discard,
    which are decisions.
    """

    exception: BaseException
    error: str
    traceback: str
    group: FailureGroup | None = None

    @property
    def exc_info(self) -> tuple[type[BaseException], BaseException, TracebackType | None]:
        """The exception for a log record, whose traceback begins at the handler."""
        return type(self.exception), self.exception, _handlers_frames(self.exception)

    @classmethod
    def from_exception(cls, exception: BaseException) -> HandlerFailure:
        """Describe an exception; if its text cannot be made, its traceback stays."""
        kind = type(exception)
        try:
            text = f"{kind.__name__}: {exception}"
        except BaseException:  # noqa: BLE001 - a user's __str__ may raise anything
            text = f"{kind.__name__}: <exception str() failed>"  # as in a traceback
        try:
            trace = "".join(traceback.format_exception(kind, exception, _handlers_frames(exception)))
        except BaseException:  # noqa: BLE001 - what it reads of an exception may raise too
            trace = "".join(traceback.format_tb(exception.__traceback__)) + text
        # Keep the start of a text and the end of a traceback, where the raising line is.
        error, stored = _storable(text[:ERROR_LIMIT]), _storable(trace[-TRACEBACK_LIMIT:])
        decided = isinstance(exception, Retry | Discard)
        return cls(exception, error, stored, None if decided else group_of(exception, error))


def _handlers_frames(exception: BaseException) -> TracebackType | None:
    """Return an exception's traceback without the frames of what calls handlers, which tell nothing."""
    trace = exception.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.endswith(_CALLERS):
        trace = trace.tb_next
    return trace


def call(
    handler: Handler,
    sender: object,
    context: Callable[[], AbstractContextManager[object]],
    event: Event | UnknownEvent,
    delivery: Delivery,
) -> HandlerFailure | None:
    """Call a handler inside the app's context; return None on success.

    SystemExit and similar exceptions are failures too: they would end the worker, and gunicorn's master.
    """
    if failpoints.ARMED:  # tests kill the process here, and below
        failpoints.reach("before_call")
    pid, failure = os.getpid(), None
    try:
        # Stay within the context until the end, because a coroutine runs in it too.
        with context():
            try:
                result = handler(sender, event=event, delivery=delivery)
                if inspect.iscoroutine(result):
                    EVENT_LOOPS.run(result, handler.timeout_seconds)
                elif inspect.isgenerator(result) or inspect.isasyncgen(result):
                    # A decorator can hide a generator from the check at registration. Counted as a success,
                    # it would be a handler that never does anything, without any error.
                    error = TypeError("the handler returned a generator, of which nothing has run")
                    failure = HandlerFailure.from_exception(error)
            except BaseException:
                if os.getpid() != pid:
                    end_forked_child("a handler", code=1)
                raise
            if os.getpid() != pid:
                end_forked_child("a handler", code=0)
    except BaseException as exception:  # noqa: BLE001 - see above
        return HandlerFailure.from_exception(exception)
    if failpoints.ARMED:
        failpoints.reach("after_call")
    return failure


def _storable(text: str) -> str:
    """Return text that every database accepts: no lone surrogates, no NUL."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")
