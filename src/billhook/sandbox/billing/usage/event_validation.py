"""Validate usage events one by one. Source: spec, "Resources and their fields", Event (ingested)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from billhook.errors import InvalidResource
from billhook.resources import UsageEvent
from billhook.sandbox.billing.usage.daily_usage import MICROSECONDS_PER_DAY
from billhook.sandbox.billing.usage.event_batch import RawEvent
from billhook.sandbox.limits import MAX_KEY, key_error
from billhook.sandbox.storage.columns import to_microseconds
from billhook.wire import strict_json

__all__ = ["ValidEvent", "validate_event"]

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
