"""Where a server listens: read, and tried, before anything is started."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
import stat
from pathlib import Path
from typing import Any

import click

from billhook.cli.faults import SetupFault

__all__ = ["BIND", "DEFAULT_BIND", "TCP_BIND", "Bind", "check_free", "is_local"]

DEFAULT_BIND = "127.0.0.1:8000"
"""Where `billhook serve` listens and `billhook send` posts to."""
_TCP = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/]*):([0-9]{1,5})")
_OTHER = re.compile(r"unix:\S+|fd://[0-9]{1,9}")


class Bind(click.ParamType[str]):
    """HOST:PORT, unix:PATH or fd://NUMBER, as gunicorn reads them; `tcp`: the first only."""

    name = "address"

    def __init__(self, *, tcp: bool) -> None:
        self._tcp = tcp

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        found = _TCP.fullmatch(text)
        if found is None and self._tcp:
            self.fail(f"{text!r} is not HOST:PORT", param, ctx)
        if found is None and not _OTHER.fullmatch(text):
            self.fail(f"{text!r} is neither HOST:PORT nor unix:PATH", param, ctx)
        if found is not None and not 1 <= int(found[2]) <= 65_535:
            self.fail(f"{text!r} has no such port: a port is a number from 1 to 65535", param, ctx)
        return text


BIND = Bind(tcp=False)
TCP_BIND = Bind(tcp=True)


def check_free(bind: str) -> None:
    """Raise SetupFault if nothing can listen there: gunicorn would say so late, and at length."""
    found = _TCP.fullmatch(bind)
    try:
        if found is not None:
            _try_port(found[1], int(found[2]))
        elif bind.startswith("fd://"):
            os.fstat(int(bind.removeprefix("fd://")))
        else:
            _try_path(Path(bind.removeprefix("unix:")))
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise SetupFault(f"{bind} is taken: stop what listens there, or give --bind HOST:PORT") from None
        reason = getattr(error, "strerror", None) or str(error)
        raise SetupFault(f"{bind} cannot be listened on ({reason}): give --bind HOST:PORT") from None


def is_local(bind: str) -> bool:
    """Whether only this machine can come in there, as far as the address tells."""
    found = _TCP.fullmatch(bind)
    if found is None:
        return True  # a socket file, or one that somebody else has opened and answers for
    host = found[1].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _try_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host.strip("[]"), port))


def _try_path(path: Path) -> None:
    """Gunicorn replaces a socket that it finds, so a folder to write in is all that is asked for."""
    if not os.access(path.parent, os.W_OK | os.X_OK):
        path.parent.stat()
        raise PermissionError(errno.EACCES, "its folder cannot be written")
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        raise FileExistsError(errno.EEXIST, "there is a file of that name")
