"""Decide what this process plans and claims, and what it leaves to the processes with the newest handlers.

Deployments run old code beside new. What a delivery gets is decided by the newest list of handlers of live
processes (see inbox.running.handler_lists): a process plans the deliveries that get the same by its own
list, and leaves the others. It claims runs of handlers that it has, and of those that no live process has.

     0 s  a delivery comes that the newest list plans otherwise: this process does not read it
     1 s  a process that has the newest list plans it
    60 s  none has, though the delivery waits: it hangs, is full, or dies again and again. Those that are
          there plan, until one with the newest list plans again; what they planned is an issue
"""

from __future__ import annotations

import os
import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from operator import itemgetter

from billhook.basics.concurrency import reset_in_child, unique_process_name
from billhook.basics.engine_kinds import INLINE
from billhook.basics.type_names import is_reading, types_read
from billhook.engines.reporting import PlannedDelivery
from billhook.errors import BillhookError
from billhook.events import EVENT_TYPES
from billhook.handlers import ConnectedHandlers, Handler
from billhook.inbox import Inbox, NextTimes, WorkerRecord
from billhook.inbox.running.due import Unread
from billhook.inbox.running.handler_lists import (
    EVERY_TYPE,
    UNKNOWN_TYPES,
    HandlerList,
    Lacking,
    ListNote,
    LiveList,
    TypeFilter,
)

PATIENCE = timedelta(seconds=60)
"""How long the newest list may leave deliveries waiting; then the next one has as long."""
NOTE_EVERY = timedelta(seconds=20)
"""The time between two notes that this process has planned, or without a worker that it is alive."""


def read_list(handlers: ConnectedHandlers) -> HandlerList:
    """Return the list of the handlers that are connected now, in this process."""
    by_type: dict[str, dict[str, Sequence[str]]] = {}
    aliases: dict[str, Sequence[str]] = {}
    ordered: dict[str, str] = {}
    for event_type in (*EVENT_TYPES, UNKNOWN_TYPES):
        named = handlers.by_name(event_type, unique=False)
        by_type[event_type] = _sources(named.values())
        aliases |= {name: handler.aliases for name, handler in named.items()}
        ordered |= {name: each.ordered_by for name, each in named.items() if each.ordered_by is not None}
    return HandlerList(by_type, aliases, ordered)


def _sources(handlers: Iterable[Handler]) -> dict[str, Sequence[str]]:
    return {handler.name: tuple(handler.sources or ()) for handler in handlers}


