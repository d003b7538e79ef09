"""A file system that is full when a test fills it, and a receiver whose inbox is on it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from support.acceptance.stack import STANDALONE, Process, Stack, stack_on
from support.postgres import unavailable
from support.processes import run_command

DEADLINE = {"BILLHOOK_DEADLINE_SECONDS": "1"}
SMALL_BYTES = 4 * 1024 * 1024


class SmallDisk:
    """A small file system that only a server and its children have, and that ends with them."""

    def __init__(self, folder: Path, size_bytes: int = SMALL_BYTES) -> None:
        self._size_bytes = size_bytes
        self.folder = folder / "small"
        self.folder.mkdir()
        self._scratch = folder / "copy"
        mount = f'mount -t tmpfs -o size={size_bytes} none "{self.folder}" && exec "$@"'
        self.wrap = ["unshare", "-rm", "sh", "-c", mount, "sh"]
        if shutil.which("unshare") is None:
            unavailable("no file system can be mounted: unshare is not installed")
        tried = run_command([*self.wrap, "true"])
        if tried.returncode:
            unavailable(f"no file system can be mounted here: {tried.stderr.strip()}")

    def seen_by(self, server: Process) -> Path:
        """The folder, from outside."""
        return Path(f"/proc/{server.pid}/root{self.folder}")

    def enter(self, server: Process) -> list[str]:
        """What stands before a command that is to see the file system too."""
        return ["nsenter", "-t", str(server.pid), "-U", "-m", "--preserve-credentials"]

    def fill(self, server: Process, most_bytes: int | None = None) -> Path:
        """Take what room there is, or so much of it; returns the file to remove for having it again."""
        ballast = self.seen_by(server) / "ballast"
        with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as output:
            for _ in range((most_bytes or self._size_bytes) // 4096):
                output.write(bytes(4096))
        return ballast

    def copy(self, server: Process) -> Path:
        """The inbox as it is there now."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir()
        for name in ("billhook.db", "billhook.db-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(self.seen_by(server) / name, self._scratch / name)
        return self._scratch / "billhook.db"


@contextlib.contextmanager
def small_disk(folder: Path, app: str = STANDALONE) -> Iterator[tuple[Stack, Process, SmallDisk]]:
    """A receiver on a small disk, which is empty but for its inbox."""
    disk = SmallDisk(folder)
    url = f"sqlite:///{disk.folder}/billhook.db"
    with stack_on(folder, url, BILLHOOK_ENGINE="thread", **DEADLINE) as stack:
        yield stack, stack.start_web(app, wrap=disk.wrap), disk
