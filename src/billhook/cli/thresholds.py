"""The thresholds of subscriptions, as a command line gives them."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

import click

__all__ = ["THRESHOLD", "Threshold", "once_each"]


class Threshold(click.ParamType[tuple[str, Decimal]]):
    """TYPE=NUMBER."""

    name = "threshold"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Decimal]:
        event_type, equals, text = str(value).partition("=")
        try:
            number = Decimal(text)
        except InvalidOperation:
            number = Decimal("NaN")
        if not (event_type and equals and number.is_finite()):
            self.fail(f"{value!r} is not TYPE=NUMBER, such as CommitmentUsageCrossed=80", param, ctx)
        return event_type, number


THRESHOLD = Threshold()


def once_each(option: str, thresholds: Iterable[tuple[str, Decimal]]) -> dict[str, Decimal]:
    """Those of an option, by their types. Raises UsageError where two numbers are given for one."""
    found: dict[str, Decimal] = {}
    for event_type, number in thresholds:
        if found.setdefault(event_type, number) != number:
            raise click.UsageError(f"{option} names {event_type!r} twice, with different numbers")
    return found
