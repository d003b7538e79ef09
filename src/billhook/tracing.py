"""Traces: a span of OpenTelemetry for each attempt of a handler, in the trace of the delivery's sender.

`pip install 'billhook[otel]'`, then call `instrument()` once, where handlers are defined. Nothing else of
billhook imports OpenTelemetry, and no span is made before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from billhook import signals
from billhook.errors import Discard, MissingExtra

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

    from billhook.handlers import Delivery

_disconnects: list[Callable[[], None]] = []
"""Ends what `instrument` has begun, in this process and its forks."""


def instrument(tracer_provider: TracerProvider | None = None) -> None:
    """Make a span around each attempt of each handler, in all apps of this process and its forks.

    The span is the current one within the handler, an async one too. At a delivery's first attempt it is a
    child of the span that the request's `traceparent` names; at later attempts and replays, hours after, it
    has a link to that one. The provider is the global one unless given; it may be set up later. Called
    again, it replaces the provider. Raises MissingExtra.

    >>> instrument()  # doctest: +SKIP
    """
    try:
        from opentelemetry import context, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        raise MissingExtra("billhook.tracing", "otel") from None
    tracer = trace.get_tracer("billhook", tracer_provider=tracer_provider)
    propagator = TraceContextTextMapPropagator()
    # Keyed by the identity of the Delivery: each attempt has its own object, which lives until its end. Start
    # and end come in the thread of the call, whose context has the span meanwhile.
    spans: dict[int, tuple[Span, Any]] = {}

    def started(sender: object, *, delivery: Delivery, handler: str) -> None:
        """Start the span of an attempt, and make it the current one."""
        # Accept only what W3C's Trace Context allows, which excludes a header sent twice, as it contains a
        # comma. In a context without the current span only the sender's span counts.
        alone = propagator.extract(delivery.headers, context.Context())
        origin = trace.get_current_span(alone).get_span_context()
        is_first = delivery.attempt == 1 and not delivery.replays
        span = tracer.start_span(
            f"process {delivery.event_type or 'delivery'} {handler}",
            context=propagator.extract(delivery.headers) if origin.is_valid and is_first else None,
            kind=trace.SpanKind.CONSUMER,
            links=[trace.Link(origin)] if origin.is_valid and not is_first else [],
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
        spans[id(delivery)] = span, context.attach(trace.set_span_in_context(span))

    def ended(sender: object, *, delivery: Delivery, error: BaseException | None, **_: object) -> None:
        """End the span, and make the one before it current again. A discard is no error."""
        if id(delivery) not in spans:  # instrumented during this attempt
            return
        span, token = spans.pop(id(delivery))
        context.detach(token)
        if error is not None and not isinstance(error, Discard):
            span.record_exception(error)
            span.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
        span.end()

    uninstrument()
    for signal, observer in ((signals.handler_started, started), (signals.handler_ended, ended)):
        signal.connect(observer, weak=False)
        _disconnects.append(partial(signal.disconnect, observer))


def uninstrument() -> None:
    """Make no more spans."""
    while _disconnects:
        _disconnects.pop()()
