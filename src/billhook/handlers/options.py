"""The options of handlers, declared once: meaning, parser and words of each, as the fields of Options.

The help of `Handlers.on`, `billhook handlers`, the dashboard and the chapter's table are made from OPTIONS.
Type checkers read HandlerOptions and EventHandlerOptions, which a test compares with it.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from types import UnionType
from typing import Any, NamedTuple, TypeAlias, TypedDict, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.alias_generators import to_snake

from billhook.basics.type_names import READING, is_reading
from billhook.clock import format_duration
from billhook.errors import ConfigError
from billhook.events import Event
from billhook.handlers.retry import RetrySchedule

IDENTITY_WINDOW_SECONDS = 86_400.0
"""How long content duplicates are recognised by default."""
LONGEST_WINDOW_SECONDS = 7 * 86_400
MOST_RUNS = 1_000
"""The highest `at_most` and `pause_after`, and the highest `rate` in runs a second."""
_UNITS = {"s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
NAME_LENGTH = 200
_RATE = re.compile(r"(?P<number>[0-9]{1,9})/(?P<unit>s|min|h|d)")

F = TypeVar("F", bound=Callable[..., Any])
_Texts: TypeAlias = "list[str] | tuple[str, ...] | set[str] | frozenset[str]"
"""Not Iterable[str]: a str is an iterable of its letters, so a type checker would accept it."""


class HandlerOptions(TypedDict, total=False):
    """The options of every handler: `help(Handlers.on)` tells them."""

    name: str | None
    aliases: _Texts
    retry: Iterable[float] | None
    timeout_seconds: float | None
    sources: _Texts
    at_most: int | None
    rate: str | None
    pause_after: int | None


class EventHandlerOptions(HandlerOptions, total=False):
    """The options of a handler of certain event types: those of every handler, and these."""

    ordered_by: str | None
    newest_only: bool
    newest_by: str | Callable[[Any], Any] | None
    identity: _Texts
    identity_window_seconds: float


class Rate(NamedTuple):
    """How many runs may start in how many seconds."""

    runs: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.runs}/{next(unit for unit, seconds in _UNITS.items() if seconds == self.seconds)}"


def _name(option: str, name: Any) -> Any:
    if isinstance(name, str) and 0 < len(name) <= NAME_LENGTH and name.isprintable():
        if is_reading(name):
            raise ConfigError(
                f"a handler's name is {name!r:.80}: names that begin with {READING!r} are kept for the runs "
                "that read events of your own types; choose another"
            )
        return name
    raise ConfigError(f"a handler's name is {name!r:.80}: give 1 to {NAME_LENGTH} printable characters")


def _names(option: str, names: object) -> tuple[str, ...]:
    return tuple(_name(option, name) for name in _texts(option, names))


def _retry(option: str, waits: object) -> RetrySchedule:
    if isinstance(waits, str) or not isinstance(waits, Iterable):
        kind = "the text " if isinstance(waits, str) else ""
        raise ConfigError(
            f"retry is {kind}{waits!r}: give the waits before the second, the third and further attempts, in "
            "seconds, as retry=[10, 60]; retry=[] tries once"
        )
    return RetrySchedule.of(waits)


def _seconds(option: str, seconds: Any) -> float:
    if isinstance(seconds, int | float) and 0 < seconds <= 86_400:
        return seconds
    raise ConfigError(f"{option} is {seconds!r}: it must be above 0 and at most 86400")


def _number(option: str, value: Any) -> int:
    if type(value) is int and 0 < value <= MOST_RUNS:
        return value
    raise ConfigError(f"{option} is {value!r}: it must be a whole number from 1 to {MOST_RUNS}")


def _rate(option: str, text: object) -> Rate:
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
    return Rate(number, seconds)


def _texts(option: str, value: Any) -> tuple[str, ...]:
    # A str is an iterable of its letters, so it would otherwise be accepted as a list of letters.
    if isinstance(value, str):
        raise ConfigError(f"{option} is the text {value!r}: give a tuple, {option}=({value!r},)")
    return tuple(value)


def _newest_by(option: str, value: Any) -> str | Callable[[Any], Any]:
    if isinstance(value, str) or callable(value):
        return value  # type: ignore[no-any-return]
    raise ConfigError(f"{option} is {value!r:.80}: give the name of a field, or a function of the event")


def function_or_field(value: str | Callable[..., Any]) -> str:
    """Return the name of a field, or of a function without its module."""
    return value if isinstance(value, str) else f"{getattr(value, '__qualname__', type(value).__name__)}()"


def _window(option: str, seconds: Any) -> float:
    if not (isinstance(seconds, int | float) and 0 < seconds <= LONGEST_WINDOW_SECONDS):
        raise ConfigError(
            f"{option} is {seconds!r}: it must be above 0 and at most 604800 (7 days, "
            "for so long every delivery is kept)"
        )
    return float(seconds)


HEADINGS = {
    "time-out": "none", "retries": "", "limits": "none", "ordered by": "", "identity": "", "sources": "all",
    "formerly": "",
}  # fmt: skip
"""The columns of options, in their order, with what stands there for a handler that sets none of them."""


class HandlerOption(NamedTuple):
    """One option of a handler: `parse` takes its name and what was given, `words` its value, if it is set.

    What is given as None is not parsed where that is the default.

    Options with the same `heading`, one of HEADINGS, share a column; without one it is shown in none. `key`
    is that of `--json`, where it is not the name. One that is `for_types` is of handlers of certain event
    types, and with `of_fields` its values are names of fields of these.
    """

    help: str
    parse: Callable[[str, Any], Any]
    heading: str = ""
    words: Callable[[Any], str] = str
    key: str = ""
    for_types: bool = False
    of_fields: bool = False


def _option(*description: Any, default: Any = None, **more: Any) -> Any:
    """Declare a field of Options: its default, and the arguments of its HandlerOption."""
    return field(default=default, metadata={"option": HandlerOption(*description, **more)})


@dataclass(kw_only=True, eq=False, repr=False)
class Options:
    """The parsed options of a handler, one field each, with its meaning, its parser and its words."""

    # fmt: off
    name: str = _option(
        "Stored with every run, so keep it when the function moves; default `module.qualname`.", _name)
    aliases: tuple[str, ...] = _option(
        "Former names: the runs stored under them still belong to it.",
        _names, "formerly", "\n".join, default=())
    retry: RetrySchedule | None = _option(
        "The waits between attempts, in seconds; default `BILLHOOK_RETRY_SCHEDULE_SECONDS`, `[]` tries once.",
        _retry, "retries", key="retry_schedule_seconds")
    timeout_seconds: float | None = _option(
        "How long one attempt may take; default without end.", _seconds, "time-out", format_duration)
    sources: tuple[str, ...] = _option(
        "The names of the sources whose deliveries it handles; default all.",
        _texts, "sources", "\n".join, default=())
    at_most: int | None = _option(
        "How many of its runs are under way at once, over all workers of the inbox.",
        _number, "limits", "at most {} at once".format)
    rate: Rate | None = _option(
        'How many of its runs start, over all workers, evenly spread: `"10/s"`, `"100/min"`, `"1000/h"`.',
        _rate, "limits")
    pause_after: int | None = _option(
        "After this number of failed attempts in a row, of any runs, it is paused until it is resumed.",
        _number, "limits", "pauses after {} failures in a row".format)
    ordered_by: str | None = _option(
        "A field of all the event types: deliveries of one source with the same value in it are handled one "
        "at a time, in the order of arrival, across all processes; `None` in it orders nothing.",
        lambda _, field: field, "ordered by", for_types=True, of_fields=True)
    newest_only: bool = _option(
        "Of several that wait with the same value in `ordered_by`, only the newest is handled.",
        lambda _, value: bool(value), "ordered by", lambda _: "newest only", for_types=True, default=False)
    newest_by: str | Callable[[Any], Any] | None = _option(
        "What says which is the newest, with `newest_only`: a field of all the event types, or a function of "
        "the event, that is a date, a number or a text; default the order of arrival.",
        _newest_by, "ordered by", lambda value: f"newest by {function_or_field(value)}", for_types=True,
        of_fields=True)
    identity: tuple[str, ...] = _option(
        "The fields by which content duplicates are recognised: a delivery with the same values as an "
        "earlier one is discarded without a call.",
        _texts, "identity", "\n".join, for_types=True, of_fields=True, default=())
    identity_window_seconds: float = _option(
        "For how long they are recognised, at most 7 days; default a day.",
        _window, "identity", "for {:g} s".format, for_types=True, default=IDENTITY_WINDOW_SECONDS)
    # fmt: on


OPTIONS: dict[str, HandlerOption] = {each.name: each.metadata["option"] for each in fields(Options)}
"""Every option by its name."""


def tell_options(function: F) -> F:
    """Add the options to a function's help."""
    told = [f"- `{name}`: {option.help}" for name, option in OPTIONS.items()]
    lines = [textwrap.fill(each, 100, subsequent_indent="  ") for each in told]
    function.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", "Options:", "", *lines])
    return function