class NewestList:
    """What this process may plan and claim, by its own list of handlers and those of other live processes.

    One for each app and process; several threads may use it.
    """

    def __init__(self, inbox: Inbox, handlers: ConnectedHandlers) -> None:
        self._inbox = inbox
        self._handlers = handlers
        self.own: HandlerList | None = None
        """The list as it was written last; None before that, when nothing may be planned."""
        self.number: int | None = None
        """The number of that list."""
        self._compared: dict[str, list[Handler]] = {}
        """The handlers of event types that are those of the list, as they were found last."""
        self.is_stale = False
        """Whether handlers were connected or dropped since it was written."""
        self.types: TypeFilter = EVERY_TYPE
        """The event types that this process plans; the others it leaves."""
        self._passed: list[tuple[LiveList, TypeFilter]] = []
        """Newer lists that have not planned for too long, and the types that this process plans alike."""
        self._stalled: dict[int, datetime | None] = {}
        """When each of them planned last, by its number. Until that changes, nothing is left to that list."""
        self._ahead: dict[int, tuple[list[datetime], datetime]] = {}
        """By the numbers of newer lists, times later than now, and when this process found them first."""
        self._others: Sequence[LiveList] = ()
        self._readings: Mapping[str, datetime] = {}
        """Since when readings are due, by their names, as the last poll has found."""
        self._has_looked = False
        self.wants_look = False
        """Whether runs were left of which it is not known yet whether another process has the handler."""
        self.read_at: datetime | None = None
        """When this process last read what it plans, since it wrote its row; it may have found nothing."""
        self._noted_at: datetime | None = None
        self._seen_at: datetime | None = None
        self._writing = threading.Lock()
        self._owner = ""
        reset_in_child(self._reset_in_child)

    def _reset_in_child(self) -> None:
        # The list is the parent's, and so is the row that says that a process with it is alive.
        self._writing, self._owner, self._seen_at = threading.Lock(), "", None

    def read(self) -> HandlerList:
        """Return the list of the handlers that are connected now."""
        return read_list(self._handlers)

    def record(self, own: HandlerList, number: int | None) -> None:
        """Record that the list was written under a number."""
        self.own, self.number, self.is_stale, self.read_at = own, number, False, None
        self._compared = {}

    def require(self, now: datetime, *, is_worker: bool) -> bool:
        """Write the list before the first plan, where no worker registers itself; and when it has changed.

        Returns whether it was written.

        Unless this is a process of a worker that does (`is_worker`), the process counts as alive for a minute
        from each use on. Raises InboxUnavailable.
        """
        seen_at = self._seen_at
        # Nor if the clock was set back.
        is_seen = seen_at is not None and timedelta(0) <= now - seen_at < NOTE_EVERY
        if self.own is not None and not self.is_stale and (is_worker or is_seen):
            return False
        with self._writing:
            own = self.read()
            if is_worker:
                self.record(own, self._inbox.record_list(own, now))
                return True
            self._owner = self._owner or unique_process_name()
            record = WorkerRecord(
                self._owner, INLINE.name, len(own.names), now, host=socket.gethostname(), pid=os.getpid()
            )
            self.record(own, self._inbox.record_worker(record, now, own))
            self._seen_at = now
            return True

    def stop(self) -> None:
        """Record that this process is not alive any more, if `require` has recorded that it is."""
        if self._owner:
            owner, self._owner, self._seen_at = self._owner, "", None
            with suppress(BillhookError):  # it counts as alive for a minute then
                self._inbox.record_stop(owner)

    def connected(self, event_type: str) -> list[Handler]:
        """Return the handlers of an event type; set `is_stale` if they are not those that were written."""
        handlers = [*self._handlers.by_name(event_type, unique=False).values()]
        if self.own is not None and self._compared.get(event_type) != handlers:
            if self.own.of_type(event_type) == _sources(handlers):
                self._compared[event_type] = handlers
            else:
                self.is_stale = True
        return handlers

    def own_of(self, unread: Unread, times: NextTimes, now: datetime) -> tuple[Unread, NextTimes, bool]:
        """Leave out what other processes plan or claim, of what was read from the inbox for `types`.

        Returns also whether another read may find deliveries that this process plans.
        """
        types, self._has_looked = self.types, False
        # Those that were lost with their workers are read again like the others.
        due = sorted((*times.due.items(), *times.suspects.items()), key=itemgetter(1), reverse=True)
        self._readings = {name: at for name, at in due if is_reading(name)}
        # Without unread deliveries it is not known; only what is to be read goes by it then.
        is_newest = (
            not self._readings if unread.newest_list is None else unread.newest_list <= (self.number or 0)
        )
        leaves_some = types != EVERY_TYPE or self._passed
        if is_newest and not (leaves_some or self.wants_look) and self.own_times(times) is times:
            return unread, times, False
        # After the snapshot that the deliveries are from.
        self.look(now)
        kept = [each for each in unread.deliveries if self.types.has(each.event_type)]
        return unread._replace(deliveries=kept), self.own_times(times), self.types != types

    def look(self, now: datetime) -> None:
        """Read the lists of live processes, and decide which event types are left to them."""
        live = self._inbox.live_lists(now)
        self._has_looked, self.wants_look = True, False
        self._others = [each for each in live if each.number != self.number]
        numbers = {each.number for each in live}
        self._stalled = {number: at for number, at in self._stalled.items() if number in numbers}
        self._ahead = {number: found for number, found in self._ahead.items() if number in numbers}
        types = EVERY_TYPE
        passed: list[tuple[LiveList, TypeFilter]] = []
        for each in live:
            if self.own is None or each.number <= (self.number or 0):
                break
            if each.is_held:  # it has its handlers, and their runs are not claimed here, but plans nothing
                continue
            alike = self.own.plans_as(each.handlers)
            if alike == EVERY_TYPE:
                break
            if not self._is_stalled(each, alike, now, PATIENCE * (len(passed) + 1)):
                types = alike
                break
            passed.append((each, alike))
        self.types, self._passed = types, passed

    def _is_stalled(self, newer: LiveList, alike: TypeFilter, now: datetime, patience: timedelta) -> bool:
        """Return whether deliveries left to a list wait too long, and no process of it has planned."""
        if newer.number in self._stalled and self._stalled[newer.number] == newer.planned_at:
            return True
        self._stalled.pop(newer.number, None)
        moments = [self._inbox.waits_since(alike)]
        moments += [at for name, at in self._readings.items() if at <= now and not _has_all(alike, name)]
        waits_since = min((at for at in moments if at is not None), default=None)
        if waits_since is None:
            return False
        times = [at for at in (waits_since, newer.live_since, newer.planned_at) if at is not None]
        # Of before a clock was set back: they count from when this process has found them.
        known, found_at = self._ahead.get(newer.number, ([], now))
        if known == times or max(times) > now:
            found_at = min(found_at, now) if known == times else now
            self._ahead[newer.number] = times, found_at
            times = [min(at, found_at) for at in times]
        if now - max(times) < patience:
            return False
        self._stalled[newer.number] = newer.planned_at
        return True

    def own_times(self, times: NextTimes) -> NextTimes:
        """Return the times of the runs that this process may claim; the same object if it may claim all."""
        own = frozenset() if self.own is None else self.own.stored_names
        # No process has readings: they go by the types.
        foreign = any(not is_reading(name) for name in (times.due.keys() | times.suspects.keys()) - own)
        return times.of(self.may_claim) if foreign or self.types != EVERY_TYPE else times

    def may_claim(self, stored_name: str) -> bool:
        """Return whether this process claims runs of a name: its own handler's, or no live process's."""
        if is_reading(stored_name):
            return self.may_read(stored_name)
        if self.own is None or stored_name in self.own.stored_names:
            return True
        return self._is_of_no_one(lambda others: stored_name in others.stored_names)

    def may_read(self, stored_name: str) -> bool:
        """Return whether this process claims the readings of a name: if it plans all their event types."""
        return _has_all(self.types, stored_name)

    def may_call(self, stored_name: str, event_type: str) -> bool:
        """Return whether this process claims a run of a name that it may claim, for an event type."""
        if self.own is None or is_reading(stored_name) or self.own.calls(stored_name, event_type):
            return True
        # One that no live process has fails here.
        return self._is_of_no_one(lambda others: others.calls(stored_name, event_type))

    def _is_of_no_one(self, having: Callable[[HandlerList], bool]) -> bool:
        """Return whether no other live process has it. False until the lists were read, which it asks for."""
        self.wants_look |= not self._has_looked
        return self._has_looked and not any(having(each.handlers) for each in self._others)

    @property
    def others_differ(self) -> bool:
        """Whether live processes have other lists of handlers, as the last look has found."""
        return bool(self._others)

    def note(
        self, planned: Iterable[PlannedDelivery], planned_here: Iterable[int], now: datetime
    ) -> ListNote | None:
        """Return what is to be recorded in the inbox about a plan; None for nothing."""
        missed = self._lacking(planned, planned_here) if self._passed else {}
        noted_at = self._noted_at
        is_noted = noted_at is not None and timedelta(0) <= now - noted_at < NOTE_EVERY
        number = None if is_noted else self.number
        return None if number is None and not missed else ListNote(number, now, missed)

    def _lacking(
        self, planned: Iterable[PlannedDelivery], planned_here: Iterable[int]
    ) -> Mapping[int, Lacking]:
        """Return what was planned in the place of newer lists, by their numbers."""
        ours, numbers = {*planned_here}, Counter[int]()
        names: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for plan, stored, _ in planned:
            event_type = stored.event_type
            if any(map(is_reading, plan.handlers)):
                continue  # it is planned when it is read
            for newer, alike in self._passed:
                if plan.delivery_id in ours and not alike.has(event_type):
                    numbers[newer.number] += 1
                    wanted = newer.handlers.of_type(event_type).items()
                    its_own = {name for name, sources in wanted if not sources or stored.source in sources}
                    names[newer.number].update(its_own - {*plan.handlers})
                    break
        return {number: Lacking(count, names[number]) for number, count in numbers.items()}

    def noted(self, note: ListNote) -> None:
        """Record that the note is committed: the next one is due later."""
        if note.number is not None:
            self._noted_at = note.at


def _has_all(types: TypeFilter, reading: str) -> bool:
    """Return whether these types include all that the readings of a name read."""
    return all(map(types.has, types_read(reading)))
