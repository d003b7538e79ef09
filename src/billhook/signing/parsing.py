"""Strict parsers of signature headers from unverified senders: one spelling per value, bounded sizes.

They raise only SignatureMissing or SignatureMalformed, for any input. The standard library is more lenient
than a verifier may be: int() takes "+5", " 5", "1_0" and digits of every script,
b64decode() drops foreign characters, bytes.fromhex() skips spaces. The texts of the errors name the header
and the rule, and never repeat what was sent.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Final, Literal

from billhook.errors import SignatureMalformed, SignatureMissing

Encoding = Literal["hex", "base64"]

# Bounds for senders that are not verified yet; web servers accept headers of about this size.
MAX_HEADER_BYTES: Final = 8_192
MAX_SIGNATURES: Final = 16
MAX_PUBLIC_KEY_SIGNATURES: Final = 4
"""Verifying one costs a hundred times as much as an HMAC, and no rotation of keys needs more."""
MAX_ID_CHARACTERS: Final = 256
IDENTIFIER: Final = re.compile(rf"[ -+\-/-~]{{1,{MAX_ID_CHARACTERS}}}", re.ASCII)
"""Printable ASCII without "." and ",": a dot separates the fields of signed contents, and a comma the headers
that a proxy has joined."""
MAX_TIMESTAMP_DIGITS: Final = 12
LAST_TIMESTAMP: Final = 253_402_300_799  # 9999-12-31T23:59:59Z, the last second that a datetime can hold


def read_header(headers: Mapping[str, str], name: str) -> str:
    """Return a header that is ASCII text of at most MAX_HEADER_BYTES.

    Raises SignatureMissing or SignatureMalformed.
    """
    value: object = headers.get(name)
    if value is None:
        raise SignatureMissing(f"the request has no {name} header")
    if not isinstance(value, str) or not value.isascii():
        raise SignatureMalformed(f"{name} is not ASCII text")
    if len(value) > MAX_HEADER_BYTES:
        raise SignatureMalformed(f"{name} is longer than {MAX_HEADER_BYTES} bytes")
    return value


def read_identifier(text: str, header: str) -> str:
    """Return `text` if it is an identifier. Raises SignatureMalformed for any other."""
    if not IDENTIFIER.fullmatch(text):
        raise SignatureMalformed(
            f"{header} is not an id of 1 to {MAX_ID_CHARACTERS} printable ASCII characters "
            'without "." and ","'
        )
    return text


def outgoing_message_id(message_id: str | None) -> str:
    """Return `message_id`, or a random one for None. Raises ValueError for one that no receiver accepts."""
    if message_id is None:
        return f"msg_{os.urandom(16).hex()}"
    if not IDENTIFIER.fullmatch(message_id):
        raise ValueError('message_id must be 1 to 256 printable ASCII characters without "." and ","')
    return message_id


def read_signature(text: str, encoding: Encoding, length_bytes: int | None, header: str) -> bytes:
    """Decode a signature. Raises SignatureMalformed.

    `length_bytes` is the only length accepted; None where the length depends on the key (RSA).
    """
    try:
        # Canonical base64 only: its unused last bits would give one signature several spellings.
        if encoding == "hex":
            raw = binascii.unhexlify(text)  # either case, no spaces; 64 characters are exactly 32 bytes
            canonical = True
        else:
            raw = base64.b64decode(text, validate=True)
            canonical = binascii.b2a_base64(raw, newline=False) == text.encode()
    except ValueError:  # binascii.Error and UnicodeEncodeError are ValueErrors
        raise SignatureMalformed(f"{header} holds a signature that is not {encoding}") from None
    if not canonical:
        raise SignatureMalformed(f"{header} holds a signature that is not in canonical base64")
    if not raw or (length_bytes is not None and len(raw) != length_bytes):
        raise SignatureMalformed(f"{header} holds a signature of the wrong length")
    return raw


def encode_signature(signature: bytes, encoding: Encoding) -> str:
    """Return the text that read_signature() decodes."""
    return signature.hex() if encoding == "hex" else base64.b64encode(signature).decode()


# --- times --------------------------------------------------------------------------------------------
# Four closed grammars, each parsed strictly and written in one way. The signed bytes contain the text as
# received, so another spelling of the same time needs another signature, which only the sender can make.
# Accepted is ASCII only, an existing date, and no leap second.

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


def _write_unix(now: datetime) -> str:
    return str(_since_1970(now))


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
    # Digits beyond microseconds are cut off: datetime has no room for them.
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


UNIX: Final = TimeFormat("unix", _read_unix, _write_unix, _DIGITS, _DIGITS, _DIGITS)
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
