"""Batches of usage events as they come in: each event with the JSON that it was sent as.

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

__all__ = ["Sent", "SentBatch"]

_SPACE = re.compile(r"[ \t\n\r]*+")
_OBJECT = re.compile(r"[ \t\n\r]*+\{[ \t\n\r]*+(\})?")
_LIST = re.compile(r"\[[ \t\n\r]*+(\])?")
_COLON = re.compile(r"[ \t\n\r]*+:[ \t\n\r]*+")
_BETWEEN = re.compile(r"[ \t\n\r]*+([,\]}])[ \t\n\r]*+")


class Sent(NamedTuple):
    """An event of a batch, or whatever stood in its place."""

    text: str
    """Its JSON."""
    value: object


class SentBatch(EventBatch, register=False):
    """A batch whose events are yet to be judged one by one: a bad one does not spoil the others."""

    model_config = ConfigDict(title="EventBatch")

    _sent: Sequence[Sent] = PrivateAttr(default=())

    @property
    def sent(self) -> Sequence[Sent]:
        return self._sent

    @classmethod
    def from_json(cls, body: bytes) -> Self:
        """Read a batch of 1 to 1000 of anything, 256 KB at most. Raises InvalidResource and LimitBroken."""
        if len(body) > MAX_BATCH_BYTES:
            raise LimitBroken(
                f"a batch has at most 256 KB ({MAX_BATCH_BYTES} bytes), and this one {len(body)}: split it",
                "events",
            )
        try:
            given = _read(body.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise InvalidResource(f"the body is not UTF-8 (byte {error.start})") from None
        except InvalidJSON as error:
            raise InvalidResource(str(error)) from None
        if given is None:
            mistake = {"loc": ("events",), "msg": "must be a list of events", "type": "list_type"}
            raise InvalidResource("the body is not a batch: events must be a list of events", [mistake])
        if not 1 <= len(given) <= MAX_BATCH_EVENTS:
            raise LimitBroken(wrong_count(len(given)), "events")
        batch = cls.model_construct(events=[])
        batch._sent = given
        return batch


def _read(text: str) -> list[Sent] | None:
    """The elements of the list `events` in an object; None if there is no such list.

    The object and the list are read here, and all that is in them by strict_json.
    """
    if (start := _OBJECT.match(text)) is None:
        strict_json.loads(text.encode())
        raise InvalidResource("the body is JSON, but not an object")
    found: dict[object, list[Sent] | None] = {}
    at, more = start.end(), start[1] is None
    while more:
        name, at = strict_json.scan(text, at, 1)
        colon = _COLON.match(text, at)
        if colon is None or not isinstance(name, str):
            raise InvalidJSON(strict_json.not_json(text, at))
        if name in found:
            raise InvalidJSON("an object in the body has the same key twice")
        if name == "events" and text.startswith("[", colon.end()):
            found[name], at = _elements(text, colon.end())
        else:
            found[name], at = None, strict_json.scan(text, colon.end(), 1)[1]
        at, more = _after(text, at, "}")
    if _SPACE.fullmatch(text, at) is None:
        raise InvalidJSON(strict_json.not_json(text, at))
    return found.get("events")


def _elements(text: str, at: int) -> tuple[list[Sent], int]:
    """The elements of the list that begins at `at`, and where it ends."""
    found: list[Sent] = []
    start: re.Match[str] = _LIST.match(text, at)  # type: ignore[assignment]
    at, more = start.end(), start[1] is None
    while more:
        value, end = strict_json.scan(text, at, 2)
        found.append(Sent(text[at:end], value))
        at, more = _after(text, end, "]")
    return found, at


def _after(text: str, at: int, close: str) -> tuple[int, bool]:
    """What follows a part: where the next one begins, or where all ends, and whether there is a next one."""
    between = _BETWEEN.match(text, at)
    if between is None or between[1] not in (",", close):
        raise InvalidJSON(strict_json.not_json(text, at))
    return between.end(), between[1] == ","
