"""Types of arguments and options that several commands read, and addresses to listen on."""

from __future__ import annotations

import errno
import ipaddress
import math
import os
import re
import socket
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

import click

from billhook.cli.output import UsageConfigError
from billhook.clock import parse_duration, parse_time
from billhook.errors import ConfigError
from billhook.errors.program import in_program

FC = TypeVar("FC", bound="Callable[..., Any] | click.Command")
_LONGEST = 1000


class Parsed(click.ParamType):  # type: ignore[type-arg] # generic from click 8.4 on, and 8.2 is enough
    """A value that `parse` makes of the text; its ValueError says what is wrong."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(in_program(str(error)), param, ctx)


class FiniteNumber(click.FloatRange):
    """A number within limits. NaN is refused here, because click's comparisons let it pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


def _utf8(text: str) -> str:
    # What a database can store: no NUL, and no lone surrogates from an argument that is not UTF-8.
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("the argument is not valid UTF-8 text")
    if len(text) > _LONGEST:
        raise ValueError(f"the argument has {len(text):,} characters, and at most {_LONGEST:,} are taken")
    return text


def _delivery_id(text: str) -> int:
    if not (re.fullmatch("[0-9]{1,19}", text) and 0 < int(text) < 2**63):
        raise ValueError(
            f"{text!r} is not a delivery id: use the number in the first column of "
            f"`billhook deliveries list --search {quote(text)}`"
        )
    return int(text)


TIME = Parsed("time", lambda text: parse_time(text, datetime.now(UTC)))
"""An age (90s, 30m, 2h, 7d, 1w) or ISO 8601, which is UTC without an offset."""
DURATION = Parsed("duration", parse_duration)
TEXT = Parsed("text", _utf8)
DELIVERY_ID = Parsed("id", _delivery_id)
SECRET_FILE = click.Path(dir_okay=False)
"""Not `exists`: its error would show a secret that is given in place of the file's path."""
PATH = click.Path(exists=True, dir_okay=False, path_type=Path)
"""A file, as a Path."""


def flag(names: str, told: str, **more: Any) -> Callable[[FC], FC]:
    """Return an option without a value; `names` as of `option`."""
    return click.option(*names.split(), is_flag=True, help=told, **more)


as_json = flag("--json as_json", "Print JSON, and nothing else, on stdout.")
require_all = flag("--require-all", "Fail (exit code 1) if an event type has no handler.")


def option(names: str, told: str, kind: Any = TEXT, **more: Any) -> Callable[[FC], FC]:
    """Return an option for a text that a database can store, or a value of another `kind`.

    `names` are those of the option, what its value is called in help, and its parameter if that has another
    name: "-n --lines N number". Help shows the default.
    """
    words = names.split()
    value = next((word for word in words if word[0] != "-" and not word.islower()), None)
    named = [word for word in words if word != value]
    shown = "default" in more
    return click.option(*named, type=kind, metavar=value, help=told, show_default=shown, **more)


def moment(name: str, told: str, then: str = "", **more: Any) -> Callable[[FC], FC]:
    """Return an option for a time."""
    return click.option(name, type=TIME, help=f"{told}: an age (2h, 7d) or ISO 8601{then}.", **more)


def integer(name: str, least: int, most: int, default: int, told: str) -> Callable[[FC], FC]:
    """Return an option for an integer within limits, whose help ends with its default."""
    limits = click.IntRange(least, most)
    return click.option(name, type=limits, default=default, show_default=True, help=told)


def paged(what: str, many: str, kind: click.ParamType) -> Callable[[FC], FC]:  # type: ignore[type-arg] # as Parsed
    """Add --limit and --after, which list what there is page by page."""
    limit = integer("--limit", 1, 10_000, 50, f"The highest number of {many}.")
    text = f"Continue after this {what}, the last of the previous page."
    return lambda command: limit(click.option("--after", type=kind, metavar="ID", help=text)(command))


