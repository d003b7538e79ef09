"""What the demo sends, what is to become of each delivery, and the comparison with what did. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from billhook.errors import PayloadError
from billhook.events import EVENT_TYPES, parse_event, sample
from billhook.posting import HttpReply, sign
from billhook.signing import StandardWebhooks

NO_REPLY = HttpReply(None, "", 0.0)
ACCEPTED = '{"status": "accepted"}'
DUPLICATE = '{"status": "duplicate"}'


@dataclass(slots=True)
class DemoDelivery:
    """A delivery: as sent, what is expected of it, and what really happened."""

    label: str
    event_type: str
    body: bytes
    headers: Mapping[str, str] = field(repr=False)
    status: int = 200
    answer: str = ACCEPTED
    handled_as: str | None = None
    """The expected class for the handler; None for no call."""
    state: str | None = "done"

    reply: HttpReply = NO_REPLY
    handled: str = ""
    stored: str | None = None
    wrong: list[str] = field(default_factory=list)
    """What is not as expected."""

    @property
    def key(self) -> str:
        """The delivery's key; that of a rejected delivery is never stored."""
        return self.headers["webhook-id"]


class HandlerCall(NamedTuple):
    """A call of the demo's handler, as that notes it."""

    key: str
    event_type: str
    handled_as: str
    body: str


def _signed(
    label: str, event_type: str, body: bytes, key: str, secret: str, now: datetime, **expected: Any
) -> DemoDelivery:
    headers = sign(StandardWebhooks(), secret, event_type, body, now, key)
    return DemoDelivery(label, event_type, body, headers, **expected)


def expect_handled(event_type: str, body: bytes, key: str, secret: str, now: datetime) -> DemoDelivery:
    """Return a good delivery: accepted, and handled once with the values that were sent."""
    return _signed(event_type, event_type, body, key, secret, now, handled_as=event_type)


def samples(secret: str, now: datetime) -> list[DemoDelivery]:
    """Return a sample of each type."""
    return [
        expect_handled(name, sample(model).to_json(), f"demo_{name}", secret, now)
        for name, model in EVENT_TYPES.items()
    ]


def bad_deliveries(
    sent: Iterable[DemoDelivery], secret: str, forged_secret: str, now: datetime
) -> list[DemoDelivery]:
    """Return five bad deliveries, one of them a repetition of one that was `sent`."""
    name = "InvoiceApproved"
    first = next(row for row in sent if row.event_type == name)
    refused = partial(_signed, status=401, answer="authentication_failed", state=None)
    future = partial(_signed, "a type from the future", "BrandNewEvent", b'{"surprise":true}', "demo_unknown")
    torn = partial(_signed, "a body that is not JSON", name, b'{"date": "2026-01-', "demo_broken")
    return [
        refused("forged (another secret)", name, first.body, "demo_forged", forged_secret, now),
        refused(
            "stale (signed an hour ago)", name, first.body, "demo_stale", secret, now - timedelta(hours=1)
        ),
        replace(first, label="duplicate (the same again)", answer=DUPLICATE, wrong=[]),
        future(secret, now, handled_as="UnknownEvent"),
        torn(secret, now, state="quarantined"),
    ]


def compare(rows: Iterable[DemoDelivery], calls: Iterable[HandlerCall], states: Mapping[str, str]) -> None:
    """Note what the handler got and what the inbox has ({key: state}), and what is wrong with it."""
    for row in rows:
        own = [call for call in calls if call.key == row.key]
        row.handled, row.stored = ", ".join(call.handled_as for call in own), states.get(row.key)
        row.wrong = [*_differences(row, own)]


def _differences(row: DemoDelivery, calls: list[HandlerCall]) -> Iterator[str]:
    if row.reply.status is None:
        yield f"no answer, expected {row.status}"
    elif row.reply.status != row.status:
        yield f"answered {row.reply.status}, not {row.status}"
    elif row.answer not in row.reply.body:
        yield f"answered {row.reply.body!r}, not {row.answer!r}"
    if row.stored != row.state:
        yield f"stored as {row.stored}, not {row.state}"
    expected = 0 if row.handled_as is None else 1
    if len(calls) != expected:
        yield f"handled {len(calls)} times, not {expected}"
    elif expected and (calls[0].handled_as, calls[0].event_type) != (row.handled_as, row.event_type):
        yield f"the handler got {calls[0].handled_as}, not {row.handled_as}"
    elif expected and not _is_same(row, calls[0]):
        yield "the handler got other values than were sent"


def _is_same(row: DemoDelivery, call: HandlerCall) -> bool:
    # As events, not as bytes: the handler's copy was written again, and spacing and order may differ.
    with suppress(PayloadError):
        return parse_event(row.event_type, row.body) == parse_event(row.event_type, call.body.encode())
    return False


def group_by_type(rows: list[DemoDelivery]) -> Iterator[DemoDelivery]:
    """Yield one delivery for each event type, with what is wrong with all; a missing type is wrong."""
    for name in EVENT_TYPES:
        of_type = [row for row in rows if row.event_type == name]
        if of_type:
            worst = next((row for row in of_type if row.wrong), of_type[0])
            wrong = dict.fromkeys(text for row in of_type for text in row.wrong)  # each text once, in order
            label = name if len(of_type) == 1 else f"{name} x{len(of_type)}"
            yield replace(worst, label=label, wrong=[*wrong])
        else:
            yield DemoDelivery(name, name, b"", {}, wrong=["it was never sent"])
