"""How amounts and moments lie in a column, on both databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from sqlalchemy import BigInteger, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

__all__ = ["Amount", "Instant", "microseconds", "moment"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(at: datetime) -> int:
    """Since 1970, in UTC: what an Instant column holds."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def moment(at: int) -> datetime:
    """The other way."""
    return _EPOCH + timedelta(microseconds=at)


class Amount(TypeDecorator[Decimal]):
    """A Decimal with all its digits, as text: SQLite has no such number. Add up in Python, never in SQL."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Decimal | None:
        return None if value is None else Decimal(value)


class Instant(TypeDecorator[datetime]):
    """An aware UTC datetime, as microseconds since 1970: compared and grouped alike on both databases."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else moment(value)
