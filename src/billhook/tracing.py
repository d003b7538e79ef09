"""Traces: a span of OpenTelemetry for each attempt of a handler, in the trace of the delivery's sender.

`pip install 'billhook[otel]'`, then call `instrument()` once, where handlers are defined. Nothing else of
billhook imports OpenTelemetry, and no span is made before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from billhook import signals
from billhook.errors import Discard, MissingExtra

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, TracerProvider

    from billhook.handlers import Delivery

_tracing: _Tracing | None = None


def instrument(tracer_provider: TracerProvider | None = None) -> None:
    """Make a span around each attempt of each handler, in all apps of this process and its forks.

    The span is the current one within the handler, an async one too. At a delivery's first attempt it is a
    child of the span that the request's `traceparent` names; at later attempts and replays, hours after, it
    has a link to that one. The provider is the global one unless given; it may be set up later. Called
    again, it replaces the provider. Raises MissingExtra.

    >>> instrument()  # doctest: +SKIP
    """
    global _tracing
    try:
        tracing = _Tracing(tracer_provider)
    except ImportError:
        raise MissingExtra("billhook.tracing", "otel") from None
    uninstrument()
    _tracing = tracing
    signals.handler_started.connect(tracing.started, weak=False)
    signals.handler_ended.connect(tracing.ended, weak=False)


def uninstrument() -> None:
    """Make no more spans."""
    global _tracing
    if _tracing is not None:
        signals.handler_started.disconnect(_tracing.started)
        signals.handler_ended.disconnect(_tracing.ended)
        _tracing = None


class _Tracing:
    """The observer of each call's start and end, which both come in the thread of the call."""

    def __init__(self, tracer_provider: TracerProvider | None) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = trace.get_tracer("billhook", tracer_provider=tracer_provider)
        self._propagator = TraceContextTextMapPropagator()
        # Keyed by the identity of the Delivery: each attempt has its own object, which lives until its end.
        self._open: dict[int, tuple[Span, Any]] = {}

    def started(self, sender: object, *, delivery: Delivery, handler: str) -> None:
        """Start the span of an attempt, and make it the current one."""
        from opentelemetry import context, trace

        parent, links = self._origin(delivery)
        span = self._tracer.start_span(
            f"process {delivery.event_type or 'delivery'} {handler}",
            context=parent,
            kind=trace.SpanKind.CONSUMER,
            links=links,
            attributes={
                "messaging.system": "billhook",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.message.id": delivery.key,
                "billhook.delivery_id": delivery.id,
                "billhook.source": delivery.source,
                "billhook.event_type": delivery.event_type,
                "billhook.handler": handler,
                "billhook.attempt": delivery.attempt,
            },
        )
        self._open[id(delivery)] = span, context.attach(trace.set_span_in_context(span))

    def ended(
        self,
        sender: object,
        *,
        delivery: Delivery,
        handler: str,
        error: BaseException | None,
        duration: float,
    ) -> None:
        """End the span, and make the one before it current again. A discard is no error."""
        from opentelemetry import context
        from opentelemetry.trace import Status, StatusCode

        found = self._open.pop(id(delivery), None)
        if found is None:  # instrumented during this attempt
            return
        span, token = found
        context.detach(token)
        if error is not None and not isinstance(error, Discard):
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        span.end()

    def _origin(self, delivery: Delivery) -> tuple[Context | None, list[Link]]:
        """Return the context in which the span starts (None: the current one), and its links."""
        from opentelemetry import trace
        from opentelemetry.context import Context

        # Accept only what W3C's Trace Context allows, which excludes a header sent twice, as it contains a
        # comma. In a context without the current span only the sender's span counts.
        alone = self._propagator.extract(delivery.headers, Context())
        origin = trace.get_current_span(alone).get_span_context()
        if not origin.is_valid:
            return None, []
        if delivery.attempt == 1 and not delivery.replays:
            return self._propagator.extract(delivery.headers), []
        return None, [trace.Link(origin)]
