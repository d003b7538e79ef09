"""Apps under test: their options, their clock, what is sent to them, and the results of their handlers."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from flask import Flask

from billhook import signals
from billhook.basics.engine_kinds import ENGINES, WORKER
from billhook.clock import FrozenClock
from billhook.errors import ConfigError
from billhook.events import EVENT_TYPES, Event, UnknownEvent, parse_event, sample
from billhook.events.samples import refuse_misspelt
from billhook.events.type_field import with_type
from billhook.extension import Billhook, get_state
from billhook.extension.state import BillhookState
from billhook.handlers import Delivery, Handler, Handlers, Headers
from billhook.inbox import DeliveryFilter, RunState
from billhook.inbox.reading.deliveries import DeliveryDetails, RunDetails, export
from billhook.posting import AppPoster, sign
from billhook.receiver.blueprint import find_route, host_of
from billhook.signing.source import DEFAULT_SOURCE, TYPE_HEADER, Source

if TYPE_CHECKING:
    from billhook.client import BillingClient


__all__ = [
    "Answer",
    "DeadRun",
    "dead",
    "deliver",
    "delivery_of",
    "handled",
    "make_app",
    "options",
    "pause_handler",
    "paused",
    "prepare",
    "refused",
    "resume_handler",
    "settle",
]

E = TypeVar("E", bound=Event | UnknownEvent)
SECRET = "whsec_dGVzdHMgb2YgYmlsbGhvb2ssIG5vdCBhIHNlY3JldA=="  # noqa: S105 - it spells what it is
_EXTENSION = "billhook_testing"


@dataclass(eq=False)
class Preparation:
    """What this package keeps in `app.extensions` of an app under test."""

    state: BillhookState
    clock: FrozenClock
    refusals: list[str] = field(default_factory=list)

    def note_refusal(self, sender: object, *, cause: str, **facts: object) -> None:
        """Record the cause of a refused delivery."""
        self.refusals.append(cause)


def options(folder: Path | str) -> dict[str, Any]:
    """Return the options of an app under test, to be set before its billhook is: an inbox in `folder`.

    >>> app.config.update(options(tmp_path))  # doctest: +SKIP
    """
    return {
        "BILLHOOK_ENGINE": WORKER.name,  # no process runs this engine: settle() calls the handlers
        "BILLHOOK_INBOX_URL": f"sqlite:///{Path(folder).absolute() / 'billhook-test.db'}",
        "BILLHOOK_RETRY_JITTER": 0,  # tests may rely on the moment of a retry
        "BILLHOOK_SECRETS": [SECRET],
    }


def make_app(folder: Path | str, *handlers: Handlers, sources: Iterable[Source] = (), **config: Any) -> Flask:
    """Return a new Flask app that has these handlers, prepared; BILLHOOK_… options may be given by name."""
    app = Flask("billhook_testing", instance_path=str(Path(folder).absolute()))
    app.config.update({**options(folder), **config})
    Billhook(handlers=handlers, sources=sources).init_app(app)
    prepare(app)
    return app


def prepare(app: Flask) -> FrozenClock:
    """Give an app the clock of its test, which stands at the present second, and return it.

    A second time returns the same clock. Raises ConfigError for an app whose engine runs by itself.
    """
    return preparation(app).clock


def preparation(app: Flask) -> Preparation:
    """Return the record of an app, after preparing it if necessary. Raises ConfigError."""
    known: Preparation | None = app.extensions.get(_EXTENSION)
    if known is None:
        state = get_state(app)
        if ENGINES[state.settings.engine].runs_by_itself:
            raise ConfigError(
                f"BILLHOOK_ENGINE is {state.settings.engine!r}, whose handlers run by themselves: before "
                "init_app(), set billhook.testing.options(folder) in the app's config or in the environment"
            )
        known = Preparation(state, FrozenClock(datetime.now(UTC).replace(microsecond=0)))
        state.use_clock(known.clock)
        signals.delivery_rejected.connect(known.note_refusal, sender=app)
        app.extensions[_EXTENSION] = known
    return known


@dataclass(frozen=True, slots=True)
class DeadRun:
    """A run whose attempts are used up; `error` is the last one."""

    handler: str
    event: Event | UnknownEvent
    attempts: int
    error: str


def settle(app: Flask, advance: timedelta | float | None = None) -> int:
    """Run what is due, move the clock to the next retry, and so on, until nothing is left to do.

    With `advance`, a time or a number of seconds, the clock moves so far and no further; 0 runs what is due
    now. Returns the number of attempts.
    """
    known = preparation(app)
    if advance is not None and not isinstance(advance, timedelta):
        advance = timedelta(seconds=advance)
    until = None if advance is None else known.clock.now() + advance
    attempts = 0
    while True:
        attempts += known.state.handle_due()
        times = known.state.inbox.next_times(known.state.dispatcher.limits)
        due_at = times.after(known.clock.now())
        if due_at is None or (until is not None and due_at > until):
            break
        known.clock.advance(seconds=(due_at - known.clock.now()).total_seconds())
    if until is not None:
        known.clock.advance(seconds=(until - known.clock.now()).total_seconds())
    return attempts


# The type of its events is what the handler takes; of a name or a plain subscriber it is not known.
@overload
def handled(app: Flask, handler: Callable[[E], Any]) -> list[E]: ...
@overload
def handled(app: Flask, handler: Callable[[E, Delivery], Any]) -> list[E]: ...
@overload
def handled(app: Flask, handler: Callable[..., Any] | str) -> list[Event | UnknownEvent]: ...
def handled(app: Flask, handler: Callable[..., Any] | str) -> list[Any]:
    """Return the events that a handler, or the one of a name, has handled with success, oldest first.

    Raises ConfigError for one that the app does not have.
    """
    state = preparation(app).state
    found = _find(state, handler)
    return [
        _event(one)
        for one, run in _runs(state)
        if run.handler in found.names and run.state == RunState.SUCCEEDED.value
    ]


def dead(app: Flask) -> list[DeadRun]:
    """Return the runs that failed for good, those of the oldest delivery first."""
    return [
        DeadRun(run.handler, _event(one), run.attempts, run.last_error or "")
        for one, run in _runs(preparation(app).state)
        if run.state == RunState.DEAD.value
    ]


def refused(app: Flask) -> list[str]:
    """Return the causes of the refused deliveries, in order: `mismatch`, `stale` and so on."""
    return list(preparation(app).refusals)


def pause_handler(app: Flask, handler: Callable[..., Any] | str, why: str | None = None) -> None:
    """Pause a handler, as `billhook handlers pause` does: `settle` does not call it any more.

    Raises ConfigError for one that the app does not have.
    """
    known = preparation(app)
    known.state.inbox.pause_handler(_find(known.state, handler).name, why, known.clock.now())


def resume_handler(app: Flask, handler: Callable[..., Any] | str) -> None:
    """Resume a paused handler. Raises ConfigError for one that is not paused or not the app's."""
    known = preparation(app)
    name = _find(known.state, handler).name
    if not known.state.inbox.resume_handler(name):
        raise ConfigError(f"{name} is not paused: paused() has those that are")


