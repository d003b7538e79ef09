"""What a power cut would leave of a folder, from the trace of all who write there.

The model is stricter than any disk. What was not synced is gone, or there in part; a file has its name only
once its folder was synced; after a sync that failed, what it was to write stays unwritten for good.
"""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from support.acceptance.system_calls import Answers, Event, events

SECTOR = 512
NOT_KEPT = ("-shm", "-lock")
"""Files that hold nothing, or nothing that outlives the processes."""


class Write(NamedTuple):
    """Bytes at an offset; None truncates there."""

    offset: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        """Do it to a file's content."""
        if self.data is None:
            del content[self.offset :]
        content.extend(bytes(max(0, self.offset - len(content))))
        if self.data is not None:
            content[self.offset : self.offset + len(self.data)] = self.data


@dataclass(eq=False)
class File:
    """One file: as everybody sees it, as the disk has it, and the writes that lie between."""

    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write] = field(default_factory=list)
    syncing: dict[int, list[Write]] = field(default_factory=dict)

    def write(self, write: Write) -> None:
        """A write that has returned."""
        write.apply(self.seen)
        self.pending.append(write)

    def sync_ends(self, thread: int, ok: bool) -> None:
        """What was written before it began is on the disk; if it failed, the kernel has forgotten that."""
        covered = self.syncing.pop(thread)
        done = {id(write) for write in covered}
        for write in self.pending:
            if ok and id(write) in done:
                write.apply(self.durable)
        self.pending = [write for write in self.pending if id(write) not in done]

    def found(self, chance: random.Random | None) -> bytes:
        """What the disk gives back; with a `chance`, some unsynced writes are there too, whole or torn."""
        content = bytearray(self.durable)
        for write in self.pending if chance else ():
            fate = chance.random()
            if fate < 0.4:
                write.apply(content)
            elif fate < 0.6 and write.data is not None:
                kept = SECTOR * chance.randrange(len(write.data) // SECTOR + 1)
                Write(write.offset, write.data[:kept]).apply(content)
        return bytes(content)


class Disk:
    """The files of one folder, which was empty when the trace began."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self.names: dict[str, File] = {}
        self._durable_names: dict[str, File] = {}
        self._syncing: dict[int, dict[str, File]] = {}
        self.syncs = 0

    def take(self, event: Event) -> None:
        """Follow one event; those of other folders change nothing."""
        if event.name in ("fsync", "fdatasync"):
            self._sync(event)
        elif event.result is None or event.result < 0:
            return
        elif event.name == "openat" and "O_CREAT" in event.arguments:
            name = self._name(event.data.decode())
            if name is not None:
                self.names.setdefault(name, File())
        elif event.name == "unlink":
            self.names.pop(self._name(event.data.decode()) or "", None)
        elif event.name not in ("sendto", "sendmsg", "openat"):
            self._write(event)

    def _write(self, event: Event) -> None:
        file = self.names.get(self._name(event.path) or "")
        if file is None:
            return
        assert event.name in ("pwrite64", "ftruncate"), f"the model knows no {event.name}"
        data = event.data[: event.result] if event.name == "pwrite64" else None
        file.write(Write(event.last, data))

    def _sync(self, event: Event) -> None:
        file = self.names.get(self._name(event.path) or "")
        if event.result is not None:
            self.syncs += 1
        if event.path == self._folder:
            if event.result is None:
                self._syncing[event.thread] = dict(self.names)
            elif event.result == 0:
                self._durable_names = self._syncing.pop(event.thread)
        elif file is not None:
            if event.result is None:
                file.syncing[event.thread] = list(file.pending)
            else:
                file.sync_ends(event.thread, event.result == 0)

    def _name(self, path: str) -> str | None:
        folder, _, name = path.rpartition("/")
        return name if folder == self._folder else None

    def leave(self, folder: Path, chance: random.Random | None = None) -> None:
        """Write into `folder` what is found when the power is back."""
        names = chance.choice([self.names, self._durable_names]) if chance else self._durable_names
        for name, file in names.items():
            if not name.endswith(NOT_KEPT):
                (folder / name).write_bytes(file.found(chance))

    def seen(self) -> dict[str, bytes]:
        """What the files hold for whoever reads them while the power is on."""
        return {name: bytes(file.seen) for name, file in self.names.items() if not name.endswith(NOT_KEPT)}


def keys_in(folder: Path, name: str) -> set[str]:
    """The keys of the deliveries that SQLite finds in a folder, which it empties; none without an inbox."""
    try:
        with closing(sqlite3.connect(f"file:{folder / name}?mode=rw", uri=True)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            return {key for (key,) in connection.execute("SELECT key FROM delivery")}
    except sqlite3.OperationalError:
        return set()
    finally:
        for file in folder.iterdir():
            file.unlink()


@dataclass
class Cuts:
    """What came of cutting the power at each 200: keys that were answered and then gone."""

    disk: Disk
    count: int = 0
    missing: set[str] = field(default_factory=set)
    missing_by_chance: set[str] = field(default_factory=set)


def cut_at_each_answer(log: Path, inbox: Path, sent: dict[int, list[str]], scratch: Path, seed: int) -> Cuts:
    """Cut the power before each 200 leaves, twice: with nothing unsynced kept, and with some of it.

    `sent` has the keys of the deliveries that were answered 200, by the sender's port, in order.
    """
    cuts, answers, chance = Cuts(Disk(inbox.parent)), Answers(), random.Random(seed)
    answered: set[str] = set()
    seen, kept = -1, set()
    for event in events(log):
        leaving = answers.leaving(event)
        if leaving is not None and leaving.port in sent:
            answered.add(sent[leaving.port][leaving.number])
            if seen != cuts.disk.syncs:  # else the disk is as it was at the last cut
                cuts.disk.leave(scratch)
                seen, kept = cuts.disk.syncs, keys_in(scratch, inbox.name)
            cuts.missing |= answered - kept
            cuts.disk.leave(scratch, chance)
            cuts.missing_by_chance |= answered - keys_in(scratch, inbox.name)
            cuts.count += 1
        cuts.disk.take(event)
    return cuts
