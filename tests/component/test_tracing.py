"""Spans of attempts, by the real SDK of OpenTelemetry: whose children they are, and what they link to."""

from __future__ import annotations

import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from billhook import Handlers, signals, tracing
from billhook.errors import Discard
from billhook.errors.program import install_command
from billhook.events import PingTest
from billhook.extension import get_state
from billhook.inbox.operating.operations import replay
from support.apps import deliver, inbox_at
from support.engines import celery_engine
from support.inbox_view import rows
from support.processes import run_command, until

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=x"}


@pytest.fixture
def exporter():
    made = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    tracing.instrument(provider)
    yield made
    tracing.uninstrument()
    provider.shutdown()


def handlers_that(*errors, is_async=False):
    """A handler whose attempts raise these, one after the other; `seen` are the spans that it found."""
    handlers, seen = Handlers(), []

    def act(event, delivery):
        seen.append(trace.get_current_span().get_span_context().span_id)
        error = errors[delivery.attempt - 1] if delivery.attempt <= len(errors) else None
        if error is not None:
            raise error

    async def act_async(event, delivery):
        act(event, delivery)

    handlers.on(PingTest, name="act", retry=[0] * 3)(act_async if is_async else act)
    return handlers, seen


def run_inline(app):
    get_state(app).handle_due()


def run_celery(app):
    """As a task does it."""
    celery_engine(app).execute(1)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("run", [run_inline, run_celery])
def test_the_first_attempt_is_a_child_of_the_senders_span_and_a_later_one_links_to_it(
    app_with, exporter, run, is_async
):
    handlers, seen = handlers_that(LookupError("away"), is_async=is_async)
    app = app_with(handlers=[handlers])
    deliver(app, headers=SENT, message_id="msg_1")
    run(app)

    first, second = exporter.get_finished_spans()
    assert seen == [first.context.span_id, second.context.span_id]  # current within the handler
    assert (first.name, first.kind) == ("process PingTest act", SpanKind.CONSUMER)
    assert f"{first.context.trace_id:032x} {first.parent.span_id:016x}" == f"{TRACE} {PARENT}"
    assert first.context.trace_state.get("vendor") == "x"
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "LookupError")
    assert [event.name for event in first.events] == ["exception"]
    assert first.attributes["billhook.attempt"] == 1
    assert first.attributes["messaging.message.id"] == "msg_1"
    (link,) = second.links
    assert f"{link.context.trace_id:032x} {link.context.span_id:016x}" == f"{TRACE} {PARENT}"
    assert second.parent is None
    assert second.context.trace_id != first.context.trace_id
    assert second.status.status_code is StatusCode.UNSET
    # The span of the attempt is not current any more.
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("engine", ["thread", "worker"])
def test_the_trace_goes_on_in_another_thread(app_with, running, exporter, engine):
    handlers, seen = handlers_that(LookupError("away"))
    options = {"BILLHOOK_ENGINE": engine, "BILLHOOK_LEASE_SECONDS": 30}
    app = running(handlers, start_now=engine == "worker", **options)
    deliver(app, headers=SENT)
    until(lambda: rows(inbox_at(app), "SELECT state FROM run") == [("succeeded",)], 20)
    until(lambda: len(exporter.get_finished_spans()) == 2)

    first, second = exporter.get_finished_spans()
    assert seen == [first.context.span_id, second.context.span_id]
    assert first.parent.span_id == int(PARENT, 16)
    assert [link.context.span_id for link in second.links] == [int(PARENT, 16)]


def test_a_replay_links_to_the_senders_span(app_with, exporter):
    handlers, _ = handlers_that()
    app = app_with(handlers=[handlers])
    deliver(app, headers=SENT)
    run_inline(app)
    replay(get_state(app).inbox, [1], get_state(app).dispatcher.clock.now(), handler="act")
    run_inline(app)

    first, again = exporter.get_finished_spans()
    assert first.parent.span_id == int(PARENT, 16)
    assert again.parent is None
    assert [link.context.span_id for link in again.links] == [int(PARENT, 16)]


@pytest.mark.parametrize(
    "headers",
    [{}, {"traceparent": "00-zz-00-01"}, {"traceparent": f"00-{TRACE}-{PARENT}-01,00-{TRACE}-{PARENT}-01"}],
)
def test_without_one_good_traceparent_a_span_has_no_parent_and_no_link(app_with, exporter, headers):
    handlers, _ = handlers_that(LookupError("away"))
    app = app_with(handlers=[handlers])
    deliver(app, headers=headers)
    run_inline(app)

    assert [(span.parent, span.links) for span in exporter.get_finished_spans()] == [(None, ()), (None, ())]


def test_a_discard_is_no_error(app_with, exporter):
    handlers, _ = handlers_that(Discard("not ours"))
    app = app_with(handlers=[handlers])
    deliver(app)
    run_inline(app)

    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.UNSET


def test_a_later_attempt_belongs_to_the_span_around_it(app_with, exporter):
    handlers, _ = handlers_that(LookupError("away"))
    app = app_with(handlers=[handlers])
    deliver(app, headers=SENT)
    with trace.use_span(
        trace.NonRecordingSpan(trace.SpanContext(7, 9, is_remote=False, trace_flags=trace.TraceFlags(1)))
    ):
        run_inline(app)
        assert trace.get_current_span().get_span_context().span_id == 9

    first, second = exporter.get_finished_spans()
    assert (first.parent.span_id, second.parent.span_id) == (int(PARENT, 16), 9)


def test_instrumenting_twice_makes_one_span_and_uninstrumenting_none(app_with, exporter):
    provider, handlers = TracerProvider(), handlers_that()[0]
    second = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(second))
    tracing.instrument(provider)
    app = app_with(handlers=[handlers])
    deliver(app, message_id="msg_1")
    run_inline(app)
    tracing.uninstrument()
    tracing.uninstrument()
    deliver(app, message_id="msg_2")
    run_inline(app)

    assert (len(exporter.get_finished_spans()), len(second.get_finished_spans())) == (0, 1)


def test_instrumented_during_an_attempt_its_end_is_passed_over(app_with, exporter, caplog):
    app = app_with()
    facts = {"delivery": object(), "handler": "act", "error": None, "duration": 0.1}

    signals.emit(signals.handler_ended, app, **facts)

    assert caplog.messages == []
    assert exporter.get_finished_spans() == ()


def test_the_absence_of_opentelemetry_is_named():
    program = """
import sys, billhook.tracing
sys.modules["opentelemetry"] = None
try:
    billhook.tracing.instrument()
except Exception as error:
    print(type(error).__name__, error)
"""
    ran = run_command([sys.executable, "-c", program], check=True)

    assert ran.stdout == f"MissingExtra billhook.tracing needs the extra otel: {install_command('otel')}\n"
