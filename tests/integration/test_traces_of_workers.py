"""A trace across processes: the delivery is stored here, and handled by a worker there."""

from __future__ import annotations

import json

import pytest

from billhook.inbox import NewDelivery
from support.inbox_view import incoming
from support.processes import until
from support.worker_group import worker_group

PARENT = "00f067aa0ba902b7"
SENT = f"00-4bf92f3577b34da6a3ce929d0e0e4736-{PARENT}-01"
TRACED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from billhook import Handlers, tracing
from billhook.events import PingTest

provider = TracerProvider()
line = lambda span: span.to_json(indent=None) + "\\n"
exporter = ConsoleSpanExporter(out=open("spans.txt", "a"), formatter=line)
provider.add_span_processor(SimpleSpanProcessor(exporter))
tracing.instrument()  # before the global provider is set
trace.set_tracer_provider(provider)
"""
HANDLERS = """
handlers = Handlers()

@handlers.on(PingTest, name="act")
async def act(event, delivery):
    if delivery.attempt == 1:
        raise LookupError("away")
"""


@pytest.fixture
def group(tmp_path):
    (tmp_path / "traced.py").write_text(TRACED + HANDLERS)
    with worker_group(tmp_path, f"sqlite:///{tmp_path / 'billhook.db'}") as made:
        yield made


def spans(folder):
    return [json.loads(line) for line in (folder / "spans.txt").read_text().splitlines()]


@pytest.mark.slow
def test_a_worker_process_goes_on_with_the_senders_trace(group):
    headers = {"TRACEPARENT": SENT}
    plain = incoming("traced", event_type="PingTest", body=b"{}")
    group.inbox.put(
        NewDelivery(
            plain.source,
            plain.key,
            plain.event_type,
            plain.body,
            json.dumps(headers),
            None,
            plain.received_at,
        )
    )

    group.start("worker", "traced.py")
    until(lambda: group.states() == {"traced": "done"}, 30)

    first, second = spans(group.folder)
    assert (first["parent_id"], second["parent_id"]) == (f"0x{PARENT}", None)
    assert (first["name"], first["status"]["status_code"]) == ("process PingTest act", "ERROR")
    assert [link["context"]["span_id"] for link in second["links"]] == [f"0x{PARENT}"]
