"""Several releases at once: what a process plans or leaves to newer handlers, and the names of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from model.records import ANY, UNKNOWN, Delivery, Handler, Process, State

PATIENCE = timedelta(seconds=60)
NOTED_EVERY = timedelta(seconds=20)


class Releases(State):
    """The rules of processes with different lists of handlers."""

    # Names

    def present_name(self, name: str) -> str:
        return self.former.get(name, name)

    def every_name(self, *names: str) -> set[str]:
        """Return all names of the handlers that have, or had, one of these names."""
        present = {self.present_name(each) for each in names}
        return {*names, *present, *(former for former, name in self.former.items() if name in present)}

    def record_names(self, handlers: Sequence[Handler]) -> None:
        """Record the names of the newest release; a handler's own name is no former one."""
        own = {each.name for each in handlers}
        kept = {former: name for former, name in self.former.items() if own.isdisjoint((former, name))}
        renamed = {name: each.name for each in handlers for name in each.aliases if name not in own}
        self.former = {**kept, **renamed}

    # Lists

    def give_number(self, process: Process) -> None:
        """Give a process the number of its list, the same for equal lists; a new list gets the next."""
        content = _content(process.handlers)
        if content not in map(_content, self.lists):
            self.lists.append(process.handlers)
        process.number = [*map(_content, self.lists)].index(content)

    def decides_otherwise(self, process: Process, delivery: Delivery, now: datetime) -> bool:
        """Return whether a process has to leave a delivery to those with a newer list.

        It gets something else by that, and has not waited for it for a minute; or something waited, and no
        process with that list has planned since.
        """
        ours, passed = process.handlers, process.shared.passed
        for number in self._newer(process, now):
            theirs = self.lists[number]
            if number in passed:
                continue
            if _plan_alike(ours, theirs, delivery):
                return False  # whatever the lists between the two say
            left = [since for each, since in self._unread(now) if not _plan_alike(ours, theirs, each)]
            if not left or now - min(left) < PATIENCE:
                return True
            passed.add(number)
        return False

    def has_to_plan(self, process: Process, delivery: Delivery, now: datetime) -> bool:
        """Return whether no newer list of a live process decides otherwise, whatever has waited how long."""
        newer = self._newer(process, now)
        return all(_plan_alike(process.handlers, self.lists[number], delivery) for number in newer)

    def longest_wait(self, process: Process, now: datetime) -> timedelta:
        """Return how long a process leaves anything to newer lists of which no process polls."""
        return PATIENCE * len(self._newer(process, now))

    def note_planned(self, process: Process, now: datetime) -> None:
        """Note that a process has planned: others leave to its list again what that decides."""
        noted = process.shared.noted
        if noted is None or not timedelta(0) <= now - noted < NOTED_EVERY:
            process.shared.noted = now
            for each in self.processes:
                each.shared.passed.discard(process.number)

    def set_back(self, now: datetime) -> None:
        """Note that a clock was set back to this time: what came later waits since then."""
        for each in self.deliveries.values():
            if each.state == "received" and each.received > now:
                each.waits_since = min(now, each.waits_since or now)

    def _unread(self, now: datetime) -> Iterator[tuple[Delivery, datetime]]:
        """Yield what is unread, and what a due run is to read, with the times since which they wait."""
        unread = [(each, each.received) for each in self.deliveries.values() if each.state == "received"]
        readings = [each for each in self.runs.values() if each.reads and each.state == "due"]
        unread += [(each.delivery, each.due) for each in readings if each.due <= now]
        for delivery, since in unread:
            yield delivery, min(since, delivery.waits_since or since)

    def _newer(self, process: Process, now: datetime) -> list[int]:
        alive = {each.number for each in self.processes if each.may_plan(now)}
        return sorted((each for each in alive if each > process.number), reverse=True)


def _plan_alike(ours: Sequence[Handler], theirs: Sequence[Handler], delivery: Delivery) -> bool:
    """Return whether a delivery gets the same by two lists, and so do all that share an order with it."""
    both, known, known_to_them = (*ours, *theirs), ours[0].knows, theirs[0].knows
    types = {name for each in both for name in each.types} - {ANY, UNKNOWN}
    types = types.union(known, known_to_them, {delivery.type} if delivery.known else ())
    alike = {name for name in types if _gets(ours, name) == _gets(theirs, name)} - (known ^ known_to_them)
    queues = [types if ANY in each.types else types & {*each.types} for each in both if each.ordered_by]
    while beside := {name for queue in queues if not queue <= alike for name in queue & alike}:
        alike -= beside
    unknown_alike = _gets(ours, UNKNOWN) == _gets(theirs, UNKNOWN)
    if delivery.is_unread:  # it may be of any type
        return alike == types and unknown_alike
    return delivery.type in alike if delivery.type in types else unknown_alike


def _gets(handlers: Iterable[Handler], event_type: str) -> set[object]:
    """Return what deliveries of a type get by a list: the handlers with their sources and order."""
    found = [each for each in handlers if event_type in each.types or ANY in each.types]
    return {(each.name, frozenset(each.sources), each.ordered_by) for each in found}


def _content(handlers: Iterable[Handler]) -> set[object]:
    """Return what makes two lists the same: retries and limits are no part of it."""
    return {
        (each.name, *map(frozenset, (each.types, each.sources, each.aliases)), each.ordered_by, each.knows)
        for each in handlers
    }
