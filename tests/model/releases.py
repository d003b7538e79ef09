"""Several releases at once: what a process plans, and what it leaves to those with the newest handlers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from model.records import ANY, UNKNOWN, Delivery, Handler, Process, Shared

PATIENCE = timedelta(seconds=60)
NOTED_EVERY = timedelta(seconds=20)
Gets = frozenset[tuple[str, tuple[str, ...], str | None]]


class Lists:
    """The lists of handlers: which was first seen last, and which are waited for no more."""

    def __init__(self) -> None:
        self._waits_since: dict[int, datetime] = {}
        """Of what came, by its time, later than a clock was set back to: it waits since then."""
        self._handlers: list[Sequence[Handler]] = []
        self._passed: set[tuple[Shared, int]] = set()

    def number(self, handlers: Sequence[Handler]) -> int:
        """Return the number of a list, the same for equal lists; it is given one when it is first seen."""
        numbers = [n for n, each in enumerate(self._handlers) if _content(each) == _content(handlers)]
        if not numbers:
            self._handlers.append(handlers)
        return numbers[0] if numbers else len(self._handlers) - 1

    def set_back(self, unread: Iterable[Delivery], now: datetime) -> None:
        """Note that a clock was set back to this time."""
        for each in unread:
            if each.received > now:
                self._waits_since[each.id] = min(now, self._waits_since.get(each.id, now))

    def decides_otherwise(
        self,
        process: Process,
        processes: Collection[Process],
        delivery: Delivery,
        unread: Collection[tuple[Delivery, datetime]],
        now: datetime,
    ) -> bool:
        """Return whether a process has to leave a delivery to those with a newer list.

        It gets something else by that, and has not waited for it for a minute; or something waited, and no
        process with that list has planned since. What is `unread` waits, and what a due run is to read.
        """
        for number in self._newer(process, processes, now):
            if (process.shared, number) in self._passed:
                continue
            if self._plan_alike(process.handlers, self._handlers[number], delivery):
                return False  # whatever the lists between the two say
            left = [
                min(since, self._waits_since.get(each.id, since))
                for each, since in unread
                if not self._plan_alike(process.handlers, self._handlers[number], each)
            ]
            if not left or now - min(left) < PATIENCE:
                return True
            self._passed.add((process.shared, number))
        return False

    def has_to_plan(
        self, process: Process, processes: Collection[Process], delivery: Delivery, now: datetime
    ) -> bool:
        """Return whether no newer list of a live process decides otherwise, whatever has waited how long."""
        newer = self._newer(process, processes, now)
        return all(self._plan_alike(process.handlers, self._handlers[number], delivery) for number in newer)

    def longest_wait(self, process: Process, processes: Collection[Process], now: datetime) -> timedelta:
        """Return how long a process leaves anything to newer lists of which no process polls."""
        return PATIENCE * len(self._newer(process, processes, now))

    def note_planned(self, process: Process, now: datetime) -> None:
        """Note that a process has planned: others leave to its list again what that decides."""
        noted = process.shared.noted
        if noted is None or not timedelta(0) <= now - noted < NOTED_EVERY:
            process.shared.noted = now
            self._passed = {each for each in self._passed if each[1] != process.number}

    @staticmethod
    def _newer(process: Process, processes: Collection[Process], now: datetime) -> list[int]:
        alive = {each.number for each in processes if each.may_plan(now)}
        return sorted((each for each in alive if each > process.number), reverse=True)

    @staticmethod
    def _plan_alike(ours: Sequence[Handler], theirs: Sequence[Handler], delivery: Delivery) -> bool:
        """Return whether a delivery gets the same by two lists, and so do all that share an order with it."""
        types = {name for each in (*ours, *theirs) for name in each.types if name not in (ANY, UNKNOWN)}
        knows = (ours[0].knows, theirs[0].knows)
        types = types.union(*knows, {delivery.type} if delivery.known else ())
        alike = {name for name in types if _gets(ours, name) == _gets(theirs, name)}
        alike -= knows[0] ^ knows[1]
        queues = [_types_of(each, types) for each in (*ours, *theirs) if each.ordered_by]
        while beside := {name for queue in queues if not queue <= alike for name in queue & alike}:
            alike -= beside
        unknown_alike = _gets(ours, UNKNOWN) == _gets(theirs, UNKNOWN)
        if delivery.is_unread:  # it may be of any type
            return alike == types and unknown_alike
        return delivery.type in alike if delivery.type in types else unknown_alike


def _gets(handlers: Iterable[Handler], event_type: str) -> Gets:
    """Return what deliveries of a type get by a list: the handlers with their sources and order."""
    return frozenset(
        (each.name, tuple(sorted(each.sources)), each.ordered_by)
        for each in handlers
        if event_type in each.types or ANY in each.types
    )


def _types_of(handler: Handler, types: Collection[str]) -> set[str]:
    return {*types} if ANY in handler.types else {*types} & {*handler.types}


def _content(handlers: Iterable[Handler]) -> frozenset[object]:
    """Return what makes two lists the same: retries and limits are no part of it."""
    return frozenset(
        (each.name, frozenset(each.types), frozenset(each.sources), frozenset(each.aliases), each.ordered_by)
        for each in handlers
    ) | {each.knows for each in handlers}
