"""Metrics for Prometheus: read from the inbox at each scrape, so they cover every process of every machine.

`pip install 'billhook[metrics]'`. Nothing is kept in the memory of a process, as each of several workers
would report only its part. Labels are few: event types with a model (all others are `*`), handlers, sources,
causes.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from billhook.clock import SystemClock
from billhook.errors import (
    ConfigError,
    InboxUnavailable,
    MissingExtra,
    RequestError,
    SchemaMismatch,
    SignatureError,
)
from billhook.events import EVENT_TYPES
from billhook.inbox import OTHER_TYPES
from billhook.inbox.counts import DURATION_BOUNDS, Counted
from billhook.inbox.overview import read_overview, read_totals

try:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.exposition import choose_encoder, generate_latest
    from prometheus_client.registry import Collector
except ImportError:
    raise MissingExtra("billhook.metrics", "metrics") from None

if TYPE_CHECKING:
    from flask import Blueprint
    from werkzeug.datastructures import Headers

    from billhook.clock import Clock
    from billhook.inbox import Inbox
    from billhook.inbox.figures import Overview, Total

_DELIVERIES = (
    Counted.ACCEPTED,
    Counted.DUPLICATE,
    Counted.CONFLICT,
    Counted.UNTYPED,
    Counted.QUARANTINED,
)
_ATTEMPTS = (Counted.SUCCEEDED, Counted.FAILED, Counted.DEAD, Counted.DISCARDED)
FEWEST_TOKEN_CHARACTERS = 16
_SYSTEM_CLOCK = SystemClock()


class InboxCollector(Collector):
    """The metrics of one inbox, for any registry of prometheus_client.

    >>> registry.register(InboxCollector(get_inbox))  # doctest: +SKIP

    With an inbox that cannot be read it gives `billhook_inbox_up 0` and nothing else.
    """

    def __init__(self, inbox: Callable[[], Inbox], clock: Clock = _SYSTEM_CLOCK) -> None:
        self._inbox = inbox
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        """Name no metric: a registry would otherwise read the inbox when it registers this."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Read the inbox."""
        up = GaugeMetricFamily("billhook_inbox_up", "Whether the inbox can be read.")
        try:
            overview, totals = read_overview(self._inbox(), self._clock.now()), read_totals(self._inbox())
        except (InboxUnavailable, SchemaMismatch):
            up.add_metric((), 0)
            yield up
            return
        up.add_metric((), 1)
        yield up
        yield from _deliveries(totals)
        yield from _attempts(totals)
        yield from _state(overview)
        yield from _last_deliveries(overview)
        yield from _workers(overview)


def _deliveries(totals: Collection[Total]) -> Iterator[Metric]:
    stored = CounterMetricFamily(
        "billhook_deliveries",
        "Deliveries by what became of them when they came; quarantined ones are among the accepted.",
        labels=("source", "type", "result"),
    )
    refused = CounterMetricFamily(
        "billhook_deliveries_refused", "Deliveries that were refused, by cause.", labels=("source", "cause")
    )
    numbers: Counter[tuple[str, str, str]] = Counter()
    for source in {total.source for total in totals if total.what not in _ATTEMPTS}:
        numbers.update({(source, cause, Counted.REFUSED): 0 for cause in _causes()})
    for total in totals:
        if total.what in _DELIVERIES:
            numbers[total.source, _label(total.event_type), total.what] += total.number
        elif total.what is Counted.REFUSED:
            numbers[total.source, total.cause, total.what] += total.number
    for (source, label, what), number in sorted(numbers.items()):
        if what == Counted.REFUSED:
            refused.add_metric((source, label), number)
        else:
            stored.add_metric((source, label, what), number)
    yield stored
    yield refused


def _causes() -> set[str]:
    """Return the causes of refusals that are shown as 0 before they happen.

    An alert on an increase does not see the first refusals if they begin a new series, and after an outage
    they are all counted at once.
    """
    causes: set[str] = set()
    waiting: list[type[RequestError | SignatureError | InboxUnavailable]]
    waiting = [RequestError, SignatureError, InboxUnavailable]
    while waiting:
        cause = waiting.pop()
        causes.add(cause.cause)
        waiting += cause.__subclasses__()
    return causes


def _attempts(totals: Iterable[Total]) -> Iterator[Metric]:
    attempts = CounterMetricFamily(
        "billhook_attempts",
        "Attempts of handlers by result; failed ones are tried again, dead ones are not.",
        labels=("handler", "result"),
    )
    durations = HistogramMetricFamily(
        "billhook_attempt_duration_seconds", "How long calls of a handler took.", labels=("handler",)
    )
    numbers: Counter[tuple[str, str]] = Counter()
    buckets: dict[str, list[int]] = {}
    seconds: Counter[str] = Counter()
    for total in totals:
        if total.what in _ATTEMPTS:
            numbers.update({(total.handler, what): 0 for what in _ATTEMPTS})
            numbers[total.handler, total.what] += total.number
            if total.bucket >= 0:
                of_handler = buckets.setdefault(total.handler, [0] * (len(DURATION_BOUNDS) + 1))
                of_handler[total.bucket] += total.number
                seconds[total.handler] += total.seconds  # type: ignore[assignment]
    for labels, number in sorted(numbers.items()):
        attempts.add_metric(labels, number)
    bounds = [*(f"{bound:g}" for bound in DURATION_BOUNDS), "+Inf"]
    for handler, of_handler in sorted(buckets.items()):
        up_to = [sum(of_handler[: place + 1]) for place in range(len(of_handler))]
        durations.add_metric((handler,), list(zip(bounds, up_to, strict=True)), seconds[handler])
    yield attempts
    yield durations


