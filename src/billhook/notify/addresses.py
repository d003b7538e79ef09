"""The addresses of BILLHOOK_NOTIFY_FILE, sent to by apprise: their credentials are in no text and no log."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from billhook.errors import ConfigError, MissingExtra
from billhook.file_modes import check_secret_file
from billhook.printable import first_line, printable

KEY = "BILLHOOK_NOTIFY_FILE"
_LOGGERS = ("apprise", "requests", "urllib3.connectionpool")
"""These log addresses, with the credentials that are in them."""
_SECRET_PARTS = re.compile(r"[/:@?&=,;]+")
_SHORTEST_SECRET = 4
_own_threads = threading.local()


class NotifyAddress:
    """One address. Its `name` is the service alone, such as `mailto`; no text of it shows more."""

    def __init__(self, url: str, number: int) -> None:
        """Check `url`, from line `number` of the file. Raises ConfigError for what apprise does not know."""
        self.name = printable(url.partition(":")[0])
        self.number = number
        self._url = url
        apprise = _apprise()
        self._type = apprise.NotifyType
        with _quiet():
            # The plugin itself: apprise's own `notify` sends from other threads, whose log lines stay.
            self._plugin = apprise.Apprise.instantiate(url)
        if self._plugin is None:
            raise ConfigError(
                f"{KEY}, line {number}, is no address that apprise knows: write one for each line, such as "
                "mailto://USER:PASSWORD@example.com or slack://TOKEN/#channel"
            )
        # A redirect would turn the message into a GET of another page, which may answer 200, and give it the
        # address's headers.
        self._plugin.redirects = False

    def __repr__(self) -> str:
        return f"<NotifyAddress {self.number}: {self.name}>"

    def send(self, title: str, body: str, *, good: bool = False) -> str | None:
        """Send a message; return None, or why it was not sent, without credentials."""
        kind = self._type.SUCCESS if good else self._type.FAILURE
        with _quiet() as logged:
            try:
                sent = self._plugin.notify(body=body, title=title, notify_type=kind)
            except Exception as error:  # noqa: BLE001 - plugins raise anything
                return self._masked(f"{type(error).__name__}: {error}")
        return None if sent else self._masked(logged[-1] if logged else "the service gave no reason")

    def _masked(self, text: str) -> str:
        shown = first_line(text)
        for part in _SECRET_PARTS.split(self._url)[1:]:
            if len(part) >= _SHORTEST_SECRET and part in shown:
                shown = shown.replace(part, "***")
        return printable(shown)


def read_addresses(path: str) -> tuple[list[NotifyAddress], list[ConfigError]]:
    """Return the addresses of a file, one for each line, and an error for each line that is none.

    Empty lines and those with # in front are left out. Raises ConfigError for the file, and MissingExtra. No
    error repeats an address.
    """
    check_secret_file(KEY, path)
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{KEY} {path} cannot be read: {reason}") from None
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


class _KeepFromLog(logging.Filter):
    """Takes the records of a thread that sends to an address out of the log; it keeps their warnings."""

    def filter(self, record: logging.LogRecord) -> bool:
        warnings: list[str] | None = getattr(_own_threads, "warnings", None)
        if warnings is None:
            return True
        if record.levelno >= logging.WARNING:
            warnings.append(record.getMessage())
        return False


_FILTER = _KeepFromLog()


@contextmanager
def _quiet() -> Iterator[list[str]]:
    # An app may use apprise itself, and log it: only what is ours is taken out.
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
    warnings: list[str] = []
    _own_threads.warnings = warnings
    try:
        yield warnings
    finally:
        _own_threads.warnings = None
