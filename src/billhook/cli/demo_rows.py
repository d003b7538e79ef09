"""What the demo sends, what was promised for each, and the judge of whether it came true. No I/O."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from billhook.cli.post import Answer
from billhook.errors import PayloadError
from billhook.events import EVENT_TYPES, parse_event, sample
from billhook.signing import StandardWebhooks

__all__ = ["Note", "Row", "Verdict", "folded", "hostile", "judge", "promised", "samples"]

ACCEPTED = '{"status": "accepted"}'
DUPLICATE = '{"status": "duplicate"}'


@dataclass(frozen=True, slots=True)
class Row:
    """One request, and what is promised: answer, class that the handler gets (None: nothing), state."""

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
        """The delivery's key; a refused row's is stored nowhere."""
        return self.headers["webhook-id"]


@dataclass(frozen=True, slots=True)
class Note:
    """One call of the demo's handler."""

    key: str
    event_type: str
    handled_as: str
    attempt: int
    body: bytes

    @classmethod
    def read(cls, line: str) -> Note:
        """A line of demo_handlers."""
        found = json.loads(line)
        body = base64.b64decode(found["event"])
        return cls(found["key"], found["type"], found["class"], found["attempt"], body)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A row, what really happened, and what is wrong with it (nothing, if it is as promised)."""

    row: Row
    answer: Answer
    handled: str
    state: str | None
    wrong: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
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


def samples(secret: str, now: datetime) -> list[Row]:
    """A sample of each type."""
    return [
        promised(name, sample(model).to_json(), f"demo_{number}", secret, now)
        for number, (name, model) in enumerate(EVENT_TYPES.items(), 1)
    ]


def promised(event_type: str, body: bytes, key: str, secret: str, now: datetime) -> Row:
    """A good delivery: accepted, and handled once, with the values that were sent."""
    headers = _sign(body, event_type, secret, now, key)
    return Row(event_type, event_type, body, headers, handled_as=event_type)


def hostile(sent: Iterable[Row], secret: str, forged_secret: str, now: datetime) -> list[Row]:
    """Five that no receiver should be fooled by, one of them a repetition of what was `sent`."""
    name = "InvoiceApproved"
    first = next(row for row in sent if row.event_type == name)
    refused = partial(Row, status=401, answer="authentication_failed", state=None)
    body, old = first.body, now - timedelta(hours=1)
    unknown, broken = b'{"surprise":true}', b'{"date": "2026-01-'
    return [
        refused("forged (another secret)", name, body, _sign(body, name, forged_secret, now, "demo_forged")),
        refused("stale (signed an hour ago)", name, body, _sign(body, name, secret, old, "demo_stale")),
        replace(first, label="duplicate (the same again)", answer=DUPLICATE),
        Row(
            "a type from the future",
            "BrandNewEvent",
            unknown,
            _sign(unknown, "BrandNewEvent", secret, now, "demo_unknown"),
            handled_as="UnknownEvent",
        ),
        Row(
            "a body that is not JSON",
            name,
            broken,
            _sign(broken, name, secret, now, "demo_broken"),
            state="quarantined",
        ),
    ]


def folded(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """One verdict for each of the 23 types, on all its deliveries; a type that never came is wrong."""
    by_type: dict[str, list[Verdict]] = {name: [] for name in EVENT_TYPES}
    for verdict in verdicts:
        by_type[verdict.row.event_type].append(verdict)
    return [_fold(name, found) for name, found in by_type.items()]


def _fold(name: str, found: list[Verdict]) -> Verdict:
    if not found:
        nothing = Row(name, name, b"", {}, handled_as=name)
        return Verdict(nothing, Answer(None, "", 0.0), "", None, ("it never happened",))
    worst = next((verdict for verdict in found if verdict.wrong), found[0])
    wrong = dict.fromkeys(text for verdict in found for text in verdict.wrong)
    label = name if len(found) == 1 else f"{name} x{len(found)}"
    return replace(worst, row=replace(worst.row, label=label), wrong=tuple(wrong))


def judge(
    sent: Iterable[tuple[Row, Answer]], notes: Iterable[Note], states: Mapping[str, str]
) -> list[Verdict]:
    """Compare what was promised with the answers, the handler's notes and the inbox ({key: state})."""
    by_key: dict[str, list[Note]] = {}
    for note in notes:
        by_key.setdefault(note.key, []).append(note)
    return [_judge(row, answer, by_key.get(row.key, []), states.get(row.key)) for row, answer in sent]


def _judge(row: Row, answer: Answer, notes: list[Note], state: str | None) -> Verdict:
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
    return Verdict(row, answer, handled, state, tuple(wrong))


def _wrong_calls(row: Row, notes: list[Note]) -> list[str]:
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


def _same(row: Row, note: Note) -> bool:
    try:
        return parse_event(row.event_type, row.body) == parse_event(row.event_type, note.body)
    except PayloadError:
        return False


def _sign(body: bytes, event_type: str, secret: str, now: datetime, message_id: str) -> dict[str, str]:
    signed = StandardWebhooks().sign(
        body, secret, event_type=event_type, now=now.astimezone(UTC), message_id=message_id
    )
    return {"X-Webhook-Type": event_type, **signed}