class ShowGroup(click.Group):
    """A group with a command `show`, which an error names where an id was given without a command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if "show" in self.commands and re.fullmatch("[0-9a-f]*[0-9][0-9a-f]*", args[0]):
            ctx.fail(in_program(f"{args[0]} is no command: write `billhook {self.name} show {args[0]}`"))
        return super().resolve_command(ctx, args)


class DefaultGroup(ShowGroup):
    """A group whose command `default` need not be named: `billhook handlers myshop/billing.py`."""

    def __init__(self, *args: Any, default: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # A word is a command, or an argument of the default command if that takes any.
        takes_words = any(isinstance(each, click.Argument) for each in self.commands[self.default].params)
        words = {*self.commands, *ctx.help_option_names}
        named = bool(args) and (args[0] in words or not (takes_words or args[0].startswith("-")))
        return super().parse_args(ctx, args if named else [self.default, *args])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        params = self.commands[self.default].get_params(ctx)
        records = [each.get_help_record(ctx) for each in params if isinstance(each, click.Option)]
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


def _tcp_address(text: str, lowest_port: int = 0) -> str:
    match = _TCP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not HOST:PORT")
    if not lowest_port <= int(match[2]) <= 65_535:
        raise ValueError(f"{text!r} has a port that is not a number from {lowest_port} to 65535")
    return text


def _address(text: str) -> str:
    """Check an address as gunicorn reads it."""
    if _TCP.fullmatch(text):
        return _tcp_address(text, lowest_port=1)
    if _OTHER.fullmatch(text):
        return text
    raise ValueError(f"{text!r} is neither HOST:PORT nor unix:PATH")


BIND = Parsed("address", _address)
TCP_BIND = Parsed("address", _tcp_address)
"""HOST:PORT, of which port 0 stands for any that is free."""


def host_and_port(bind: str) -> tuple[str, int]:
    """Return the parts of HOST:PORT."""
    host, _, port = bind.rpartition(":")
    return host.strip("[]"), int(port)


def listen(bind: str) -> socket.socket:
    """Return a socket that listens on HOST:PORT. Raises UsageConfigError if nothing can listen there."""
    address = host_and_port(bind)
    with reporting_bind_errors(bind):
        return socket.create_server(address, family=socket.AF_INET6 if ":" in address[0] else socket.AF_INET)


def check_bindable(bind: str) -> None:
    """Raise UsageConfigError if nothing can listen there: gunicorn reports that late and at length."""
    with reporting_bind_errors(bind):
        path = Path(bind.removeprefix("unix:"))
        if _TCP.fullmatch(bind):
            listen(bind).close()
        elif bind.startswith("fd://"):
            os.fstat(int(bind.removeprefix("fd://")))
        # The folder has to be writable: gunicorn replaces a socket that it finds.
        elif not os.access(path.parent, os.W_OK | os.X_OK):
            path.parent.stat()  # raises the better error if the folder does not exist
            raise PermissionError(errno.EACCES, "its folder is not writable")
        elif path.exists() and not path.is_socket():
            raise FileExistsError(errno.EEXIST, "a file with this name exists")


@contextmanager
def reporting_bind_errors(bind: str) -> Iterator[None]:
    """Raise UsageConfigError for an OSError of the block."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise UsageConfigError(
                f"{bind} is in use: stop the process that listens there, or give another --bind HOST:PORT"
            ) from None
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageConfigError(f"cannot listen on {bind} ({reason}): give another --bind HOST:PORT") from None


_FIRST_PASSED = 3


def take_passed_sockets(environ: MutableMapping[str, str]) -> dict[int, str]:
    """Return the sockets that systemd opened for this process to listen on: descriptors and addresses.

    As sd_listen_fds(3) has it: the variables are removed, and no child inherits the sockets unasked. Raises
    UsageConfigError if one is no socket to accept connections from, or if a process in between lost them.
    """
    number, process_id = environ.pop("LISTEN_FDS", "0"), environ.pop("LISTEN_PID", "")
    environ.pop("LISTEN_FDNAMES", None)
    if not re.fullmatch("[1-9][0-9]{0,3}", number):
        return {}
    descriptors = range(_FIRST_PASSED, _FIRST_PASSED + int(number))
    if process_id == str(os.getpid()):
        for descriptor in descriptors:
            with suppress(OSError):
                os.set_inheritable(descriptor, False)
        return {descriptor: _passed_address(descriptor) for descriptor in descriptors}
    with suppress(UsageConfigError):  # a variable that an earlier process forgot
        address = _passed_address(_FIRST_PASSED)
        raise ConfigError(
            f"systemd passes {address} to the process {process_id}, which has started this one as another: "
            "start billhook in the place of that process (in a shell with `exec`), or remove the socket unit"
        )
    return {}


def _passed_address(descriptor: int) -> str:
    try:
        with socket.socket(fileno=os.dup(descriptor)) as passed:
            address, family = passed.getsockname(), passed.family
            listens = passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise UsageConfigError(
            f"the descriptor {descriptor} of LISTEN_FDS is no socket ({error.strerror}): "
            "use ListenStream= in the socket unit"
        ) from None
    if not listens or family not in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
        raise UsageConfigError(
            f"the socket {descriptor} of LISTEN_FDS accepts no connections for HTTP: use ListenStream= with "
            "an address or a path in the socket unit, and Accept=no"
        )
    if family == socket.AF_UNIX:
        return "unix:" + os.fsdecode(address).replace("\0", "@")
    host, port = address[:2]
    return f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"


def is_local(bind: str) -> bool:
    """Return whether only this machine can connect, as far as the address shows."""
    if not _TCP.fullmatch(bind):
        return True  # a socket file, or a descriptor that the parent has opened and is responsible for
    host, _ = host_and_port(bind)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
