"""Batches of usage events as received: parse a batch, and validate its events one by one.

Source: spec, "Endpoints", PUT /events; "Limits"; "Resources and their fields", Event (ingested).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from pydantic import ConfigDict, PrivateAttr

from billhook.errors import InvalidJSON, InvalidResource, LimitBroken
from billhook.fields import strict_json
from billhook.fields.model import require_object
from billhook.resources import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, EventBatch, UsageEvent
from billhook.resources.usage import wrong_count
from billhook.sandbox.options import key_error
from billhook.sandbox.storage.columns import to_microseconds
from billhook.sandbox.storage.transaction import Transaction

_IN_UTC = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{3}(?:[0-9]{3})?)?Z")
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class RawEventBatch(EventBatch, register=False):
    """A batch whose events are validated one by one: an invalid event does not reject the others."""

    model_config = ConfigDict(title="EventBatch")
    _body: str = PrivateAttr()

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
            events = require_object(strict_json.loads(body), InvalidResource).get("events")
        except InvalidJSON as error:
            raise InvalidResource(str(error)) from None
        if not isinstance(events, list):
            mistake = {"loc": ("events",), "msg": "must be a list of events", "type": "list_type"}
            raise InvalidResource("the body is not a batch: events must be a list of events", [mistake])
        if not 1 <= len(events) <= MAX_BATCH_EVENTS:
            raise LimitBroken(wrong_count(len(events)), "events")
        # Not validated here: `validate_event` reports each invalid event by itself.
        batch = cls.model_construct(events=events)
        batch._body = body.decode()
        return batch

    def texts(self, tx: Transaction) -> Sequence[str]:
        """Return the JSON of each event as it was sent, without white space."""
        # By SQLite, which copies it: formatting what was parsed takes as long as all else.
        rows = tx.connection.exec_driver_sql(
            "SELECT sent.value FROM json_each(?) AS field, json_each(field.value) AS sent"
            " WHERE field.key = 'events'",
            (self._body,),
        )
        return rows.scalars().all()


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
    """Its JSON, with the timestamp in UTC."""


def validate_event(sent: Any, text: str) -> ValidEvent | str:
    """Return the valid event, or the error as text; `text` is the JSON of what was `sent`.

    The fast path accepts plain events, which most are. UsageEvent validates the others; its rules define what
    is valid.
    """
    # `type(...) is` instead of isinstance: bool is an int, and JSON has no subclasses.
    if type(sent) is dict:
        get: Callable[..., Any] = sent.get
        ref, name, alias = get("ref"), get("name"), get("customerAlias")
        timestamp, data = get("timestamp"), get("data", {})
        is_plain = type(ref) is type(name) is type(alias) is type(timestamp) is str and type(data) is dict
        if is_plain and _IN_UTC.fullmatch(timestamp):
            with suppress(ValueError):  # no such day: UsageEvent has the error text
                return _storable(ref, name, alias, datetime.fromisoformat(timestamp), data, text)
    try:
        event = UsageEvent.from_wire(sent)
    except InvalidResource as error:
        if not error.details:
            return "an event must be an object"
        return "; ".join(
            f"{'.'.join(map(str, each['loc']))} is missing"
            if each["type"] == "missing"
            else f"{'.'.join(map(str, each['loc']))}: {each['msg']}"
            for each in error.details
        )
    if not _IN_UTC.fullmatch(sent["timestamp"]):
        text = strict_json.dumps({**sent, "timestamp": event.timestamp}).decode()
    return _storable(event.ref, event.name, event.customer_alias, event.timestamp, event.data or {}, text)


def _storable(
    ref: str, name: str, alias: str, at: datetime, data: Mapping[str, Any], text: str
) -> ValidEvent | str:
    # The model allows longer texts than the database's indexes take.
    for param, key in (("name", name), ("customerAlias", alias), ("ref", ref)):
        if fault := key_error(key):
            return f"{param} {fault}"
    if "\\u0000" in text and _NUL.search(text):
        return "a NUL character (\\u0000) cannot be stored"
    return ValidEvent(ref, name, alias, to_microseconds(at), data, text)
