"""Client, sandbox, webhook, receiver, handler: over sockets, under faults, and nothing is lost.

The two logs are independent of one another: the sandbox knows nothing of the inbox. They are compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from billhook.cli import demo_handlers as demo_handlers
from billhook.cli.demo_handlers import NOTES
from billhook.client import BillingClient, EventState
from billhook.clock import FrozenClock
from billhook.errors import DeliveryError
from billhook.events import EVENT_TYPES, parse_event
from billhook.fields import strict_json
from billhook.resources import UsageEvent
from billhook.sandbox import Sandbox, SandboxOptions
from billhook.sandbox.scenario import create_demo_data, run_scenario
from billhook.sandbox.serving import serving
from billhook.signing import StandardWebhooks
from support.inbox_view import rows
from support.processes import until
from support.receivers import Receiver, receiving
from support.sandbox import API_TOKEN, Running
from support.server import gunicorn
from support.signing import PATH, SECRET

pytestmark = pytest.mark.slow
FAULTS = ("duplicate", "delay", "reorder", "drop", "corrupt", "wrong_secret", "stale")

Handled = dict[str, list[tuple[str, bytes]]]
"""By delivery key: type and body of each call of a handler."""


@contextmanager
def sandbox(**options: Any) -> Iterator[Running]:
    """A sandbox by the real clock, that is patient with its receiver."""
    real = FrozenClock(datetime.now(UTC))  # not asked: the sandbox has its own
    made = Sandbox(
        SandboxOptions(
            api_token=API_TOKEN,
            secrets=[SECRET],
            allow_private=True,
            seed=7,
            retry_seconds=[0.1] * 40,
            rate_limit="100000/second",
            **options,
        )
    )
    with serving(made) as url:
        yield Running(made, url, real)


def calling(running: Running) -> Callable[[str, str, Any], Any]:
    """What the story calls: an hour may have passed between two of its requests."""

    def call(method: str, path: str, body: Any) -> Any:
        running.token = running.login()
        return running.ok(method, path, body)

    return call


def faulty(running: Running, faults: tuple[str, ...], probability: float) -> None:
    for fault in faults:
        seconds = {"seconds": 0.2} if fault in ("delay", "reorder") else {}
        running.ok("POST", "/_sandbox/faults", {"fault": fault, "probability": probability, **seconds})


Sent = tuple[str, str, str, bytes]
"""Id, state, type and body of a delivery; the state is `fooled` if a spoilt attempt was answered with 200."""


def sent_by(running: Running) -> list[Sent]:
    """Every delivery in the sandbox's log, once none is pending."""
    running.token = running.login()

    def settled() -> bool:
        told = running.ok("POST", "/_sandbox/flush", {"timeoutSeconds": 5})
        return bool(told["pending"] == 0)

    until(settled, 90)
    whole = strict_json.loads(running.call("GET", "/_sandbox/raised?limit=1000").body)
    assert isinstance(whole, dict)
    assert whole["hasMore"] is False
    bodies = {one["id"]: strict_json.dumps(one["body"]) for one in whole["raised"]}
    page = running.ok("GET", "/_sandbox/deliveries?limit=1000")
    assert page["hasMore"] is False
    return [(one["id"], _state(one), one["eventType"], bodies[one["raisedId"]]) for one in page["deliveries"]]


def _state(delivery: dict[str, Any]) -> str:
    fooled = any(one.get("error") == "should_have_refused" for one in delivery["attempts"])
    return "fooled" if fooled else str(delivery["state"])


def lost(sent: list[Sent], handled: Mapping[str, list[tuple[str, bytes]]]) -> list[str]:
    """What the sandbox sent, and no handler got as it was raised."""
    found = []
    for key, state, event_type, body in sent:
        calls = handled.get(key, [])
        good = [
            parse_event(kind, got) == parse_event(event_type, body)
            for kind, got in calls
            if kind == event_type
        ]
        if state != "delivered" or not good or not all(good) or len(good) != len(calls):
            found.append(f"{event_type} {key}: {state}, handled {len(calls)} times")
    return found


def test_every_event_is_handled_despite_injected_faults(tmp_path: Path) -> None:
    with (
        sandbox() as service,
        gunicorn(tmp_path, BILLHOOK_HANDLERS=demo_handlers.__name__, BILLHOOK_ENGINE="thread") as receiver,
        BillingClient(service.url, "sandbox", API_TOKEN) as client,
    ):
        faulty(service, FAULTS, 0.3)
        url = f"http://127.0.0.1:{receiver.port}{PATH}"
        now = service.sandbox.clock.now()
        for _ in run_scenario(calling(service), url, now):
            pass
        more = [
            UsageEvent(
                name="calls",
                timestamp=now,
                customer_alias=f"somebody-{number}",
                ref=f"ref-{number}",
                data={"units": 1},
            )
            for number in range(150)
        ]
        assert {result.state for result in client.events.ingest(more)} == {EventState.ACCEPTED}
        sent = sent_by(service)
        noted = tmp_path / NOTES
        keys = {key for key, *_ in sent}
        until(lambda: keys <= set(read_notes(noted)), 60)
        stored = {key for (key,) in rows(receiver.inbox, "SELECT key FROM delivery")}
        struck = {one["fault"]: one["struck"] for one in service.ok("GET", "/_sandbox/faults")["faults"]}

    assert {event_type for _, _, event_type, _ in sent} == set(EVENT_TYPES)
    assert len([one for one in sent if one[2] == "AnonymousCustomer"]) == 151
    assert lost(sent, read_notes(noted)) == []
    assert stored == keys
    assert all(struck[fault] > 0 for fault in FAULTS), struck


def read_notes(path: Path) -> Handled:
    found: Handled = {}
    if path.exists():
        for line in path.read_text().splitlines():
            key, event_type, _, body = json.loads(line)
            found.setdefault(key, []).append((event_type, body.encode()))
    return found


def handled_by_careless(receiver: Receiver) -> Handled:
    """What a receiver by somebody in a hurry handles: it says 200 first, and looks at the signature then."""
    handled: Handled = {}
    scheme = StandardWebhooks()
    keys = scheme.load([SECRET])
    for got in list(receiver.got):
        event_type, now = got.headers["x-webhook-type"], datetime.now(UTC)
        facts = {"event_type": event_type, "now": now, "tolerance_seconds": 300}
        with suppress(DeliveryError):
            verified = scheme.verify(got.headers, got.body, keys, **facts)
            handled.setdefault(verified.key, []).append((event_type, got.body))
    return handled


@pytest.mark.parametrize("fault", [None, "corrupt", "wrong_secret", "stale"])
def test_control_a_receiver_that_answers_before_it_verifies_is_caught(fault: str | None) -> None:
    with sandbox() as service, receiving() as receiver:
        if fault is not None:
            faulty(service, (fault,), 1)
        call = calling(service)
        for event_type in ("CustomerCreated", "ContractCreated", "CreditPoolIncreased"):
            call("POST", "/webhook", {"callbackUrl": receiver.url, "eventType": event_type})
        create_demo_data(call, service.sandbox.clock.now())
        sent = sent_by(service)
        until(lambda: fault is not None or len(handled_by_careless(receiver)) == len(sent), 20)
        handled = handled_by_careless(receiver)

    assert len(sent) == 6
    assert bool(lost(sent, handled)) is (fault is not None)
