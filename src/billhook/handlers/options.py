"""The options of `Handlers.on`, `on_any` and `on_unknown`: their types, and the checks of their values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias, TypedDict

from pydantic.alias_generators import to_snake

from billhook.errors import ConfigError
from billhook.events import Event
from billhook.handlers.failures import RetrySchedule
from billhook.handlers.handler import IDENTITY_WINDOW_SECONDS

LONGEST_WINDOW_SECONDS = 7 * 86_400
MOST_RUNS = 1_000
"""The highest `at_most` and `pause_after`, and the highest `rate` in runs a second."""
_UNITS = {"s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
NAME_LENGTH = 200
_RATE = re.compile(r"(?P<number>[0-9]{1,9})/(?P<unit>s|min|h|d)")

_Texts: TypeAlias = "list[str] | tuple[str, ...] | set[str] | frozenset[str]"
"""Not Iterable[str]: a str is an iterable of its letters, so a type checker would accept it."""


class HandlerOptions(TypedDict, total=False):
    """The options of every handler.

    `name` (default `module.qualname`) is stored with every run, so keep it when the function moves, or list
    the old one in `aliases`. `retry` is the waits between attempts, in seconds; `timeout_seconds` bounds one
    attempt. `sources` are the names of the sources whose deliveries it handles; empty means all.

    Over all workers of the inbox, `at_most` runs of it are under way at once, and `rate` bounds how many
    start: "10/s", "100/min", "1000/h", evenly spread. After `pause_after` failed attempts in a row, of any of
    its runs, it is paused until an operator resumes it.
    """

    name: str | None
    aliases: _Texts
    retry: Iterable[float] | None
    timeout_seconds: float | None
    sources: _Texts
    at_most: int | None
    rate: str | None
    pause_after: int | None


class EventHandlerOptions(HandlerOptions, total=False):
    """The options of a handler of certain event types.

    `ordered_by` is a field of all the event types: deliveries of one source with the same value are
    handled one at a time, in the order of arrival, across all processes; the value None orders nothing.
    With `newest_only`, of several that wait with the same value only the newest is handled.
    `identity` are fields by which content duplicates are recognised: a delivery with the same values as
    another of the last `identity_window_seconds` (at most 7 days) is discarded without a call.
    """

    ordered_by: str | None
    newest_only: bool
    identity: _Texts
    identity_window_seconds: float


def parse_options(
    call: str,
    allowed: type[HandlerOptions],
    options: Mapping[str, Any],
    event_types: tuple[type[Event], ...] = (),
) -> dict[str, Any]:
    """Return the options of `on`, `on_any` or `on_unknown` as the arguments of Handler.

    Raises ConfigError, and TypeError for an unknown option, as Python does.
    """
    known: frozenset[str] = vars(allowed)["__optional_keys__"]  # including the inherited ones
    for option in options:
        if option not in known:
            near = get_close_matches(option, known, n=1)
            hint = f". Did you mean '{near[0]}'?" if near else ""
            raise TypeError(f"Handlers.{call}() got an unexpected keyword argument '{option}'{hint}")
    retry, timeout_seconds = options.get("retry"), options.get("timeout_seconds")
    if timeout_seconds is not None and not (
        isinstance(timeout_seconds, int | float) and 0 < timeout_seconds <= 86_400
    ):
        raise ConfigError(f"timeout_seconds is {timeout_seconds!r}: it must be above 0 and at most 86400")
    ordered_by, identity = options.get("ordered_by"), _texts("identity", options)
    for option, fields in (("ordered_by", (ordered_by,)), ("identity", identity)):
        for field in fields:
            if field is not None:
                _check_field(option, field, event_types)
    newest_only = options.get("newest_only", False)
    if newest_only and ordered_by is None:
        raise ConfigError("newest_only needs ordered_by, the field by which one delivery replaces another")
    return {
        "name": _name(options.get("name")),
        "aliases": tuple(map(_name, _texts("aliases", options))),
        "retry": None if retry is None else _retry(retry),
        "timeout_seconds": timeout_seconds,
        "sources": _texts("sources", options),
        "at_most": _number("at_most", options),
        "rate": _rate(options.get("rate")),
        "pause_after": _number("pause_after", options),
        "ordered_by": ordered_by,
        "newest_only": bool(newest_only),
        "identity": identity,
        "identity_window_seconds": _window(options.get("identity_window_seconds", IDENTITY_WINDOW_SECONDS)),
    }


def _name(name: Any) -> Any:
    """Return a handler's name, or None for the default. It is stored with every run, and shown everywhere."""
    if name is None or (isinstance(name, str) and 0 < len(name) <= NAME_LENGTH and name.isprintable()):
        return name
    raise ConfigError(f"a handler's name is {name!r:.80}: give 1 to {NAME_LENGTH} printable characters")


def _retry(waits: object) -> RetrySchedule:
    if isinstance(waits, str) or not isinstance(waits, Iterable):
        kind = "the text " if isinstance(waits, str) else ""
        raise ConfigError(
            f"retry is {kind}{waits!r}: give the waits before the second, the third and further attempts, in "
            "seconds, as retry=[10, 60]; retry=[] tries once"
        )
    return RetrySchedule.of(waits)


def _number(option: str, options: Mapping[str, Any]) -> int | None:
    value = options.get(option)
    if value is None or (type(value) is int and 0 < value <= MOST_RUNS):
        return value
    raise ConfigError(f"{option} is {value!r}: it must be a whole number from 1 to {MOST_RUNS}")


def _rate(text: object) -> tuple[int, float] | None:
    """Return how many runs may start in how many seconds."""
    if text is None:
        return None
    example = 'as "10/s", "100/min", "1000/h" or "5000/d"'
    if not isinstance(text, str):
        raise ConfigError(f"rate is {text!r}: write it as a text, a number and a unit, {example}")
    match = _RATE.fullmatch(text)
    if match is None:
        raise ConfigError(f"rate is {text!r}: write a whole number, a slash and s, min, h or d, {example}")
    number, seconds = int(match["number"]), _UNITS[match["unit"]]
    if number == 0:
        raise ConfigError(f"rate is {text!r}, so no run would start: `billhook handlers pause` does that")
    if number > MOST_RUNS * seconds:
        raise ConfigError(f"rate is {text!r}, which is over {MOST_RUNS} a second: leave it out")
    return number, seconds


def _texts(option: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    # A str is an iterable of its letters, so it would otherwise be accepted as a list of letters.
    value = options.get(option, ())
    if isinstance(value, str):
        raise ConfigError(f"{option} is the text {value!r}: give a tuple, {option}=({value!r},)")
    return tuple(value)


def _check_field(option: str, field: object, event_types: Iterable[type[Event]]) -> None:
    for event_type in event_types:
        known = event_type.model_fields
        if field not in known:
            # Only a misspelt name: customer_name is no substitute for a customer_id that the type lacks.
            near = get_close_matches(to_snake(str(field)), known, n=3, cutoff=0.8)
            hint = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(known) or 'none'}"
            if not near and event_type.identify:
                hint = f"what it is about is in {', '.join(event_type.identify)}; {hint}"
            raise ConfigError(f"{option} names {field!r}, which is no field of {event_type.type}: {hint}")


def _window(seconds: float) -> float:
    if not (isinstance(seconds, int | float) and 0 < seconds <= LONGEST_WINDOW_SECONDS):
        raise ConfigError(
            f"identity_window_seconds is {seconds!r}: it must be above 0 and at most 604800 (7 days, "
            "for so long every delivery is kept)"
        )
    return float(seconds)
