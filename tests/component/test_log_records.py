"""What log records carry, and what is in none of them."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import time
from pathlib import Path

import pytest
import sentry_sdk
from sentry_sdk.transport import Transport

import billhook
from billhook import Handlers
from billhook.basics.printable import PrintableFormatter
from billhook.events import InvoiceApproved, PaymentFailed, PingTest, sample
from billhook.extension import get_state
from billhook.logs import Fields, JsonFormatter
from support.apps import deliver, inbox_at
from support.inbox_view import rows
from support.processes import until
from support.signing import SECRET

SOURCE = Path(billhook.__file__).parent
PAGE = SOURCE.parents[1] / "deploy" / "README.md"
FIELDS = tuple(Fields.__annotations__)


def extra(record):
    return {name: vars(record)[name] for name in FIELDS if name in vars(record)}


def found(caplog, text):
    (record,) = [one for one in caplog.records if text in one.getMessage()]
    return record


def failing(*types, retry):
    handlers = Handlers()

    @handlers.on(*types, name="act", retry=retry)
    def act(event):
        secret_local = "canary-local"  # noqa: F841 - what a collector may keep of a frame
        raise LookupError("no such invoice")

    return handlers


def test_the_page_lists_the_fields():
    (table,) = re.findall(r"\| field \| \|\n((?:\|.*\n)+)", PAGE.read_text())
    named = [re.findall("`(.+?)`", line.split("|")[1]) for line in table.splitlines()[1:]]

    assert [name for names in named for name in names] == list(FIELDS)


@pytest.mark.parametrize(("retry", "said"), [([60], "failed on delivery 1"), ([], "on delivery 1 is dead")])
def test_a_failed_attempt_names_delivery_handler_attempt_cause_and_duration(app_with, caplog, retry, said):
    app = app_with(handlers=[failing(InvoiceApproved, retry=retry)], BILLHOOK_ENGINE="inline")

    deliver(app, sample(InvoiceApproved).to_json(), "InvoiceApproved", message_id="msg_1")

    record = found(caplog, said)
    told = extra(record)
    assert 0 <= told.pop("duration") < 60
    assert told == {
        "delivery_id": 1, "source": "default", "key": "msg_1", "event_type": "InvoiceApproved",
        "handler": "act", "attempt": 1, "cause": "LookupError",
    }  # fmt: skip
    # A dead run has its traceback, once; an attempt that is made again has none.
    assert (record.exc_info is not None) == (not retry)
    assert "handler.py" not in PrintableFormatter().format(record)  # it begins at the handler
    at = r"retrying in 1 min \(at 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC\): LookupError"
    assert (re.search(at, record.getMessage()) is not None) == bool(retry)


def test_refused_and_quarantined_deliveries_name_their_cause(app_with, caplog):
    app = app_with(BILLHOOK_ENGINE="inline")
    app.test_client().post("/webhooks/billing", data=b"{}")
    deliver(app, b"no JSON", "PaymentFailed", message_id="msg_1")
    deliver(app, sample(PingTest).to_json(), "PingTest", message_id="msg_1")

    assert extra(found(caplog, "refused with 401")) == {"source": "default", "cause": "missing"}
    about = {"source": "default", "key": "msg_1"}
    assert extra(found(caplog, "delivery 1 (PaymentFailed) is quarantined")) == about | {
        "delivery_id": 1, "event_type": "PaymentFailed", "cause": "quarantined",
    }  # fmt: skip
    assert extra(found(caplog, "delivery 2 (PingTest) is quarantined")) == about | {
        "delivery_id": 2, "event_type": "PingTest", "cause": "conflict",
    }  # fmt: skip


def test_an_observer_that_raises_is_logged_with_what_it_was_told_of(app_with, caplog):
    app = app_with(handlers=[failing(PingTest, retry=[60])], BILLHOOK_ENGINE="inline")

    def fail(sender, **_):
        raise LookupError

    with billhook.signals.handler_ended.connected_to(fail, app):
        deliver(app, sample(PingTest).to_json(), "PingTest", message_id="msg_1")

    assert extra(found(caplog, "an observer of a lifecycle signal raised")) == {
        "delivery_id": 1, "source": "default", "key": "msg_1", "event_type": "PingTest",
        "handler": "act", "attempt": 1,
    }  # fmt: skip


def log_calls(folder):
    """Each call of a logger below a folder of the source: where it is, and whether it has fields."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and ast.unparse(called.value) == "logger":
                named = {keyword.arg for keyword in node.keywords}
                values = [ast.unparse(argument) for argument in node.args[1:]]
                yield f"{path.name}: {ast.unparse(node)}", "extra" in named, bool(values)


def test_every_record_of_receiver_and_engines_that_has_values_has_fields():
    calls = [call for folder in ("receiver", "engines") for call in log_calls(SOURCE / folder)]

    assert len(calls) > 25
    assert [where for where, fielded, valued in calls if valued and not fielded] == [
        "engine.py: logger.error('rejected a message for %s: its argument is not a delivery id', TASK)"
    ]


