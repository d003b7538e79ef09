"""How many of all deliveries an issue concerns, and since which release.

Counted are the deliveries that its handler has had since the first that failed, the newest COMPARED of them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import and_, select

from billhook.inbox.inbox import Inbox
from billhook.inbox.tables.schema import DEAD_RUN, failure, issue, release, run
from billhook.inbox.tables.sql import in_values
from billhook.inbox.watching.issues import Issue
from billhook.inbox.watching.occurrences import IssueKind

COMPARED = 5_000


@dataclass(frozen=True, slots=True)
class IssueShare:
    """How many of the handler's deliveries an issue concerns; `capped` if there are more than were read."""

    failing: int
    all: int
    capped: bool

    @property
    def text(self) -> str:
        """The share in words: `9 of 120, 7.5 %`."""
        part = 100 * self.failing / self.all
        of = f"the newest {self.all:,}" if self.capped else f"{self.all:,}"
        return f"{self.failing:,} of {of}, {part:.2g} %" if part < 99.5 else f"{self.failing:,} of {of}"


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
    with inbox.database.read() as connection:
        found = set(connection.execute(failing.limit(4 * COMPARED)).scalars())
        if not found:
            return None
        had = and_(run.c.delivery_id >= min(found), run.c.handler == one.handler)
        newest = select(run.c.delivery_id).where(had).order_by(run.c.delivery_id.desc()).limit(COMPARED + 1)
        ids = connection.execute(newest).scalars().all()
    compared = ids[:COMPARED]
    number = len(found & {*compared})
    return IssueShare(number, len(compared), len(ids) > COMPARED) if number else None


def first_release(inbox: Inbox, issue_id: str) -> str | None:
    """Return the release of the user's code by which an issue occurred first, as far as that is stored."""
    query = select(release.c.name).join(failure, failure.c.release_id == release.c.id)
    query = query.where(failure.c.fingerprint == issue_id).order_by(failure.c.id).limit(1)
    return next((row.name or None for row in inbox.fetch(query)), None)


def known_issues(inbox: Inbox, ids: Collection[str]) -> set[str]:
    """Return those of the ids that are of issues."""
    if not ids:
        return set()
    query = select(issue.c.fingerprint).where(in_values(issue.c.fingerprint, sorted(ids)))
    return {row.fingerprint for row in inbox.fetch(query)}
