"""A header of named entries, `t=…,v1=…`: the time and the signatures in one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from billhook.errors import ConfigError, SignatureMalformed
from billhook.signing.strict import MAX_SIGNATURES, split_entries
from billhook.signing.times import TimeFormat

__all__ = ["Entries"]

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,16}", re.ASCII)
_SEPARATORS: Final = (",", ";")


@dataclass(frozen=True, slots=True)
class Entries:
    """Which entry is which. Entries of other names are passed over, as senders ask."""

    signature: str
    time: str | None
    separator: str

    def check(self, time_format: TimeFormat) -> None:
        """Raise ConfigError for names that cannot be told apart, or a separator that a time may hold."""
        for name in (self.signature, *(() if self.time is None else (self.time,))):
            if not _NAME.fullmatch(name):
                raise ConfigError(f"{name!r} cannot name an entry: use 1 to 16 letters and digits")
        if self.signature == self.time:
            raise ConfigError(f"the entry {self.time!r} is given two meanings: each needs its own")
        if self.separator not in _SEPARATORS:
            raise ConfigError(f"entry_separator {self.separator!r} is not one of {' '.join(_SEPARATORS)}")
        if self.time is not None and self.separator in time_format.characters:
            raise ConfigError(f"entry_separator {self.separator!r} may be within a time ({time_format.name})")

    def read(self, text: str, header: str) -> tuple[list[str], str | None]:
        """The texts of the signatures, perhaps none, and of the one time. Raises SignatureMalformed."""
        signatures: list[str] = []
        time: str | None = None
        for entry in split_entries(text, self.separator, MAX_SIGNATURES + 1, header):
            name, equals, value = entry.partition("=")
            if not (name and equals):
                raise SignatureMalformed(f"{header} is not a list of name=value entries")
            if name == self.signature:
                signatures.append(value)
            elif name == self.time:
                if time is not None:
                    raise SignatureMalformed(f"{header} has more than one {name}")
                time = value
        if self.time is not None and time is None:
            raise SignatureMalformed(f"{header} has no {self.time}")
        return signatures, time

    def write(self, signature: str, time: str | None) -> str:
        """The header that `read` reads."""
        timed = "" if self.time is None else f"{self.time}={time}{self.separator}"
        return f"{timed}{self.signature}={signature}"
