"""Batches of usage events as received: parse a batch, and validate its events one by one.

Source: spec, "Endpoints", PUT /events; "Limits"; "Resources and their fields", Event (ingested).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Self

from pydantic import ConfigDict, PrivateAttr

from billhook.errors import InvalidJSON, InvalidResource, LimitBroken
from billhook.fields import strict_json
from billhook.resources import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, EventBatch, UsageEvent
from billhook.resources.usage import wrong_count
from billhook.sandbox.billing.usage.daily_usage import MICROSECONDS_PER_DAY
from billhook.sandbox.options import MAX_KEY, key_error
from billhook.sandbox.storage.columns import to_microseconds

# Possessive quantifiers: a body of blanks cannot make the expressions backtrack.
_SPACE = re.compile(r"[ \t\n\r]*+")
_OBJECT = re.compile(r"[ \t\n\r]*+\{[ \t\n\r]*+(\})?")
_LIST = re.compile(r"\[[ \t\n\r]*+(\])?")
_COLON = re.compile(r"[ \t\n\r]*+:[ \t\n\r]*+")
_BETWEEN = re.compile(r"[ \t\n\r]*+([,\]}])[ \t\n\r]*+")


class RawEvent(NamedTuple):
    """An element of a batch, not validated: perhaps no event at all."""

    text: str
    """Its JSON."""
    value: object


class RawEventBatch(EventBatch, register=False):
    """A batch whose events are validated one by one: an invalid event does not reject the others."""

    model_config = ConfigDict(title="EventBatch")

    _raw_events: Sequence[RawEvent] = PrivateAttr(default=())

    @property
    def raw_events(self) -> Sequence[RawEvent]:
        return self._raw_events

    @classmethod
    def from_json(cls, body: bytes) -> Self:
        """Parse a batch of 1 to 1000 elements, at most 256 KB. Raises InvalidResource and LimitBroken."""
        # Checked before parsing, so that an oversized body costs nothing.
        if len(body) > MAX_BATCH_BYTES:
            raise LimitBroken(
                f"a batch has at most 256 KB ({MAX_BATCH_BYTES} bytes), and this one {len(body)}: split it",
                "events",
            )
        try:
            raw_events = _parse_batch(body.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise InvalidResource(f"the body is not UTF-8 (byte {error.start})") from None
        except InvalidJSON as error:
            raise InvalidResource(str(error)) from None
        if raw_events is None:
            mistake = {"loc": ("events",), "msg": "must be a list of events", "type": "list_type"}
            raise InvalidResource("the body is not a batch: events must be a list of events", [mistake])
        if not 1 <= len(raw_events) <= MAX_BATCH_EVENTS:
            raise LimitBroken(wrong_count(len(raw_events)), "events")
        # Not validated here: `validate_event` reports each invalid event by itself.
        batch = cls.model_construct(events=[])
        batch._raw_events = raw_events
        return batch


def _parse_batch(text: str) -> list[RawEvent] | None:
    """Return the elements of the list `events` in an object; None without such a list.

    Only the object and the list are parsed here; strict_json parses everything in them.
    """
    if (start := _OBJECT.match(text)) is None:
        # Raises InvalidJSON with the exact position if it is no JSON at all.
        strict_json.loads(text.encode())
        raise InvalidResource("the body is JSON, but not an object")
    found: dict[object, list[RawEvent] | None] = {}
    at, more = start.end(), start[1] is None
    while more:
        name, at = strict_json.scan(text, at, 1)
        colon = _COLON.match(text, at)
        if colon is None or not isinstance(name, str):
            raise InvalidJSON(strict_json.not_json(text, at))
        # Parsers differ on which of two equal keys they take.
        if name in found:
            raise InvalidJSON("an object in the body has the same key twice")
        if name == "events" and text.startswith("[", colon.end()):
            found[name], at = _elements(text, colon.end())
        else:
            # Other keys are ignored, but must be valid JSON.
            found[name], at = None, strict_json.scan(text, colon.end(), 1)[1]
        at, more = _next_element(text, at, "}")
    if _SPACE.fullmatch(text, at) is None:
        raise InvalidJSON(strict_json.not_json(text, at))
    return found.get("events")


def _elements(text: str, at: int) -> tuple[list[RawEvent], int]:
    """Return the elements of the list that begins at `at`, and where the list ends."""
    found: list[RawEvent] = []
    start: re.Match[str] = _LIST.match(text, at)  # type: ignore[assignment]
    at, more = start.end(), start[1] is None
    while more:
        value, end = strict_json.scan(text, at, 2)
        found.append(RawEvent(text[at:end], value))
        at, more = _next_element(text, end, "]")
    return found, at


def _next_element(text: str, at: int, close: str) -> tuple[int, bool]:
    """Return where the next element begins, or the end of the container, and whether there is a next one."""
    between = _BETWEEN.match(text, at)
    if between is None or between[1] not in (",", close):
        raise InvalidJSON(strict_json.not_json(text, at))
    return between.end(), between[1] == ","


_IN_UTC = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{3}(?:[0-9]{3})?)?Z")
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


@dataclass(slots=True)
class ValidEvent:
    """A valid event."""

    ref: str
    name: str
    alias: str
    at: int
    """Its timestamp, in microseconds since 1970."""
    data: Mapping[str, Any]
    text: str
    """Its JSON as it was sent, with the timestamp in UTC."""

    @property
    def day(self) -> int:
        """The day in UTC, as days since 1970."""
        return self.at // MICROSECONDS_PER_DAY


def validate_event(raw: RawEvent) -> ValidEvent | str:
    """Return the valid event, or the error as text.

    The fast path accepts plain events, which most are. UsageEvent validates the others; its rules define what
    is valid.
    """
    text, value = raw
    # `type(...) is` instead of isinstance: bool is an int, and JSON has no subclasses. A backslash means an
    # escape, which the slow path re-serializes.
    if type(value) is dict and "\\" not in text:
        ref, name, alias = value.get("ref"), value.get("name"), value.get("customerAlias")
        timestamp, data = value.get("timestamp"), value.get("data", {})
        if (
            type(ref) is type(name) is type(alias) is type(timestamp) is str
            and type(data) is dict
            and len(ref) <= MAX_KEY and len(name) <= MAX_KEY and len(alias) <= MAX_KEY
            and ref.strip() and name.strip() and alias.strip()
            and _IN_UTC.fullmatch(timestamp)
        ):  # fmt: skip
            try:
                return ValidEvent(
                    ref, name, alias, to_microseconds(datetime.fromisoformat(timestamp)), data, text
                )
            except ValueError:
                pass  # no such day: UsageEvent has the error text
    return _validate_fully(raw)


def _validate_fully(raw: RawEvent) -> ValidEvent | str:
    try:
        event = UsageEvent.from_wire(raw.value)
    except InvalidResource as error:
        return _error_text(error)
    # The model allows longer texts than the database's indexes take.
    for param, key in (("name", event.name), ("customerAlias", event.customer_alias), ("ref", event.ref)):
        if fault := key_error(key):
            return f"{param} {fault}"
    if _NUL.search(raw.text):
        return "a NUL character (\\u0000) cannot be stored"
    fields: dict[str, Any] = raw.value  # type: ignore[assignment]
    text = raw.text
    if "\\" in text or not _IN_UTC.fullmatch(fields["timestamp"]):
        # Re-serialized, keys have no escapes: the database looks keys up by their plain text.
        text = strict_json.dumps({**fields, "timestamp": event.timestamp}).decode()
    return ValidEvent(
        event.ref, event.name, event.customer_alias, to_microseconds(event.timestamp), event.data or {}, text
    )


def _error_text(error: InvalidResource) -> str:
    if not error.details:
        return "an event must be an object"
    return "; ".join(
        f"{'.'.join(map(str, each['loc']))} is missing"
        if each["type"] == "missing"
        else f"{'.'.join(map(str, each['loc']))}: {each['msg']}"
        for each in error.details
    )