def paused(app: Flask) -> dict[str, str | None]:
    """Return the names of the paused handlers with their reasons; `pause_after` pauses some by itself."""
    return {one.name: one.why for one in preparation(app).state.inbox.paused_handlers()}


def _runs(state: BillhookState) -> Iterator[tuple[DeliveryDetails, RunDetails]]:
    for one in export(state.inbox, DeliveryFilter()):
        for run in one.runs:
            yield one, run


def _event(one: DeliveryDetails) -> Event | UnknownEvent:
    return parse_event(one.summary.event_type, one.body, as_named=one.summary.sent_as is not None)


def _find(state: BillhookState, handler: Callable[..., Any] | str) -> Handler:
    known = {each.name: each for each in state.handlers.every()}
    for name, each in known.items():
        if handler in (name, each.function, *each.aliases):
            return each
    none = "none (billhook_app or billhook_handlers in pytest's settings names them)"
    raise ConfigError(f"{handler!r} is no handler of this app, which has {', '.join(sorted(known)) or none}")


_OPTIONS = ("signed", "age_seconds", "key", "source")
"""The options of `deliver`, for which a misspelt field may be meant."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The response that the service would get."""

    status: int
    json: Any


def deliver(
    app: Flask,
    event: type[Event] | Event | UnknownEvent | str,
    *,
    signed: bool | str = True,
    age_seconds: float = 0,
    key: str | None = None,
    source: str | None = None,
    **overrides: Any,
) -> Answer:
    """Sign an event, and post it to the app as the service does; return the answer.

    Of a class, or the name of one, it is the sample of `billhook.events.sample`; `overrides` replace fields.
    One that looks like a misspelt field is a TypeError, and one that is like no field adds it. A name that no
    class has gives an event of an unknown type. `signed` is False for none, or a text: the
    secret to sign with. `age_seconds` is the age of the signature, `key` the message id, `source` the
    name of the source; without one it is the default, or the only one.
    """
    made = _with_overrides(event, overrides)
    route = find_route(app, source, option="source=")
    body, event_type, type_header = made.to_json(), made.type, route.source.type_header
    if route.source.type_field is not None:
        body, event_type = with_type(body, route.source.type_field, made.type), ""
    headers = {type_header or TYPE_HEADER: event_type} if event_type else {}
    if signed is not False:
        secret = signed if isinstance(signed, str) else route.source.secret_list[0]
        if not isinstance(secret, str):
            raise ConfigError(
                f"source {route.source.name!r} has only public keys: give the private key, signed=KEY"
            )
        now = preparation(app).clock.now() - timedelta(seconds=age_seconds)
        signed_as = (event_type, body, now, key or _new_key())
        headers |= sign(route.source.scheme, secret, *signed_as, type_header=type_header)
    with AppPoster(app, route.path, host_of(app, route)).send(body, headers) as response:
        return Answer(response.status_code, response.get_json(silent=True))


