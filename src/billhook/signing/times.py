"""Read and write the time of signing, as one of four closed grammars: each is written in one way.

The signed bytes contain the text as received, so another spelling of the same time needs another signature,
which only the sender can make. Accepted is ASCII only, an existing date, and no leap second.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Final, Literal

from billhook.errors import SignatureMalformed

MAX_TIMESTAMP_DIGITS: Final = 12
LAST_TIMESTAMP: Final = 253_402_300_799  # 9999-12-31T23:59:59Z, the last second that a datetime can hold
TimeFormatName = Literal["unix", "unix-ms", "iso-8601", "http-date"]

_DIGITS: Final = "0123456789"
_MILLISECONDS: Final = re.compile(r"0|[1-9][0-9]{0,14}", re.ASCII)
_ISO: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:Z|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))?",
    re.ASCII,
)
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HTTP: Final = re.compile(
    rf"[A-Z][a-z]{{2}}, ([0-9]{{2}}) ({'|'.join(_MONTHS)}) ([0-9]{{4}}) "
    r"([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """One way of writing a time.

    A separator next to the time must not be in `follows`, characters that can extend a complete time to a
    longer one, or in `precedes`, those that can extend it at its beginning. `characters` are all that occur.
    """

    name: TimeFormatName
    read: Callable[[str, str], datetime]
    """Parses a text to aware UTC, given the name of its header; raises SignatureMalformed only."""
    write: Callable[[datetime], str]
    """Returns the text that `read` parses, rounded down; ValueError for a naive or unwritable time."""
    follows: str
    precedes: str
    characters: str


def require_aware(now: datetime) -> datetime:
    """Return `now`. Raises ValueError for a naive time: a mistake of the caller, not of the sender."""
    if now.tzinfo is None:
        raise ValueError(f"now must be an aware datetime, got the naive {now.isoformat()}")
    return now


def _read_unix(text: str, header: str) -> datetime:
    """Parse Unix seconds: 1 to 12 ASCII digits, no sign, no leading zero, up to the year 9999."""
    if not (text.isascii() and text.isdigit()) or len(text) > MAX_TIMESTAMP_DIGITS:
        raise SignatureMalformed(f"{header} holds no timestamp of 1 to {MAX_TIMESTAMP_DIGITS} ASCII digits")
    seconds = int(text)
    if str(seconds) != text or seconds > LAST_TIMESTAMP:
        raise SignatureMalformed(f"{header} holds a timestamp with leading zeros or after the year 9999")
    return datetime.fromtimestamp(seconds, UTC)


def _read_milliseconds(text: str, header: str) -> datetime:
    if not _MILLISECONDS.fullmatch(text) or int(text) // 1000 > LAST_TIMESTAMP:
        raise SignatureMalformed(
            f"{header} holds no timestamp in milliseconds: 1 to 15 ASCII digits, no leading zero"
        )
    # In integers: a float of milliseconds would be rounded.
    seconds, milliseconds = divmod(int(text), 1000)
    return datetime.fromtimestamp(seconds, UTC) + timedelta(milliseconds=milliseconds)


def _write_milliseconds(now: datetime) -> str:
    return str(_since_1970(now) * 1000 + now.microsecond // 1000)


def _since_1970(now: datetime) -> int:
    seconds = int(require_aware(now).replace(microsecond=0).timestamp())
    if not 0 <= seconds <= LAST_TIMESTAMP:
        raise ValueError(f"cannot sign at {now.isoformat()}: a timestamp counts seconds since 1970")
    return seconds


def _read_iso(text: str, header: str) -> datetime:
    """Parse RFC 3339 with capital T and Z and up to 9 decimals; without a zone it is UTC, as Orb sends it."""
    found = _ISO.fullmatch(text)
    if found is None:
        raise SignatureMalformed(f"{header} holds no time as 2026-01-15T09:30:00.000Z")
    *whole, fraction, sign, hours, minutes = found.groups()
    # Digits beyond microseconds are cut off: datetime cannot hold them.
    microsecond = int(f"{fraction or ''}000000"[:6])
    try:
        moment = datetime(*map(int, whole), microsecond=microsecond, tzinfo=UTC)  # type: ignore[misc,arg-type]
        if sign is not None:
            offset = timedelta(hours=int(hours), minutes=int(minutes))
            moment += -offset if sign == "+" else offset
    except (ValueError, OverflowError):
        raise SignatureMalformed(f"{header} holds an impossible date or time") from None
    return moment


def _write_iso(now: datetime) -> str:
    return require_aware(now).astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _read_http(text: str, header: str) -> datetime:
    """Parse an IMF-fixdate, and check its day of the week. Source: RFC 9110, section 5.6.7."""
    found = _HTTP.fullmatch(text)
    if found is None:
        raise SignatureMalformed(f"{header} holds no time as Thu, 15 Jan 2026 09:30:00 GMT")
    day, month, year, *time = found.groups()
    try:
        date = (int(year), _MONTHS.index(month) + 1, int(day))
        moment = datetime(*date, *map(int, time), tzinfo=UTC)  # type: ignore[misc,arg-type]
    except ValueError:
        raise SignatureMalformed(f"{header} holds an impossible date or time") from None
    if _write_http(moment) != text:
        raise SignatureMalformed(f"{header} holds a day of the week that is not the date's")
    return moment


def _write_http(now: datetime) -> str:
    return format_datetime(require_aware(now).astimezone(UTC), usegmt=True)


UNIX: Final = TimeFormat("unix", _read_unix, lambda now: str(_since_1970(now)), _DIGITS, _DIGITS, _DIGITS)
# A year has four digits and a date ten characters, so nothing before an ISO time makes it a longer one; an
# HTTP date has 29 characters, always.
TIME_FORMATS: Final = {
    time_format.name: time_format
    for time_format in (
        UNIX,
        TimeFormat("unix-ms", _read_milliseconds, _write_milliseconds, _DIGITS, _DIGITS, _DIGITS),
        TimeFormat("iso-8601", _read_iso, _write_iso, _DIGITS + ".Z+-", "", _DIGITS + "-:.TZ+"),
        TimeFormat("http-date", _read_http, _write_http, "", "", _DIGITS + ", :ADFGJMNOSTWabcdeghilnoprtuvy"),
    )
}
