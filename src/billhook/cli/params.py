"""Types of arguments and options that several commands read, and addresses to listen on."""

from __future__ import annotations

import difflib
import errno
import ipaddress
import math
import os
import re
import socket
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import SplitResult, urlsplit

import click

from billhook.cli.output import UsageConfigError
from billhook.clock import parse_time
from billhook.errors import ConfigError

__all__ = [
    "BIND",
    "DEFAULT_BIND",
    "DELIVERY_ID",
    "TCP_BIND",
    "TEXT",
    "TIME",
    "BindAddress",
    "DefaultGroup",
    "DeliveryIdParam",
    "FiniteNumber",
    "StateParam",
    "TimeParam",
    "Utf8Text",
    "as_json",
    "check_bindable",
    "handlers_argument",
    "is_local",
    "parse_http_url",
    "require_all",
]


F = TypeVar("F", bound=Callable[..., Any])

# click.ParamType is generic from 8.4 on, and 8.2 is enough for all else.


class TimeParam(click.ParamType):  # type: ignore[type-arg]
    """A time: an age (90s, 30m, 2h, 7d, 1w) or ISO 8601, which is UTC without an offset."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return parse_time(value, datetime.now(UTC))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class FiniteNumber(click.FloatRange):
    """A number within limits. NaN is refused here, because click's comparisons let it pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class Utf8Text(click.ParamType):  # type: ignore[type-arg]
    """Text that a database can store: no NUL, and no lone surrogates from an argument that is not UTF-8."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            self.fail("the argument is not valid UTF-8 text", param, ctx)
        return text


class DeliveryIdParam(click.ParamType):  # type: ignore[type-arg]
    """The id of a delivery in the inbox: a positive 64-bit number."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        # isascii: isdecimal accepts digits of other scripts. 20 digits are one more than 2**63 has, and int()
        # refuses a text of thousands of digits with an error of its own.
        if not (text.isascii() and text.isdecimal() and 1 <= int(text[:20]) < 2**63):
            self.fail(
                f"{text!r} is not a delivery id: use the number in the first column of `deliveries list`",
                param,
                ctx,
            )
        return int(text)


class StateParam(click.ParamType):  # type: ignore[type-arg]
    """The state of a delivery: as `deliveries list` shows it, or as it is stored."""

    name = "state"
    shown = (
        "received", "waiting", "paused", "running", "retrying", "done", "dead", "quarantined", "pruned",
        "erased",
    )  # fmt: skip
    stored = ("planned",)
    # What people type who know other queues. A hint and no alias, because some mean two of our states.
    other_words: ClassVar[dict[str, str]] = {
        "failed": "dead, or retrying", "failing": "retrying", "error": "dead, or retrying",
        "pending": "waiting", "queued": "waiting", "due": "waiting", "succeeded": "done", "ok": "done",
        "discarded": "done",
    }  # fmt: skip

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(self.shown)}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if text not in (*self.shown, *self.stored):
            near = difflib.get_close_matches(text.casefold(), self.shown, n=1)
            hint = self.other_words.get(text.casefold()) or "".join(near)
            known = f"did you mean {hint}?" if hint else f"the states are {', '.join(self.shown)}"
            self.fail(f"unknown state {text!r}: {known}", param, ctx)
        return text


TIME = TimeParam()
TEXT = Utf8Text()
DELIVERY_ID = DeliveryIdParam()

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, on stdout.")

handlers_argument = click.argument("handlers", nargs=-1, metavar="[HANDLERS]...")

require_all = click.option(
    "--require-all", is_flag=True, help="Fail (exit code 1) if an event type has no handler."
)


class DefaultGroup(click.Group):
    """A group whose command `default` need not be named: `billhook handlers myshop/billing.py`."""

    default = ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [self.default, *args])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = [each.get_help_record(ctx) for each in self.commands[self.default].get_params(ctx)]
        with formatter.section("Options"):
            formatter.write_dl([each for each in records if each is not None])
        self.format_commands(ctx, formatter)


def parse_http_url(option: str, url: str, example: str = "http://HOST:PORT/PATH") -> SplitResult:
    """Return the parts of an http(s) URL. Raises ConfigError, which repeats none of it: no password."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"{option} is not an http(s) URL: write {example}")
    return parts


DEFAULT_BIND = "127.0.0.1:8000"
"""The address that `billhook serve` listens on and `billhook send` posts to."""
_TCP = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/]*):([0-9]{1,5})")
_OTHER = re.compile(r"unix:\S+|fd://[0-9]{1,9}")


class BindAddress(click.ParamType):  # type: ignore[type-arg]
    """HOST:PORT, unix:PATH or fd://NUMBER, as gunicorn reads them; with `tcp` only HOST:PORT."""

    name = "address"

    def __init__(self, *, tcp: bool) -> None:
        self._tcp = tcp

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        match = _TCP.fullmatch(text)
        if match is None and self._tcp:
            self.fail(f"{text!r} is not HOST:PORT", param, ctx)
        if match is None and not _OTHER.fullmatch(text):
            self.fail(f"{text!r} is neither HOST:PORT nor unix:PATH", param, ctx)
        if match is not None and not 1 <= int(match[2]) <= 65_535:
            self.fail(f"{text!r} has a port that is not a number from 1 to 65535", param, ctx)
        return text


BIND = BindAddress(tcp=False)
TCP_BIND = BindAddress(tcp=True)


def check_bindable(bind: str) -> None:
    """Raise UsageConfigError if nothing can listen there: gunicorn reports that late and at length."""
    match = _TCP.fullmatch(bind)
    try:
        if match is not None:
            _try_port(match[1], int(match[2]))
        elif bind.startswith("fd://"):
            os.fstat(int(bind.removeprefix("fd://")))
        else:
            _try_path(Path(bind.removeprefix("unix:")))
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise UsageConfigError(
                f"{bind} is in use: stop the process that listens there, or give another --bind HOST:PORT"
            ) from None
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageConfigError(f"cannot listen on {bind} ({reason}): give another --bind HOST:PORT") from None


def is_local(bind: str) -> bool:
    """Return whether only this machine can connect, as far as the address shows."""
    match = _TCP.fullmatch(bind)
    if match is None:
        return True  # a socket file, or a descriptor that the parent has opened and is responsible for
    host = match[1].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _try_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As gunicorn binds: without it, connections of a server that just ended make the port look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host.strip("[]"), port))


def _try_path(path: Path) -> None:
    """Check that the folder is writable: gunicorn replaces a socket that it finds."""
    if not os.access(path.parent, os.W_OK | os.X_OK):
        path.parent.stat()  # raises the better error if the folder does not exist
        raise PermissionError(errno.EACCES, "its folder is not writable")
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        raise FileExistsError(errno.EEXIST, "a file with this name exists")