def delivery_of(
    event: Event | UnknownEvent,
    *,
    handler: str = "handler",
    client: BillingClient | None = None,
    **facts: Any,
) -> Delivery:
    """Return a delivery of an event, for a call of a handler as a plain function.

    It is a new one with each call, unless `key` is among the `facts`, the other fields of Delivery. `client`
    is what `delivery.client` returns.
    """
    now = datetime.now(UTC)
    made: dict[str, Any] = {
        "id": 1,
        "key": _new_key(),
        "source": DEFAULT_SOURCE,
        "event_type": event.type,
        "attempt": 1,
        "received_at": now,
        "signed_at": now,
        "body": event.to_json(),
        "headers": Headers({}),
        "handler": handler,
    }
    make_client: Callable[[], BillingClient] | None = None if client is None else lambda: client
    return Delivery(**{**made, "make_client": make_client, **facts})


def _new_key() -> str:
    return f"msg_{secrets.token_hex(8)}"


def _with_overrides(
    event: type[Event] | Event | UnknownEvent | str, overrides: Mapping[str, Any]
) -> Event | UnknownEvent:
    if isinstance(event, str):
        known = EVENT_TYPES.get(event)
        if known is None:
            return UnknownEvent(type=event, data=dict(overrides))
        event = known
    if isinstance(event, UnknownEvent):
        return UnknownEvent(type=event.type, data={**event.data, **overrides})
    refuse_misspelt(event if isinstance(event, type) else type(event), overrides, _OPTIONS)
    if isinstance(event, type):
        return sample(event, **overrides)
    # Construct it rather than copy it, so that the overrides are validated too.
    return type(event)(**{**event.model_dump(exclude_unset=True), **overrides}) if overrides else event