def _state(overview: Overview) -> Iterator[Metric]:
    backlog = overview.backlog
    stored = GaugeMetricFamily(
        "billhook_deliveries_stored",
        "Deliveries that are unread, in progress, dead or quarantined now; counted up to 100,000.",
        labels=("state",),
    )
    for state in ("unread", "in_progress", "dead", "quarantined"):
        stored.add_metric((state,), getattr(backlog, state))
    yield stored
    oldest = GaugeMetricFamily(
        "billhook_oldest_unfinished_timestamp_seconds",
        "When the oldest unfinished delivery was received; absent if all are finished.",
    )
    if backlog.oldest_at is not None:
        oldest.add_metric((), backlog.oldest_at.timestamp())
    yield oldest
    paused = GaugeMetricFamily(
        "billhook_handler_paused_timestamp_seconds", "Since when a handler is paused.", labels=("handler",)
    )
    for handler in overview.paused:
        paused.add_metric((handler.name,), handler.since.timestamp())
    yield paused


def _last_deliveries(overview: Overview) -> Iterator[Metric]:
    last = GaugeMetricFamily(
        "billhook_last_delivery_timestamp_seconds",
        "When the last delivery of an event type was received.",
        labels=("type",),
    )
    newest: dict[str, float] = {}
    for event_type in overview.types:
        if event_type.last_at is not None:
            label = _label(event_type.event_type)
            newest[label] = max(newest.get(label, 0.0), event_type.last_at.timestamp())
    for label, moment in sorted(newest.items()):
        last.add_metric((label,), moment)
    yield last


def _workers(overview: Overview) -> Iterator[Metric]:
    workers = GaugeMetricFamily(
        "billhook_workers", "Processes that handle deliveries, seen in the last minute.", labels=("engine",)
    )
    # An engine without a live worker is shown with 0 for a day.
    engines = Counter({worker.engine: 0 for worker in overview.workers})
    engines.update(worker.engine for worker in overview.workers if worker.alive)
    for engine, number in sorted(engines.items()):
        workers.add_metric((engine,), number)
    yield workers


def _label(event_type: str) -> str:
    return event_type if event_type in EVENT_TYPES or not event_type else OTHER_TYPES


# --- exposition ---------------------------------------------------------------------------------------


def metrics_text(inbox: Inbox) -> str:
    """Return the metrics of an inbox in Prometheus' text format."""
    return generate_latest(_registry(lambda: inbox)).decode()


def metrics_blueprint(token: str | None) -> Blueprint:
    """Return a blueprint with `GET /metrics` for an app with billhook.

    >>> app.register_blueprint(metrics_blueprint(token=os.environ["METRICS_TOKEN"]))  # doctest: +SKIP

    With a `token` only for requests with the header `Authorization: Bearer TOKEN`; None lets anyone read
    them who reaches the app. Raises ConfigError for a token of fewer than 16 characters.
    """
    from flask import Blueprint, Response, current_app, request
    from werkzeug.exceptions import HTTPException

    from billhook.extension import get_state
    from billhook.pages.failures import FailureLog, handled_by_app

    if token is not None and len(token) < FEWEST_TOKEN_CHARACTERS:
        raise ConfigError(f"the token for /metrics has fewer than {FEWEST_TOKEN_CHARACTERS} characters")
    expected = None if token is None else _digest(token)
    blueprint = Blueprint("billhook_metrics", __name__)
    failures = FailureLog()

    @blueprint.errorhandler(Exception)
    def failed(error: Exception) -> Any:
        own = handled_by_app(error)
        if own is not None or isinstance(error, HTTPException):
            return own or error
        failures.record(error)
        return Response("The metrics failed. The log says why.\n", 503)

    @blueprint.get("/metrics")
    def metrics() -> Response:
        if expected is not None and not _is_allowed(request.headers, expected):
            return Response("The token is missing or wrong.\n", 401, {"WWW-Authenticate": "Bearer"})
        encode, content_type = _encoder(request.headers.get("Accept", ""))
        inbox = get_state(current_app).inbox
        return Response(encode(_registry(lambda: inbox)), content_type=content_type)

    return blueprint


def _encoder(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """Return what writes the metrics in a format of the Accept header, or else in the plain one."""
    try:
        return choose_encoder(accept)
    except Exception:  # noqa: BLE001 - prometheus_client raises for parameters that it cannot read
        return choose_encoder("")


def _is_allowed(headers: Headers, expected: bytes) -> bool:
    scheme, _, sent = headers.get("Authorization", "").partition(" ")
    # Digests, so that the time of the comparison does not tell the token's length.
    return hmac.compare_digest(_digest(sent.strip()), expected) and scheme.lower() == "bearer"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _registry(inbox: Callable[[], Inbox]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(InboxCollector(inbox))
    return registry
