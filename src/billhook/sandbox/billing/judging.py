"""Judging usage events one by one. Source: spec, "Resources and their fields", Event (ingested)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from billhook.errors import InvalidResource
from billhook.resources import UsageEvent
from billhook.sandbox.billing.batch import Sent
from billhook.sandbox.limits import MAX_KEY
from billhook.sandbox.storage.keys import key_fault
from billhook.sandbox.storage.types import microseconds
from billhook.wire import strict_json

__all__ = ["MICROSECONDS_A_DAY", "Used", "judge"]

MICROSECONDS_A_DAY = 86_400_000_000

_IN_UTC = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{3}(?:[0-9]{3})?)?Z")
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


@dataclass(slots=True)
class Used:
    """An event that is well-formed."""

    ref: str
    name: str
    alias: str
    at: int
    """Its timestamp, in microseconds since 1970."""
    data: Mapping[str, Any]
    text: str
    """Its JSON: as it was sent, with the timestamp in UTC."""

    @property
    def day(self) -> int:
        """Days since 1970, in UTC."""
        return self.at // MICROSECONDS_A_DAY


def judge(sent: Sent) -> Used | str:
    """The event, or what is wrong with it.

    Most events are plain, and seen to be good at once; the others are judged by UsageEvent, whose rules
    these are.
    """
    text, value = sent
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
                return Used(ref, name, alias, microseconds(datetime.fromisoformat(timestamp)), data, text)
            except ValueError:
                pass  # no such day: the rules tell it in their words
    return _by_the_rules(sent)


def _by_the_rules(sent: Sent) -> Used | str:
    try:
        event = UsageEvent.from_wire(sent.value)
    except InvalidResource as error:
        return _told(error)
    for param, key in (("name", event.name), ("customerAlias", event.customer_alias), ("ref", event.ref)):
        if fault := key_fault(key):
            return f"{param} {fault}"
    if _NUL.search(sent.text):
        return "a NUL character (\\u0000) cannot be kept"
    given: dict[str, Any] = sent.value  # type: ignore[assignment]
    text = sent.text
    if "\\" in text or not _IN_UTC.fullmatch(given["timestamp"]):
        # Written anew, keys are without escapes: the database finds them by their plain text.
        text = strict_json.dumps({**given, "timestamp": event.timestamp}).decode()
    return Used(
        event.ref, event.name, event.customer_alias, microseconds(event.timestamp), event.data or {}, text
    )


def _told(error: InvalidResource) -> str:
    if not error.details:
        return "an event is an object"
    return "; ".join(
        f"{'.'.join(map(str, each['loc']))} is missing"
        if each["type"] == "missing"
        else f"{'.'.join(map(str, each['loc']))}: {each['msg']}"
        for each in error.details
    )
