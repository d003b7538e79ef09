"""The timeline of the log: what happened, the events that it raised, their deliveries and attempts."""

from __future__ import annotations

from billhook.sandbox.storage.tables import raised_event
from billhook.sandbox.webhooks import outbox
from support.receivers import flush, receiving, subscribe, trigger
from support.sandbox import Running, running


def pages_of(sandbox: Running, limit: int) -> list[list[tuple[str, list[str]]]]:
    """Each page of the timeline, as causes with the types of their events."""
    found, cursor = [], None
    while True:
        with sandbox.sandbox.service.transaction(writes=False) as tx:
            page = outbox.timeline(tx, limit, cursor)
        found.append([(one.cause, [event.event_type for event in one.events]) for one in page.items])
        cursor = page.next_cursor
        if cursor is None:
            return found


def test_events_are_listed_under_the_operation_or_job_that_raised_them(sandbox: Running) -> None:
    made = sandbox.ok("POST", "/_sandbox/customers", {"name": "Acme"})["customer"]
    event = {"name": "x", "timestamp": "2026-01-10T09:00:00Z"}
    batch = [{**event, "customerAlias": alias, "ref": alias} for alias in ("a", "b")]
    sandbox.ok("PUT", "/events", {"events": batch})
    sandbox.advance("P8D")
    [found] = pages_of(sandbox, 10)

    assert found == [
        (f"customer_without_contract {made['id']}", ["NewCustomerWithoutContract"]),
        ("PUT /events", ["AnonymousCustomer", "AnonymousCustomer"]),
        ("POST /_sandbox/customers", ["CustomerCreated"]),
    ]


def test_a_page_has_a_number_of_events_and_the_next_one_goes_on_where_it_ended(sandbox: Running) -> None:
    for event_type in ("PingTest", "Overage", "PaymentFailed"):
        trigger(sandbox, event_type)
        sandbox.real.advance(seconds=1)
    found = pages_of(sandbox, 2)

    cause = "POST /_sandbox/trigger/{eventType}"
    assert found == [[(cause, ["PaymentFailed"]), (cause, ["Overage"])], [(cause, ["PingTest"])]]


def test_an_event_has_its_deliveries_and_their_attempts() -> None:
    with running() as sandbox, receiving(500, 200) as receiver:
        subscribe(sandbox, "Overage", receiver.url)
        trigger(sandbox, "Overage")
        trigger(sandbox, "PingTest")
        flush(sandbox)
        sandbox.real.advance(seconds=2)
        flush(sandbox)
        with sandbox.sandbox.service.transaction(writes=False) as tx:
            page = outbox.timeline(tx, 10, None, raised_event.c.event_type == "Overage")
            [event] = page.items[0].events
            found = outbox.event_trace(tx, event.id)
            states = outbox.count_states(tx)
            missing = outbox.event_trace(tx, "evt_other")

    assert page.total == 1
    [delivery] = event.deliveries
    assert (delivery.delivery.url, delivery.delivery.state) == (receiver.url, "delivered")
    assert [(one.number, one.status) for one in delivery.attempts] == [(1, 500), (2, 200)]
    assert found is not None
    assert (found[0].id, found[0].body_bytes) == (event.id, len(found[1]))
    assert found[1].startswith(b'{"')
    assert states == {"delivered": 1}
    assert missing is None
