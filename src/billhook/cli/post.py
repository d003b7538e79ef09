"""Posting a signed body, as the service would: one connection, no redirects, no proxies."""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from billhook.errors import ConfigError

__all__ = ["Answer", "Poster"]

_READ_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `status` is None when nothing did, and `body` then says why."""

    status: int | None
    body: str
    seconds: float


class Poster:
    """Posts to one URL; a context manager that keeps the connection alive between posts."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        """Raises ConfigError for what is no http(s) URL; its text does not repeat a password in it."""
        self._parts = _checked(url)
        self._timeout_seconds = timeout_seconds
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Poster:
        return self

    def __exit__(self, *_: object) -> None:
        self._hang_up()

    def post(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """One delivery; no failure of the network raises."""
        reused = self._connection is not None
        started = time.monotonic()
        try:
            status, text = self._exchange(body, headers)
        except (OSError, http.client.HTTPException) as error:
            self._hang_up()
            # A kept-alive connection may be closed by the server just as we use it: that is no answer yet.
            if reused and isinstance(error, ConnectionError | http.client.RemoteDisconnected):
                return self.post(body, headers)
            return Answer(None, _reason(error), time.monotonic() - started)
        return Answer(status, text, time.monotonic() - started)

    def _exchange(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        if self._connection is None:
            secure = self._parts.scheme == "https"
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            self._connection = kind(
                self._parts.hostname or "", self._parts.port, timeout=self._timeout_seconds
            )
        target = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        self._connection.request(
            "POST", target, body, {"Content-Type": "application/json", "User-Agent": "billhook", **headers}
        )
        response = self._connection.getresponse()
        text = response.read(_READ_BYTES).decode("utf-8", "replace")
        if not response.isclosed() or response.will_close:
            self._hang_up()
        return response.status, text

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isascii() or any(character <= " " for character in url):
        raise ConfigError("--to is no URL that can be posted to: write http://HOST:PORT/PATH")
    if "@" in parts.netloc:
        raise ConfigError("--to has a user name in it: a webhook is authenticated by its signature alone")
    return parts


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
