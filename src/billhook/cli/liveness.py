"""Liveness: a worker tells systemd, or a file that a container's probe reads, that it is alive.

Source: sd_notify(3), the protocol of NOTIFY_SOCKET and WATCHDOG_USEC.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

from billhook.errors import ConfigError
from billhook.logs import fields

__all__ = ["Liveness"]

logger = logging.getLogger("billhook.worker")

_INTERVAL_SECONDS = 1.0


class Liveness:
    """What tells others that this process is alive. It neither blocks nor raises once it is made."""

    def __init__(self, environ: MutableMapping[str, str], health_file: Path | None = None) -> None:
        """Read systemd's variables, and remove them: child processes must not answer for this one.

        `health_file` is created, and from then on touched. Raises ConfigError if it cannot be.
        """
        address = environ.pop("NOTIFY_SOCKET", None)
        microseconds = environ.pop("WATCHDOG_USEC", "")
        watched_pid = environ.pop("WATCHDOG_PID", str(os.getpid()))
        self.interval_seconds = _INTERVAL_SECONDS
        if address and microseconds.isdigit() and watched_pid == str(os.getpid()):
            # A third of what it allows, as a busy machine may delay one.
            self.interval_seconds = min(_INTERVAL_SECONDS, int(microseconds) / 1e6 / 3)
            faulthandler.enable()  # systemd ends a hanging process with SIGABRT: the log shows where it hung
        # A leading @ stands for the NUL of Linux's abstract addresses.
        self._address = "\0" + address[1:] if address and address[0] == "@" else address
        self._file = health_file
        self._file_failed = False
        self._told_ready = False
        self._next_at = 0.0
        if health_file is not None:
            try:
                health_file.touch()
            except OSError as error:
                raise ConfigError(
                    f"--health-file {health_file} cannot be written: {error.strerror}"
                ) from None

    @property
    def is_used(self) -> bool:
        """Whether there is anything to notify: systemd or a file."""
        return bool(self._address) or self._file is not None

    def beat(self) -> None:
        """Tell that this process is alive, unless that was told just now; at first, that it has started."""
        now = time.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + self.interval_seconds * 0.9
        self._notify("WATCHDOG=1" if self._told_ready else "READY=1\nWATCHDOG=1")
        self._told_ready = True
        self._touch()

    def stopping(self) -> None:
        """Tell that an orderly stop has begun. Callable from a signal handler."""
        self._notify("STOPPING=1")

    def close(self) -> None:
        """Remove the file: this process is about to end."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.unlink()

    def _notify(self, message: str) -> None:
        if not self._address:
            return
        # A socket for each message, at most one a second: a handler cannot close one that is not open.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(message.encode(), self._address)

    def _touch(self) -> None:
        file = self._file
        if file is None:
            return
        try:
            file.touch()
        except OSError as error:
            if not self._file_failed:
                text = "the health file %s cannot be touched, a probe will find it too old: %s"
                logger.error(text, file, error.strerror, extra=fields(cause=error))  # noqa: TRY400
            self._file_failed = True
        else:
            self._file_failed = False
