"""Addresses that messages are sent to, by apprise: their credentials are in no text and no log."""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from billhook.basics.file_modes import read_secret_file
from billhook.basics.printable import first_line, printable
from billhook.errors import ConfigError, MissingExtra

KEY = "BILLHOOK_NOTIFY_FILE"
_LOGGERS = ("apprise", "requests", "urllib3.connectionpool")
"""These log addresses, with the credentials that are in them."""
_SEPARATORS = re.compile(r"[/:@?&=,;]+")
_WHOLE_WORDS_BELOW = 4
"""A shorter part is masked as a whole word alone, or it would mask pieces of ordinary words."""
_NO_MENTION = "@\N{ZERO WIDTH SPACE}"
"""A chat must not call everyone because a name in a message says so."""
_MAKES_ANEW = ("_register", "_room_create")
"""Methods of apprise's Matrix: it asks for an account where a login is refused, and makes a missing room."""
_warnings: ContextVar[list[str] | None] = ContextVar("_warnings", default=None)
"""What the addresses of this context have logged: apprise may send from a thread with a copy of it."""


class NotifyAddress:
    """One address. Its `name` is the service alone, such as `mailto`; no text of it shows more."""

    def __init__(self, url: str, number: int) -> None:
        """Check `url`, from line `number` of the file. Raises ConfigError for what apprise does not know."""
        self.name = printable(url.partition(":")[0])
        self.number = number
        self._url = url
        apprise = _apprise()
        self._type, self._text = apprise.NotifyType, apprise.NotifyFormat.TEXT
        with _quiet() as logged:
            plugin = apprise.Apprise.instantiate(url)
        if plugin is None:
            raise ConfigError(
                f"{KEY}, line {number}, is no address that apprise knows{self._why_not(logged)}: write "
                "one for each line, such as mailto://USER:PASSWORD@example.com or slack://TOKEN/#channel"
            )
        # The password of a login that was refused is for no new account, and a message for no new room.
        for makes_anew in _MAKES_ANEW:
            if hasattr(plugin, makes_anew):
                setattr(plugin, makes_anew, lambda *_, **__: None)
        # A redirect would turn the message into a GET of another page, which may answer 200, and give it the
        # address's headers.
        plugin.redirects = False
        self._service = apprise.Apprise(plugin)

    def __repr__(self) -> str:
        return f"<NotifyAddress {self.number}: {self.name}>"

    def send(self, title: str, body: str, *, good: bool = False) -> str | None:
        """Send a message, which is text and no markup; return None, or why not, without credentials."""
        kind = self._type.SUCCESS if good else self._type.FAILURE
        title, body = (text.replace("@", _NO_MENTION) for text in (title, body))
        with _quiet() as logged:
            try:
                sent = self._service.notify(body=body, title=title, notify_type=kind, body_format=self._text)
            except Exception as error:  # noqa: BLE001 - plugins raise anything
                return self._masked(f"{type(error).__name__}: {error}")
        return None if sent else self._masked(logged[-1] if logged else "the service gave no reason")

    def _why_not(self, logged: list[str]) -> str:
        """Return what apprise said of the address, without its parts; nothing if it has no scheme."""
        if "://" not in self._url or not logged:
            return ""
        said = self._masked(logged[0].partition(f"{self.name}://")[0]).strip(" .:")
        return f" ({said})"

    def _masked(self, text: str) -> str:
        # Before the text is cut: the beginning of a credential is one too.
        return first_line(self._secrets.sub("***", text))

    @cached_property
    def _secrets(self) -> re.Pattern[str]:
        """All that is in the address, in each spelling that a library may show it in."""
        rest = self._url.partition(":")[2]
        credentials = rest.lstrip("/").rpartition("@")[0]
        user, _, password = map(unquote, credentials.partition(":"))
        joined = [f"{user}:{password}", f"\0{user}\0{password}"] if credentials else []
        encoded = [base64.b64encode(text.encode()).decode() for text in (*joined, user, password) if text]
        found = {spelling for part in _SEPARATORS.split(rest) if part for spelling in _spellings(part)}
        ordered = sorted(found.union(encoded), key=len, reverse=True)
        patterns = (
            re.escape(one) if len(one) >= _WHOLE_WORDS_BELOW else rf"(?<!\w){re.escape(one)}(?!\w)"
            for one in ordered
        )
        return re.compile("|".join(patterns) or r"(?!)", re.IGNORECASE)


def _spellings(part: str) -> set[str]:
    plain = {part, unquote(part), unquote_plus(part), unquote(part).replace(" ", "+")}
    shown = {how(one) for one in plain for how in (json.dumps, repr)}
    by_url = {how(one, safe=safe) for one in plain for how in (quote, quote_plus) for safe in ("", "/")}
    return plain | by_url | {one[1:-1] for one in shown}


def read_addresses(path: str) -> tuple[list[NotifyAddress], list[ConfigError]]:
    """Return the addresses of a file, one for each line, and an error for each line that is none.

    Empty lines and those with # in front are left out. Raises ConfigError for the file, and MissingExtra. No
    error repeats an address.
    """
    lines = read_secret_file(KEY, path).splitlines()
    _apprise()
    found: list[NotifyAddress] = []
    errors: list[ConfigError] = []
    for number, line in enumerate(map(str.strip, lines), 1):
        if line and not line.startswith("#"):
            try:
                found.append(NotifyAddress(line, number))
            except ConfigError as error:
                errors.append(error)
    if not (found or errors):
        raise ConfigError(f"{KEY} {path} has no address: write one for each line")
    return found, errors


def _apprise() -> Any:
    try:
        import apprise
    except ImportError:
        raise MissingExtra(KEY, "notify") from None
    return apprise


def _keep_from_log(record: logging.LogRecord) -> bool:
    """Take the records of sending to an address out of the log, and keep their warnings."""
    warnings = _warnings.get()
    if warnings is not None and record.levelno >= logging.WARNING:
        warnings.append(record.getMessage())
    return warnings is None


@contextmanager
def _quiet() -> Iterator[list[str]]:
    # An app may use apprise itself, and log it: only what is ours is taken out.
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_keep_from_log)
    warnings: list[str] = []
    before = _warnings.set(warnings)
    try:
        yield warnings
    finally:
        _warnings.reset(before)
