"""That the inbox cannot be read, and that it can be again: told without it, once per machine and outage.

A small file of each inbox says since when it is so, and which addresses have been told; the process that
holds its lock sends. It lies in the first of some folders that this process may write; without any, each
process tells for itself.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from billhook.basics.printable import first_line
from billhook.errors import Draining, InboxUnavailable, OutOfResources, SchemaMismatch
from billhook.errors.program import program
from billhook.inbox.watching.notifications import AddressState
from billhook.logs import fields
from billhook.notify.addresses import NotifyAddress
from billhook.notify.messages import Writer

logger = logging.getLogger("billhook.notify")

TOLD_AFTER = timedelta(seconds=45)
"""How long the inbox cannot be read before a message is sent: a server may start anew meanwhile."""
_FILE_BYTES = 4_096
"""The size of the file from its first moment: when the disk is full, what it says can still be changed."""
RUNBOOK = "the-inbox-cannot-be-read"


def is_outage(error: BaseException) -> bool:
    """Return whether an error says that the inbox cannot be read, not that this process lacks something."""
    return isinstance(error, InboxUnavailable | SchemaMismatch) and not isinstance(
        error, OutOfResources | Draining
    )


def state_folders(inbox_url: str, notify_file: str) -> list[Path]:
    """Return where the file may lie: in systemd's folder, beside a SQLite inbox, beside the addresses."""
    named = [Path(one) for one in os.environ.get("STATE_DIRECTORY", "").split(":") if one]
    beside = [] if "://" in inbox_url else [Path(inbox_url).parent]
    return [*named, *beside, Path(notify_file).parent]


class OutageNotifier:
    """Tells the addresses, from the thread that calls it."""

    def __init__(
        self, addresses: Sequence[NotifyAddress], writer: Writer, inbox_url: str, folders: Sequence[Path]
    ) -> None:
        """`inbox_url` is the inbox's name as it is shown, without credentials."""
        self._addresses = addresses
        self._writer = writer
        self._inbox_url = inbox_url
        name = f"billhook-outage-{hashlib.sha256(inbox_url.encode()).hexdigest()[:16]}"
        self._paths = [folder / name for folder in folders]
        self._memory: dict[str, Any] = {}
        self._refusals: dict[int, AddressState] = {}
        self._refused: set[Path] = set()

    def unreadable(self, error: BaseException) -> None:
        """Tell the addresses that the inbox cannot be read, once that has lasted for some time."""
        with self._state(create=True) as state:
            if state is None:
                return
            now = datetime.now(UTC)
            if state.pop("ended", None) is not None or "since" not in state:
                state["since"] = now.isoformat()
            since = datetime.fromisoformat(state["since"])
            told = state.setdefault("told", [])
            if now - since < TOLD_AFTER:
                return
            body = [
                f"{self._inbox_url} cannot be read since {since:%Y-%m-%d %H:%M:%S} UTC:",
                first_line(str(error)),
                "Deliveries are answered 503 and come again; no handler runs.",
                "",
                f"{program()} doctor",
                f"{program()} runbook {RUNBOOK}",
            ]
            title = self._writer.title("the inbox cannot be read", "critical")
            for address in self._addresses:
                if address.number not in told and self._send(address, title, body, good=False):
                    told.append(address.number)

    def readable(self) -> None:
        """Tell those who know of an outage that it is over."""
        with self._state(create=False) as state:
            if not state:
                return
            now = datetime.now(UTC)
            since = datetime.fromisoformat(state["since"])
            ended = datetime.fromisoformat(state.setdefault("ended", now.isoformat()))
            title = self._writer.title("the inbox can be read again")
            times = f"from {since:%Y-%m-%d %H:%M:%S} to {ended:%Y-%m-%d %H:%M:%S} UTC"
            body = [f"{self._inbox_url} could not be read {times}."]
            by_number = {one.number: one for one in self._addresses}
            for number in list(state["told"]):
                if number not in by_number or self._send(by_number[number], title, body, good=True):
                    state["told"].remove(number)
            if not state["told"]:
                state.clear()

    def _send(self, address: NotifyAddress, title: str, body: Sequence[str], *, good: bool) -> bool:
        now = datetime.now(UTC)
        state = self._refusals.get(address.number, AddressState())
        if state.is_waiting(now):
            return False
        why = address.send(title, "\n".join(body), good=good)
        if why is None:
            self._refusals.pop(address.number, None)
            return True
        self._refusals[address.number] = state.refused(now)
        text = "could not notify the address on line %d (%s) of an outage, to be tried again: %s"
        logger.warning(text, address.number, address.name, why, extra=fields(cause="notify"))
        return False

    @contextmanager
    def _state(self, *, create: bool) -> Iterator[dict[str, Any] | None]:
        """Give the state to read and change; None while another process has it."""
        descriptor = self._open(create=create)
        if descriptor is None:
            yield self._memory
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            before = _text(descriptor)
            state = _parsed(before)
            if not state:  # as no folder could be written before
                state |= self._memory
                self._memory.clear()
            yield state
            after = json.dumps(state) if state else ""
            if after != before:
                os.pwrite(descriptor, after.ljust(_FILE_BYTES).encode(), 0)
        finally:
            os.close(descriptor)

    def _open(self, *, create: bool) -> int | None:
        """Open the file that has a state, in whichever folder; without any the first, or else make one."""
        found = [one for path in self._paths if (one := self._try(path, create=False)) is not None]
        chosen = next((one for one in found if _text(one)), found[0] if found and not create else None)
        for one in found:
            if one != chosen:
                os.close(one)
        if chosen is None and create:
            made = (self._try(path, create=True) for path in self._paths)
            chosen = next((one for one in made if one is not None), None)
        return chosen

    def _try(self, path: Path, *, create: bool) -> int | None:
        try:
            return _open(path, create=create)
        except FileNotFoundError:
            return None
        except OSError as error:
            if path not in self._refused:
                self._refused.add(path)
                text = "%s cannot keep the state of an outage: %s"
                logger.warning(text, path, error.strerror, extra=fields(cause=error))
            return None


def _open(path: Path, *, create: bool) -> int:
    """Open a file of this user's own; one that was planted, such as a link, is refused. Raises OSError."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    descriptor = os.open(path, flags, 0o600)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1:
        if create:
            _allocate(descriptor, path)
        return descriptor
    os.close(descriptor)
    raise PermissionError(errno.EPERM, "it is no file of this user's own")


def _text(descriptor: int) -> str:
    return os.pread(descriptor, _FILE_BYTES, 0).decode(errors="replace").rstrip()


def _allocate(descriptor: int, path: Path) -> None:
    """Take the disk's space for the whole file. Raises OSError if there is none, and leaves no file then."""
    if os.fstat(descriptor).st_size < _FILE_BYTES and hasattr(os, "posix_fallocate"):  # macOS has none
        try:
            os.posix_fallocate(descriptor, 0, _FILE_BYTES)
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise


def _parsed(text: str) -> dict[str, Any]:
    """Return the state in a file; nothing if a process died while it wrote."""
    try:
        state = json.loads(text)
        datetime.fromisoformat(state["since"])
        return {name: state[name] for name in ("since", "told", "ended") if name in state}
    except (ValueError, KeyError, TypeError):
        return {}
