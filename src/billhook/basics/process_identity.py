"""Which process a worker was, and whether it has ended: a process id alone proves neither.

Two containers have a process 1 each, and a pod that is started again has the same host name and the same
ids. So an id is compared only where it means the same: since one boot of a machine, in one namespace of
process ids. There a process that has the id but started at another time is another one.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat after the command's name; see proc_pid_stat(5)."""
_HAS_ENDED = "ZX"
"""The states of a zombie, for which its parent has not waited, and of a process that is going."""


class ProcessIdentity(NamedTuple):
    """A process: its id, where that id is valid, and when it started, in clock ticks since the boot.

    `pid_space` is None where the system does not say, as outside Linux: then nothing is proven by the id. The
    number of a namespace may be reused once all its processes have ended, which is no less a proof.
    """

    pid: int
    pid_space: str | None = None
    pid_ticks: int | None = None

    @classmethod
    def of(cls, text: str) -> ProcessIdentity | None:
        """Return the process of a text that `str` made, if it ran where this process runs; else None."""
        pid, _, place = text.partition("@")
        space, _, ticks = place.rpartition("/")
        is_here = bool(space) and space == own_process().pid_space
        return cls(int(pid), space, int(ticks)) if is_here else None

    def __str__(self) -> str:
        """Return it as a text without blanks."""
        return f"{self.pid}@{self.pid_space or ''}/{self.pid_ticks or ''}"

    def has_ended(self) -> bool:
        """Return whether it is proven that this process, of the caller's own `pid_space`, has ended."""
        if self.pid == os.getpid():
            return self.pid_ticks is not None and self.pid_ticks != own_process().pid_ticks
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # of another user
        with suppress(OSError, ValueError):  # it may be hidden
            state, ticks = _read_stat(self.pid)
            return state in _HAS_ENDED or (self.pid_ticks is not None and self.pid_ticks != ticks)
        return False


def own_process() -> ProcessIdentity:
    """Return the identity of this process."""
    pid = os.getpid()
    with suppress(OSError, ValueError):
        # A namespace may see the files of the processes of another one.
        if Path("/proc/self").readlink() == Path(str(pid)):
            space = f"{_boot()}/{Path('/proc/self/ns/pid').stat().st_ino}"
            return ProcessIdentity(pid, space, _read_stat(pid)[1])
    return ProcessIdentity(pid)


def _boot() -> str:
    """Return what names this boot of this machine."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    # Hidden by systemd's ProcSubset=pid. A clock that is set changes the moment: then nothing is proven.
    booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return f"{socket.gethostname()}-{booted_at:.0f}"


def _read_stat(pid: int) -> tuple[str, int]:
    # The name of its command, in brackets, may have spaces and brackets itself.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[_STATE], int(fields[_STARTED])
