"""How many of all deliveries an issue concerns, and what the failing ones have in common.

Compared are the deliveries that its handler has had since the first that failed, the newest COMPARED of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import and_, select

from billhook.inbox.inbox import Inbox
from billhook.inbox.tables.schema import DEAD_RUN, IDENTIFIERS, delivery, failure, issue, release, run
from billhook.inbox.tables.sql import in_values
from billhook.inbox.watching.issues import Issue
from billhook.inbox.watching.occurrences import IssueKind

COMPARED = 5_000
_MOST_VALUES = 5
_LEAST_PART = 0.5
"""A value is shown if this part of the failing deliveries has it, and a smaller part of all."""


class CommonValue(NamedTuple):
    """A value that failing deliveries have in common: how many of them, and how many of all."""

    value: str
    failing: int
    all: int


@dataclass(frozen=True, slots=True)
class IssueShare:
    """How many of the handler's deliveries an issue concerns; `capped` if there are more than were read."""

    failing: int
    all: int
    capped: bool
    common: tuple[CommonValue, ...]

    @property
    def text(self) -> str:
        """The share in words: `9 of 120, 7.5 %`."""
        part = 100 * self.failing / self.all
        of = f"the newest {self.all:,}" if self.capped else f"{self.all:,}"
        return f"{self.failing:,} of {of}, {part:.2g} %" if part < 99.5 else f"{self.failing:,} of {of}"

    @property
    def common_text(self) -> str | None:
        """The values in words, with how many of all have them; None without any."""
        each = (
            f"{one.value} ({one.failing:,} of {self.failing:,}; of all {one.all:,})" for one in self.common
        )
        return ", ".join(each) or None


def read_share(inbox: Inbox, one: Issue) -> IssueShare | None:
    """Return the share of an issue of failures or of dead runs; None for others, and without deliveries."""
    if one.handler is None:
        return None
    failing = select(run.c.delivery_id).where(run.c.handler == one.handler)
    if one.kind is IssueKind.FAILURE:
        failing = failing.join(failure, failure.c.run_id == run.c.id).where(failure.c.fingerprint == one.id)
        failing = failing.order_by(failure.c.id.desc())
    else:
        failing = failing.where(DEAD_RUN).order_by(run.c.delivery_id.desc())
    columns = (delivery.c.id, delivery.c.event_type, delivery.c.source, *IDENTIFIERS)
    with inbox.database.read() as connection:
        found = set(connection.execute(failing.limit(4 * COMPARED)).scalars())
        if not found:
            return None
        had = and_(run.c.delivery_id >= min(found), run.c.handler == one.handler)
        newest = select(run.c.delivery_id).where(had).order_by(run.c.delivery_id.desc()).limit(COMPARED + 1)
        ids = connection.execute(newest).scalars().all()
        compared = ids[:COMPARED]
        rows = connection.execute(select(*columns).where(in_values(delivery.c.id, compared))).all()
    failing_ids = found & {*compared}
    if not failing_ids:
        return None
    common = _common([(row[0] in failing_ids, set(filter(None, row[1:]))) for row in rows])
    return IssueShare(len(failing_ids), len(compared), len(ids) > COMPARED, common)


def _common(rows: Collection[tuple[bool, set[str]]]) -> tuple[CommonValue, ...]:
    """Return the values that the failing have in common more often than all, the most frequent first."""
    failing, every = Counter[str](), Counter[str]()
    for failed, values in rows:
        every.update(values)
        if failed:
            failing.update(values)
    number, total = sum(failed for failed, _ in rows), len(rows)
    found = [
        CommonValue(value, count, every[value])
        for value, count in failing.items()
        if count > 1 and count >= _LEAST_PART * number and count * total > every[value] * number
    ]
    return tuple(sorted(found, key=lambda each: (-each.failing, each.all, each.value))[:_MOST_VALUES])


def first_release(inbox: Inbox, issue_id: str) -> str | None:
    """Return the release of the user's code by which an issue occurred first, as far as that is stored."""
    query = select(release.c.name).join(failure, failure.c.release_id == release.c.id)
    query = query.where(failure.c.fingerprint == issue_id).order_by(failure.c.id).limit(1)
    return next((row.name or None for row in inbox.fetch(query)), None)


def newest_errors(inbox: Inbox, ids: Collection[str]) -> dict[str, str]:
    """Return the newest error of each issue that has a stored failure, by the issue's id."""
    newest = select(failure.c.error).where(failure.c.fingerprint == issue.c.fingerprint)
    newest = newest.order_by(failure.c.id.desc()).limit(1).correlate(issue)
    query = select(issue.c.fingerprint, newest.scalar_subquery())
    rows = inbox.fetch(query.where(in_values(issue.c.fingerprint, sorted(ids))))
    return {its_id: error for its_id, error in rows if error}


def known_issues(inbox: Inbox, ids: Collection[str]) -> set[str]:
    """Return those of the ids that are of issues."""
    if not ids:
        return set()
    query = select(issue.c.fingerprint).where(in_values(issue.c.fingerprint, sorted(ids)))
    return {row.fingerprint for row in inbox.fetch(query)}
