"""Metrics for Prometheus: read from the inbox at each scrape, so they cover every process of every machine.

`pip install 'billhook[metrics]'`. Nothing is kept in the memory of a process, as each of several workers
would report only its part. Labels are few: event types with a model (all others are `*`), handlers, sources,
causes.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from billhook.basics.engine_kinds import WORKER
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
from billhook.inbox.counting.counts import ATTEMPTS, DURATION_BOUNDS, NO_DURATION, Counted, Counts
from billhook.inbox.watching.conditions import Facts
from billhook.inbox.watching.issues import IssueState, count_issues
from billhook.inbox.watching.judgement import judge
from billhook.inbox.watching.overview import read_state, read_totals

try:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.exposition import choose_encoder, generate_latest
    from prometheus_client.registry import Collector
except ImportError:
    raise MissingExtra("billhook.metrics", "metrics") from None

if TYPE_CHECKING:
    from flask import Blueprint

    from billhook.clock import Clock
    from billhook.inbox import Inbox
    from billhook.inbox.watching.overview import InboxState

_STORED = (Counted.ACCEPTED, Counted.CONFLICT, Counted.UNTYPED)
FEWEST_TOKEN_CHARACTERS = 16


class InboxCollector(Collector):
    """The metrics of one inbox, for any registry of prometheus_client.

    >>> registry.register(InboxCollector(get_inbox))  # doctest: +SKIP

    With an inbox that cannot be read it gives `billhook_inbox_up 0` and nothing else.
    """

    def __init__(
        self, inbox: Callable[[], Inbox], clock: Clock | None = None, engine: str = WORKER.name
    ) -> None:
        self._inbox = inbox
        self._engine = engine
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        """Name no metric: a registry would otherwise read the inbox when it registers this."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Read the inbox."""
        up = "billhook_inbox_up", "Whether the inbox can be read."
        try:
            now = (self._clock or self._inbox().database.clock).now()
            state, totals = read_state(self._inbox(), now), read_totals(self._inbox())
            issues = count_issues(self._inbox())
            judgement = judge(Facts(self._inbox(), now, self._engine))
        except (InboxUnavailable, SchemaMismatch):
            yield _gauge(*up, {(): 0})
            return
        yield _gauge(*up, {(): 1})
        yield from _deliveries(totals)
        yield from _attempts(totals)
        yield from _state(state)
        yield _gauge(
            "billhook_issues",
            "Issues that are open, or that an operator has acknowledged.",
            {(each,): issues[each] for each in (IssueState.OPEN, IssueState.ACKNOWLEDGED)},
            "state",
        )
        yield _gauge(
            "billhook_condition",
            "Whether a condition holds that needs attention; absent if it could not be judged.",
            {(name,): int(holds) for name, holds in judgement.by_name().items()},
            "name",
        )
        newest: dict[tuple[str, ...], float] = {}
        for key, total in totals.items():
            if key.what in _STORED:
                label = (_label(key.event_type),)
                newest[label] = max(newest.get(label, 0.0), total.last_at.timestamp())
        text = "When the last delivery of an event type was received."
        yield _gauge("billhook_last_delivery_timestamp_seconds", text, newest, "type")
        # An engine without a live worker is shown with 0 for a day.
        engines = Counter[tuple[str, ...]]({(worker.engine,): 0 for worker in state.workers})
        engines.update((worker.engine,) for worker in state.workers if worker.alive)
        text = "Processes that handle deliveries, seen in the last minute."
        yield _gauge("billhook_workers", text, engines, "engine")


def _metric(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    text: str,
    samples: Mapping[tuple[str, ...], float],
    *labels: str,
) -> Metric:
    """Return a metric with these samples, by the values of its labels."""
    metric = kind(name, text, labels=labels)
    for values, number in sorted(samples.items()):
        metric.add_metric(values, number)
    return metric


_counter = partial(_metric, CounterMetricFamily)
_gauge = partial(_metric, GaugeMetricFamily)


def _deliveries(totals: Counts) -> Iterator[Metric]:
    stored: Counter[tuple[str, ...]] = Counter()
    sources = {key.source for key in totals if key.what not in ATTEMPTS}
    causes = _causes(RequestError, SignatureError, InboxUnavailable)
    refused = Counter[tuple[str, ...]]({(source, cause): 0 for source in sources for cause in causes})
    for key, total in totals.items():
        if key.what == Counted.REFUSED:
            refused[key.source, key.cause] += total.number
        elif key.what not in ATTEMPTS:
            stored[key.source, _label(key.event_type), key.what] += total.number
    yield _counter(
        "billhook_deliveries",
        "Deliveries by what became of them when they came; quarantined ones are among the accepted.",
        stored,
        *("source", "type", "result"),
    )
    text = "Deliveries that were refused, by cause."
    yield _counter("billhook_deliveries_refused", text, refused, "source", "cause")


