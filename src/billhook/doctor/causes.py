"""Find what the events that fail by an issue have in common, and those that succeeded do not.

Compared are type, source, release and host, and each value of the bodies, read as JSON and not by models:
`amount.currency` is a nested field, `lines[].currency` that of each item of a list. A field that is missing
counts as a value. The bodies are compared with those of the same types alone.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from billhook.basics.printable import first_line
from billhook.errors import InvalidJSON
from billhook.fields import strict_json
from billhook.inbox import Inbox
from billhook.inbox.reading.compared_deliveries import ComparedDeliveries, ComparedDelivery, read_compared
from billhook.inbox.watching.issues import Issue

MOST_VALUES = 5
_LEAST_PART = 0.5
"""A value is shown if this part of the failed have it, and at most half of this part of the succeeded do."""
_MOST_FIELDS = 500
"""The most values of one body that are looked at."""
_FIELD_CHARACTERS, _VALUE_CHARACTERS = 80, 60

_MISSING = "missing"
_Values = dict[str, frozenset[str]]
"""By field, the values that a delivery has there, as JSON or _MISSING; several of the items of a list."""


class CommonValue(NamedTuple):
    """A value of a field, and how many of the events that failed, and of those that succeeded, have it."""

    field: str
    value: str
    failed: int
    of_failed: int
    succeeded: int
    of_succeeded: int


def find_causes(inbox: Inbox, one: Issue) -> list[CommonValue]:
    """Return the values that many failed events of an issue have, and few that succeeded, the clearest first.

    Nothing where none succeeded: then it is not known what makes the difference.
    """
    return compare(read_compared(inbox, one))


def compare(compared: ComparedDeliveries) -> list[CommonValue]:
    """Return what many of those that failed have, and few of those that succeeded, the clearest first."""
    found = [*_around(compared.failed, compared.succeeded), *_in_bodies(compared.failed, compared.succeeded)]
    # Of equal ones first those of the request and of the process.
    return sorted(found, key=lambda each: each.succeeded / each.of_succeeded - each.failed / each.of_failed)[
        :MOST_VALUES
    ]


def _around(
    failed: Sequence[ComparedDelivery], succeeded: Sequence[ComparedDelivery]
) -> Iterator[CommonValue]:
    """Yield what differs in type, source, release and host, among those of which each is known."""
    for field, name in (
        ("type", "event_type"),
        ("source", "source"),
        ("release", "release"),
        ("host", "host"),
    ):
        sides = [
            [{field: frozenset({json.dumps(value)})} for one in side if (value := getattr(one, name))]
            for side in (failed, succeeded)
        ]
        yield from _differences(*sides)


def _in_bodies(
    failed: Sequence[ComparedDelivery], succeeded: Sequence[ComparedDelivery]
) -> Iterator[CommonValue]:
    """Yield what differs in the bodies; without one of the same type that succeeded nothing is compared."""
    types = {one.event_type for one in failed}
    read = [
        [document for one in side if (document := _read(one.body)) is not None]
        for side in (failed, [one for one in succeeded if one.event_type in types])
    ]
    # Only where another event has a field it is missing in one.
    known: defaultdict[str, set[str]] = defaultdict(set)
    for document in chain(*read):
        for place, names in document.objects.items():
            known[place].update(names.all)
    yield from sorted(_differences(*([one.with_missing(known) for one in side] for side in read)))


class _Names(NamedTuple):
    """The names of the fields of the objects at one place of a body: those of all, and those of any."""

    each: frozenset[str]
    all: frozenset[str]


class _Document(NamedTuple):
    """The values of a body by field, and the objects in it by their place."""

    values: _Values
    objects: dict[str, _Names]

    def with_missing(self, known: dict[str, set[str]]) -> _Values:
        """Return the values, and _MISSING for each field that other bodies have at a place of this one."""
        found = dict(self.values)
        for place, names in self.objects.items():
            for name in known[place] - names.each:
                path = _joined(place, name)
                found[path] = found.get(path, frozenset()) | {_MISSING}
        return found


def _read(body: bytes | None) -> _Document | None:
    """Return what a body says; None if it was not read, or is no JSON object."""
    try:
        value = None if body is None else strict_json.loads(body)
    except InvalidJSON:
        return None
    if not isinstance(value, dict):
        return None
    values: defaultdict[str, set[str]] = defaultdict(set)
    objects: dict[str, _Names] = {}
    left: deque[tuple[str, Any]] = deque([("", value)])  # the outer ones first, where not all are looked at
    for _ in range(_MOST_FIELDS):
        if not left:
            break
        place, part = left.popleft()
        if isinstance(part, dict):
            names = frozenset(part)
            before = objects.get(place, _Names(names, names))
            objects[place] = _Names(before.each & names, before.all | names)
            left += [(_joined(place, name), each) for name, each in part.items()]
        elif isinstance(part, list) and part:
            left += [(f"{place}[]", each) for each in part]
        else:
            values[place].add(strict_json.dumps(part).decode())
    return _Document({path: frozenset(found) for path, found in values.items()}, objects)


def _joined(place: str, name: str) -> str:
    # A name may be as long as a body, and each of its parts would repeat it.
    path = f"{place}.{name}" if place else name
    return path if len(path) <= 2 * _FIELD_CHARACTERS else f"{path[: 2 * _FIELD_CHARACTERS]}…"


def _differences(failed: Sequence[_Values], succeeded: Sequence[_Values]) -> Iterator[CommonValue]:
    """Yield the values that many of the failed have, and few of the succeeded."""
    if not failed or not succeeded:
        return
    with_it, without_it = _counted(failed), _counted(succeeded)
    distinct = Counter(field for field, _ in without_it)
    for (field, value), number in with_it.items():
        other = without_it[field, value]
        part, other_part = number / len(failed), other / len(succeeded)
        if part < _LEAST_PART or 2 * other_part > part:
            continue
        # A value of its own in each, such as an id, says nothing; of one event that failed, those that
        # succeeded tell whether the field has such.
        having = sum(field in one for one in succeeded)
        if number > 1 or (value == _MISSING or 2 * distinct[field] <= having):
            yield CommonValue(
                first_line(field, _FIELD_CHARACTERS), _shown(value),
                number, len(failed), other, len(succeeded),
            )  # fmt: skip


def _counted(events: Iterable[_Values]) -> Counter[tuple[str, str]]:
    return Counter((field, value) for one in events for field, each in one.items() for value in each)


def _shown(value: str) -> str:
    """Return a value as people write it: without quotes, unless it would look like something else."""
    text = json.loads(value) if value.startswith('"') else value
    plain = text.strip() == text != "" and not _is_json(text) and text != _MISSING
    return first_line(text if plain or not value.startswith('"') else value, _VALUE_CHARACTERS)


def _is_json(text: str) -> bool:
    if len(text) > _VALUE_CHARACTERS:  # it is cut, and may be nested too deep to be decoded
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
