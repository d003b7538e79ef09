"""Batches of usage events as received: each event together with its JSON text.

Source: spec, "Endpoints", PUT /events; "Limits".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, Self

from pydantic import ConfigDict, PrivateAttr

from billhook.errors import InvalidJSON, InvalidResource, LimitBroken
from billhook.resources import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, EventBatch
from billhook.resources.usage import wrong_count
from billhook.wire import strict_json

__all__ = ["RawEvent", "RawEventBatch"]

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
        # Not validated here: `usage.event_validation` reports each invalid event by itself.
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
