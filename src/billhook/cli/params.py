"""Values that several commands read from their arguments."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar

import click

__all__ = [
    "DELIVERY_ID",
    "MOMENT",
    "NAME",
    "Amount",
    "DeliveryId",
    "Moment",
    "Name",
    "as_json",
    "delivery_filters",
    "handlers_argument",
    "require_all",
]

F = TypeVar("F", bound=Callable[..., Any])

_AGE = re.compile(r"([0-9]{1,6})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class Moment(click.ParamType[datetime]):
    """A time, as an age (90s, 30m, 2h, 7d, 1w) or in ISO 8601; without an offset it is read as UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        age = _AGE.fullmatch(value)
        try:
            if age:
                return datetime.now(UTC) - timedelta(seconds=int(age[1]) * _SECONDS[age[2]])
            moment = datetime.fromisoformat(value)
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is no time: write an age such as 90s, 30m, 2h, 7d, or 2026-01-31T12:00",
                param,
                ctx,
            )


class Amount(click.FloatRange):
    """A number within limits: NaN is within any, as click compares them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number


class Name(click.ParamType[str]):
    """Text that a database takes: an argument that is not UTF-8 arrives with lone surrogates in it."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            self.fail("it is not valid UTF-8 text", param, ctx)
        return text


class DeliveryId(click.ParamType[int]):
    """The number of a delivery in the inbox."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not (text.isascii() and text.isdecimal() and 1 <= int(text[:20]) < 2**63):
            self.fail(
                f"{text!r} is no delivery's id: it is the number that `deliveries list` shows first",
                param,
                ctx,
            )
        return int(text)


class State(click.ParamType[str]):
    """What a delivery's state is called: for people, or as it is stored."""

    name = "state"
    shown = ("received", "waiting", "running", "retrying", "done", "dead", "quarantined", "pruned")
    stored = ("planned",)
    meant: ClassVar[dict[str, str]] = {
        "failed": "dead, or retrying", "failing": "retrying", "error": "dead, or retrying",
        "pending": "waiting", "queued": "waiting", "due": "waiting", "succeeded": "done", "ok": "done",
        "discarded": "done",
    }  # fmt: skip

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(self.shown)}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if text not in (*self.shown, *self.stored):
            near = difflib.get_close_matches(text.casefold(), self.shown, n=1)
            hint = self.meant.get(text.casefold()) or "".join(near)
            known = f"did you mean {hint}?" if hint else f"there are {', '.join(self.shown)}"
            self.fail(f"there is no state {text!r}: {known}", param, ctx)
        return text


MOMENT = Moment()
NAME = Name()
DELIVERY_ID = DeliveryId()

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, on stdout.")

handlers_argument = click.argument("handlers", nargs=-1, metavar="[HANDLERS]...")

require_all = click.option(
    "--require-all", is_flag=True, help="Refuse (exit code 1) when nobody handles some event type."
)


def delivery_filters(command: F) -> F:
    """The options that select deliveries; they arrive as event_type, state, error, source, since, until."""
    for option in (
        click.option("--until", type=MOMENT, help="Received before: an age (2h, 7d) or ISO 8601."),
        click.option("--since", type=MOMENT, help="Received since: an age (2h, 7d) or ISO 8601."),
        click.option("--source", type=NAME, metavar="NAME", help="From this source."),
        click.option(
            "--error", type=NAME, metavar="TEXT", help="With this in its last error, in upper or lower case."
        ),
        click.option("--state", type=State(), help="In this state."),
        click.option("--type", "event_type", type=NAME, metavar="TYPE", help="Of this event type."),
    ):
        command = option(command)
    return command
