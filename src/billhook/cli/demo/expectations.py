"""What the demo sends, the expected result of each delivery, and the comparison with the real one. No I/O."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from billhook.cli.posting import HttpReply
from billhook.errors import PayloadError
from billhook.events import EVENT_TYPES, parse_event, sample
from billhook.signing import StandardWebhooks

__all__ = [
    "DemoResult",
    "Expectation",
    "HandlerCall",
    "bad_deliveries",
    "compare",
    "expect_handled",
    "group_by_type",
    "samples",
]

ACCEPTED = '{"status": "accepted"}'
DUPLICATE = '{"status": "duplicate"}'


@dataclass(frozen=True, slots=True)
class Expectation:
    """A delivery to send, and its expected answer, class for the handler (None: no call) and state."""

    label: str
    event_type: str
    body: bytes
    headers: Mapping[str, str] = field(repr=False)
    status: int = 200
    answer: str = ACCEPTED
    handled_as: str | None = None
    state: str | None = "done"

    @property
    def key(self) -> str:
        """The delivery's key; that of a rejected delivery is never stored."""
        return self.headers["webhook-id"]


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """A call of the demo's handler."""

    key: str
    event_type: str
    handled_as: str
    attempt: int
    body: bytes

    @classmethod
    def read(cls, line: str) -> HandlerCall:
        """Parse a line that demo.handlers wrote."""
        note = json.loads(line)
        body = base64.b64decode(note["event"])
        return cls(note["key"], note["type"], note["class"], note["attempt"], body)


@dataclass(frozen=True, slots=True)
class DemoResult:
    """An expectation, what really happened, and what is wrong with it (nothing, if it is met)."""

    row: Expectation
    answer: HttpReply
    handled: str
    state: str | None
    wrong: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "sent": self.row.label,
            "type": self.row.event_type,
            "expected": self.row.status,
            "got": self.answer.status,
            "answer": self.answer.body,
            "handler": self.handled,
            "state": self.state,
            "ok": not self.wrong,
            "wrong": list(self.wrong),
        }


def samples(secret: str, now: datetime) -> list[Expectation]:
    """Return a sample of each type."""
    return [
        expect_handled(name, sample(model).to_json(), f"demo_{number}", secret, now)
        for number, (name, model) in enumerate(EVENT_TYPES.items(), 1)
    ]


def expect_handled(event_type: str, body: bytes, key: str, secret: str, now: datetime) -> Expectation:
    """Return a good delivery: accepted, and handled once with the values that were sent."""
    headers = _sign(body, event_type, secret, now, key)
    return Expectation(event_type, event_type, body, headers, handled_as=event_type)


def bad_deliveries(
    sent: Iterable[Expectation], secret: str, forged_secret: str, now: datetime
) -> list[Expectation]:
    """Return five bad deliveries, one of them a repetition of one that was `sent`."""
    name = "InvoiceApproved"
    first = next(row for row in sent if row.event_type == name)
    refused = partial(Expectation, status=401, answer="authentication_failed", state=None)
    body, old = first.body, now - timedelta(hours=1)
    unknown, broken = b'{"surprise":true}', b'{"date": "2026-01-'
    return [
        refused("forged (another secret)", name, body, _sign(body, name, forged_secret, now, "demo_forged")),
        refused("stale (signed an hour ago)", name, body, _sign(body, name, secret, old, "demo_stale")),
        replace(first, label="duplicate (the same again)", answer=DUPLICATE),
        Expectation(
            "a type from the future",
            "BrandNewEvent",
            unknown,
            _sign(unknown, "BrandNewEvent", secret, now, "demo_unknown"),
            handled_as="UnknownEvent",
        ),
        Expectation(
            "a body that is not JSON",
            name,
            broken,
            _sign(broken, name, secret, now, "demo_broken"),
            state="quarantined",
        ),
    ]


def group_by_type(results: Iterable[DemoResult]) -> list[DemoResult]:
    """Return one result for each of the 23 types, over all its deliveries; a missing type is wrong."""
    by_type: dict[str, list[DemoResult]] = {name: [] for name in EVENT_TYPES}
    for result in results:
        by_type[result.row.event_type].append(result)
    return [_combine(name, of_type) for name, of_type in by_type.items()]


def _combine(name: str, results: list[DemoResult]) -> DemoResult:
    if not results:
        nothing = Expectation(name, name, b"", {}, handled_as=name)
        return DemoResult(nothing, HttpReply(None, "", 0.0), "", None, ("it was never sent",))
    worst = next((result for result in results if result.wrong), results[0])
    wrong = dict.fromkeys(text for result in results for text in result.wrong)  # each text once, in order
    label = name if len(results) == 1 else f"{name} x{len(results)}"
    return replace(worst, row=replace(worst.row, label=label), wrong=tuple(wrong))


def compare(
    sent: Iterable[tuple[Expectation, HttpReply]], notes: Iterable[HandlerCall], states: Mapping[str, str]
) -> list[DemoResult]:
    """Compare expectations with the answers, the handler's calls and the inbox ({key: state})."""
    by_key: dict[str, list[HandlerCall]] = {}
    for note in notes:
        by_key.setdefault(note.key, []).append(note)
    return [_compare(row, answer, by_key.get(row.key, []), states.get(row.key)) for row, answer in sent]


def _compare(row: Expectation, answer: HttpReply, notes: list[HandlerCall], state: str | None) -> DemoResult:
    wrong = []
    if answer.status is None:
        wrong.append(f"no answer, expected {row.status}")
    elif answer.status != row.status:
        wrong.append(f"answered {answer.status}, not {row.status}")
    elif row.answer not in answer.body:
        wrong.append(f"answered {answer.body!r}, not {row.answer!r}")
    if state != row.state:
        wrong.append(f"stored as {state}, not {row.state}")
    wrong += _wrong_calls(row, notes)
    handled = ", ".join(note.handled_as for note in notes)
    return DemoResult(row, answer, handled, state, tuple(wrong))


def _wrong_calls(row: Expectation, notes: list[HandlerCall]) -> list[str]:
    calls = 0 if row.handled_as is None else 1
    if len(notes) != calls:
        return [f"handled {len(notes)} times, not {calls}"]
    wrong = []
    for note in notes:
        if note.handled_as != row.handled_as or note.event_type != row.event_type:
            wrong.append(f"the handler got {note.handled_as}, not {row.handled_as}")
        elif not _same(row, note):
            wrong.append("the handler got other values than were sent")
    return wrong


def _same(row: Expectation, note: HandlerCall) -> bool:
    # As events, not as bytes: the handler's copy was written again, and spacing and order may differ.
    try:
        return parse_event(row.event_type, row.body) == parse_event(row.event_type, note.body)
    except PayloadError:
        return False


def _sign(body: bytes, event_type: str, secret: str, now: datetime, message_id: str) -> dict[str, str]:
    signed = StandardWebhooks().sign(
        body, secret, event_type=event_type, now=now.astimezone(UTC), message_id=message_id
    )
    return {"X-Webhook-Type": event_type, **signed}