def _causes(*errors: type[RequestError | SignatureError | InboxUnavailable]) -> set[str]:
    """Return the causes of refusals by these errors, which are shown as 0 before they happen.

    An alert on an increase does not see the first refusals if they begin a new series, and after an outage
    they are all counted at once.
    """
    return {error.cause for error in errors}.union(*(_causes(*error.__subclasses__()) for error in errors))


def _attempts(totals: Counts) -> Iterator[Metric]:
    handlers = sorted({key.handler for key in totals if key.handler})
    numbers = Counter[tuple[str, ...]](
        {(handler, what.value): 0 for handler in handlers for what in ATTEMPTS}
    )
    durations = HistogramMetricFamily(
        "billhook_attempt_duration_seconds", "How long calls of a handler took.", labels=("handler",)
    )
    bounds = [*(f"{bound:g}" for bound in DURATION_BOUNDS), "+Inf"]
    for handler in handlers:
        buckets, seconds = [0] * len(bounds), 0.0
        for key, total in totals.items():
            if key.handler == handler:
                numbers[handler, key.what] += total.number
                if key.bucket != NO_DURATION:
                    buckets[key.bucket] += total.number
                    seconds += total.seconds
        if any(buckets):
            durations.add_metric((handler,), list(zip(bounds, accumulate(buckets), strict=True)), seconds)
    text = "Attempts of handlers by result; failed ones are tried again, dead ones are not."
    yield _counter("billhook_attempts", text, numbers, "handler", "result")
    yield durations


def _state(state: InboxState) -> Iterator[Metric]:
    backlog = state.backlog
    yield _gauge(
        "billhook_deliveries_stored",
        "Deliveries that are unread, in progress, dead or quarantined now; counted up to 100,000.",
        {(name,): getattr(backlog, name) for name in ("unread", "in_progress", "dead", "quarantined")},
        "state",
    )
    yield _gauge(
        "billhook_oldest_unfinished_timestamp_seconds",
        "When the oldest unfinished delivery was received; absent if all are finished.",
        {} if backlog.oldest_at is None else {(): backlog.oldest_at.timestamp()},
    )
    yield _gauge(
        "billhook_runs",
        "Unfinished and dead runs of handlers with such runs; each counted up to 10,000.",
        {(one.name, name): number for one in state.handler_backlogs for name, number in one.states.items()},
        *("handler", "state"),
    )
    yield _gauge(
        "billhook_handler_paused_timestamp_seconds",
        "Since when a handler is paused.",
        {(handler.name,): handler.since.timestamp() for handler in state.paused},
        "handler",
    )


def _label(event_type: str) -> str:
    return event_type if event_type in EVENT_TYPES or not event_type else OTHER_TYPES


def metrics_text(inbox: Inbox, engine: str = WORKER.name) -> str:
    """Return the metrics of an inbox, of a deployment with this engine, in Prometheus' text format."""
    return generate_latest(_registry(lambda: inbox, engine)).decode()


def metrics_blueprint(token: str | None) -> Blueprint:
    """Return a blueprint with `GET /metrics` for an app with billhook.

    >>> app.register_blueprint(metrics_blueprint(token=os.environ["METRICS_TOKEN"]))  # doctest: +SKIP

    With a `token` only for requests with the header `Authorization: Bearer TOKEN`; None lets anyone read
    them who reaches the app. Raises ConfigError for a token of fewer than 16 characters.
    """
    from flask import Blueprint, Response, current_app, request
    from werkzeug.exceptions import HTTPException

    from billhook.extension import get_state
    from billhook.pages.pages import FailureLog, handled_by_app

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
        scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
        # Digests, so that the time of the comparison does not tell the token's length.
        if expected is not None and not (
            hmac.compare_digest(_digest(sent.strip()), expected) and scheme.lower() == "bearer"
        ):
            return Response("The token is missing or wrong.\n", 401, {"WWW-Authenticate": "Bearer"})
        encode, content_type = _encoder(request.headers.get("Accept", ""))
        state = get_state(current_app)
        registry = _registry(lambda: state.inbox, state.settings.engine)
        return Response(encode(registry), content_type=content_type)

    return blueprint


def _encoder(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """Return what writes the metrics in a format of the Accept header, or else in the plain one."""
    try:
        return choose_encoder(accept)
    except Exception:  # noqa: BLE001 - prometheus_client raises for parameters that it cannot read
        return choose_encoder("")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _registry(inbox: Callable[[], Inbox], engine: str = WORKER.name) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(InboxCollector(inbox, engine=engine))
    return registry
