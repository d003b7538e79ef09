"""A server's system calls, recorded and read back with all the bytes that it wrote."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from support.postgres import unavailable
from support.processes import run_command

CALLS = "openat,pwrite64,write,pwritev,ftruncate,fallocate,fsync,fdatasync,unlink,rename,sendto,sendmsg"


@functools.cache
def _works() -> str | None:
    """Why there is no tracing here; None where there is."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = run_command(["strace", "-f", "--seccomp-bpf", "true"])
    return None if tried.returncode == 0 else f"strace does not work here: {tried.stderr.strip()[-100:]}"


def needs_strace() -> None:
    """Skip the test where nothing can be traced."""
    reason = _works()
    if reason is not None:
        unavailable(reason)


def recording(log: Path, *more: str) -> list[str]:
    """What to put before a command to have its calls recorded in a file."""
    options = ["-f", "--seccomp-bpf", "-yy", "-xx", "-s", "300000", "-o", str(log), "-e", f"trace={CALLS}"]
    return ["strace", *options, *more]


class Event(NamedTuple):
    """A call that begins (`result` is None) or ends."""

    thread: int
    name: str
    arguments: str
    result: int | None

    @property
    def path(self) -> str:
        """The path behind the descriptor that is the first argument; empty for other descriptors."""
        found = re.match(r"\d+<((?:\\x[0-9a-f]{2})+)>", self.arguments)
        return _plain(found[1]).decode() if found else ""

    @property
    def data(self) -> bytes:
        """The first string among the arguments."""
        found = re.search(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?', self.arguments)
        assert found is not None, self.arguments[:200]
        assert found[2] is None, "strace has cut a string"
        return _plain(found[1])

    @property
    def last(self) -> int:
        """The last argument, a number."""
        return int(self.arguments.rpartition(", ")[2])

    @property
    def peer_port(self) -> int | None:
        """The port at the other end of the TCP connection that is the first argument."""
        found = re.match(r"\d+<TCP:\[[^\]]*->[^\]]*:(\d+)\]>", self.arguments)
        return int(found[1]) if found else None


def _plain(hexadecimal: str) -> bytes:
    r"""The bytes of \x41\x42."""
    return bytes.fromhex(hexadecimal.replace("\\x", ""))


_RESULT = r"\) += (-?\d+)(?:<.*>| .*)?$"
_WHOLE = re.compile(r"(\d+) +(\w+)\((.*)" + _RESULT)
_BEGUN = re.compile(r"(\d+) +(\w+)\((.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>(.*)" + _RESULT)


def events(log: Path) -> Iterator[Event]:
    """The calls in the order in which they began and ended; one that never ended only began."""
    begun: dict[int, str] = {}
    with log.open(encoding="ascii") as lines:
        for line in lines:
            text = line.rstrip("\n")
            if found := _WHOLE.match(text):
                yield Event(int(found[1]), found[2], found[3], None)
                yield Event(int(found[1]), found[2], found[3], int(found[4]))
            elif found := _BEGUN.match(text):
                begun[int(found[1])] = found[3]
                yield Event(int(found[1]), found[2], found[3], None)
            elif found := _RESUMED.match(text):
                arguments = begun.pop(int(found[1]), "") + found[3]
                yield Event(int(found[1]), found[2], arguments, int(found[4]))


class Leaving(NamedTuple):
    """A 200 about to leave: the answer to which request of which connection, by its other end's port."""

    port: int
    number: int


class Answers:
    """Sees the answers of 200 in a trace, at the moment before each leaves."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def leaving(self, event: Event) -> Leaving | None:
        """If the event is such a moment: of which request."""
        if event.name not in ("sendto", "sendmsg") or event.result is not None:
            return None
        port = event.peer_port
        if port is None or not event.data.startswith(b"HTTP/1.1 200 "):
            return None
        number = self._counts.get(port, 0)
        self._counts[port] = number + 1
        return Leaving(port, number)