# --- Sentry ---------------------------------------------------------------------------------------


class Kept(Transport):
    """Keeps what would be sent."""

    def __init__(self, options=None):
        super().__init__(options)
        self.events = []

    def capture_envelope(self, envelope):
        self.events += [item.payload.json for item in envelope.items if item.type == "event"]


@pytest.fixture
def sentry():
    """Sentry as an app sets it up, without a network; ended afterwards."""
    transport = Kept()
    sentry_sdk.init(
        dsn="https://public@sentry.example/1", transport=transport, auto_enabling_integrations=False
    )
    yield transport
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)


def test_sentry_has_one_event_for_a_dead_run_and_none_for_a_retry(app_with, sentry):
    app = app_with(handlers=[failing(InvoiceApproved, retry=[0, 0])], BILLHOOK_ENGINE="worker")
    deliver(app, sample(InvoiceApproved).to_json(), "InvoiceApproved")

    handled = get_state(app).handle_due()
    sentry_sdk.flush()

    assert handled == 3
    (event,) = sentry.events
    (raised,) = event["exception"]["values"]
    assert (raised["type"], raised["value"]) == ("LookupError", "no such invoice")
    assert raised["stacktrace"]["frames"][-1]["function"] == "act"
    assert (
        event["extra"] | {"handler": "act", "attempt": 3, "event_type": "InvoiceApproved"} == event["extra"]
    )


def test_a_handler_past_its_time_out_is_no_event_of_its_own(running, sentry):
    handlers = Handlers()

    @handlers.on(PingTest, name="slow", timeout_seconds=0.05, retry=[0])
    def slow(event):
        time.sleep(0.5)

    app = running(handlers, BILLHOOK_LEASE_SECONDS=30)
    deliver(app)
    until(lambda: rows(inbox_at(app), "SELECT state FROM run") == [("dead",)], 20)
    until(lambda: sentry.events)
    sentry_sdk.flush()

    (event,) = sentry.events
    assert "on delivery 1 is dead after attempt 2" in event["logentry"]["formatted"]


# --- secrets --------------------------------------------------------------------------------------


@pytest.fixture
def printed():
    """All records as text and as JSON, at every level."""
    streams = []
    root = logging.getLogger()
    level = root.level
    for formatter in (PrintableFormatter("%(name)s %(message)s"), JsonFormatter()):
        handler = logging.StreamHandler(io.StringIO())
        handler.setFormatter(formatter)
        root.addHandler(handler)
        streams.append(handler)
    root.setLevel(logging.DEBUG)
    yield lambda: [handler.stream.getvalue() for handler in streams]
    root.setLevel(level)
    for handler in streams:
        root.removeHandler(handler)


def test_secrets_signatures_and_bodies_are_in_no_record(app_with, printed, sentry):
    app = app_with(handlers=[failing(InvoiceApproved, PaymentFailed, retry=[])], BILLHOOK_ENGINE="inline")
    headers = {"Authorization": "Bearer canary-authorization", "X-Api-Key": "canary-key"}
    forged = {"webhook-signature": "v1,Y2FuYXJ5LXNpZ25hdHVyZQ==", **headers}
    body = sample(InvoiceApproved, invoice_id="canary-body").to_json()

    deliver(app, body, "InvoiceApproved", message_id="canary-control", headers=headers)
    deliver(app, body, "InvoiceApproved", message_id="msg_2", headers=forged)
    deliver(app, b"no JSON: canary-body", "PaymentFailed", message_id="msg_3", headers=headers)
    ((stored,),) = rows(inbox_at(app), "SELECT headers FROM delivery WHERE key = 'canary-control'")
    sentry_sdk.flush()

    signature = json.loads(stored)["WEBHOOK_SIGNATURE"].split(",")[1]
    secrets = [
        SECRET,
        SECRET.removeprefix("whsec_"),
        signature,
        "Y2FuYXJ5LXNpZ25hdHVyZQ==",
        "canary-authorization",
    ]
    # The control: what is logged is found.
    logging.getLogger("billhook.engines").error("canary-control")
    for text in (*printed(), json.dumps(sentry.events)):
        assert "no such invoice" in text
        assert "canary-control" in text
        assert [secret for secret in (*secrets, "canary-key") if secret in text] == []
    # Sentry keeps local variables, and so the event.
    assert [text for text in printed() if "canary-body" in text] == []


def test_the_password_of_an_inbox_that_is_away_is_in_no_record(app_with, printed):
    url = "postgresql+psycopg://shop:canary-password@127.0.0.1:1/shop"
    app = app_with(BILLHOOK_INBOX_URL=url, BILLHOOK_ENGINE="worker")

    assert deliver(app).status_code == 503
    for text in printed():
        assert "127.0.0.1" in text
        assert "canary-password" not in text