def values_of(options: Options) -> dict[str, Any]:
    """Return the options by name; a window that nothing needs is None."""
    found = {name: getattr(options, name) for name in OPTIONS}
    return found if options.identity else {**found, "identity_window_seconds": None}


def in_words(options: Options) -> dict[str, str]:
    """Return what is set by its heading, a line each; an empty text where nothing is."""
    lines: dict[str, list[str]] = {heading: [] for heading in HEADINGS}
    for name, value in values_of(options).items():
        if OPTIONS[name].heading and value not in (None, False, ()):
            lines[OPTIONS[name].heading].append(OPTIONS[name].words(value))
    return {heading: "\n".join(each) for heading, each in lines.items()}


def parse_options(
    call: str, options: Mapping[str, Any], event_types: tuple[type[Event], ...] = ()
) -> dict[str, Any]:
    """Return the options of `on`, `on_any` or `on_unknown`, the first with its types, as those of Handler.

    Raises ConfigError, and TypeError for an unknown option, as Python does.
    """
    known = [name for name, option in OPTIONS.items() if event_types or not option.for_types]
    parsed: dict[str, Any] = {}
    for name, given in options.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f". Did you mean '{near[0]}'?" if near else ""
            raise TypeError(f"Handlers.{call}() got an unexpected keyword argument '{name}'{hint}")
        if given is None and getattr(Options, name) is None:
            continue
        parsed[name] = value = OPTIONS[name].parse(name, given)
        if OPTIONS[name].of_fields:
            for each in value if isinstance(value, tuple) else (value,):
                if not (name == "newest_by" and callable(each)):
                    _check_field(name, each, event_types)
    _check_newest(parsed, event_types)
    return parsed


def _check_newest(parsed: Mapping[str, Any], event_types: Iterable[type[Event]]) -> None:
    """Refuse options of which one lacks another, and a field that cannot say what is newer."""
    newest_only, field = parsed.get("newest_only"), parsed.get("newest_by")
    if newest_only and parsed.get("ordered_by") is None:
        raise ConfigError("newest_only needs ordered_by, the field by which one delivery replaces another")
    if field is not None and not newest_only:
        raise ConfigError("newest_by needs newest_only=True: without it each delivery is handled")
    if not isinstance(field, str):
        return
    for event_type in event_types:
        annotation = event_type.model_fields[field].annotation
        is_union = get_origin(annotation) in (Union, UnionType)
        for kind in get_args(annotation) if is_union else (annotation,):
            plain = get_origin(kind) or kind
            is_other = isinstance(plain, type) and issubclass(plain, bool | Collection | BaseModel)
            if is_other and not issubclass(plain, str):
                raise ConfigError(
                    f"newest_by names {field!r}, which is a {plain.__name__} in {event_type.type}: give a "
                    "field that is a date, a number or a text, or a function of the event"
                )


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
