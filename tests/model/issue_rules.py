"""The rules of issues: failures of one bug are one issue, however many deliveries it concerns.

They are compared with what is wrong whenever a worker looks, or a test does:

    it happens, and is no issue                                        open
    it happens again after it was resolved                             open again
    snoozed, its time or its number is over, and something is left     open again
    open or acknowledged, nothing is left, and for an hour it was not  resolved
    snoozed for a time that is over, and the same                      resolved
    resolved for 30 days, and nothing of it is stored                  forgotten

Something is left while a run that failed by it is dead or retried.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from model.records import Bug, Run
from model.releases import Releases

QUIET = timedelta(hours=1)
KEPT_FOR = timedelta(days=30)
LONGEST_UNTIL_MORE = timedelta(days=30)


@dataclass
class Issue:
    """An issue of failures: `subject` is the name that its handler had when it was opened first."""

    subject: str
    state: str
    changed: datetime
    until: datetime | None = None
    more: int | None = None
    """Until when it is snoozed, and after how many more failures it comes back."""

    def change(
        self, state: str, now: datetime, until: datetime | None = None, more: int | None = None
    ) -> None:
        """Change the state for an operator; one that is snoozed comes back after 30 days at the latest."""
        if state == "snoozed" and until is None:
            until = now + LONGEST_UNTIL_MORE
        self.state, self.changed, self.until, self.more = state, now, until, more


Issues = dict[Bug, Issue]
"""The issues of failures, by their bugs."""


def look(issues: Issues, rules: Releases, now: datetime) -> None:
    """Open, reopen, resolve and forget issues by what is stored."""
    failures = failures_of(rules)
    for bug in {**failures, **issues}:
        issue, (runs, times) = issues.get(bug), failures.get(bug, ([], []))
        if issue is None:
            issues[bug] = Issue(rules.present_name(runs[-1].name), "open", now)
        elif issue.state == "resolved":
            if times and times[-1] > issue.changed:
                issue.change("open", now)
            elif not times and issue.changed < now - KEPT_FOR:
                del issues[bug], rules.deleted[bug]
        elif _is_over(issue, runs, times, now):
            issue.change("resolved", now)
        elif _snooze_ended(issue, times, now):
            issue.change("open", now)


def error_of(bug: Bug) -> str:
    """Return the name of the error, without what else tells two bugs of a handler apart."""
    return bug[1].split()[0]


def failures_of(rules: Releases) -> dict[Bug, tuple[list[Run], list[datetime]]]:
    """Return the runs that failed by each bug, one for each failure, and when, the newest last."""
    failures = [(number, at, bug, run) for run in rules.runs.values() for bug, at, number in run.bugs]
    found: dict[Bug, tuple[list[Run], list[datetime]]] = {bug: ([], []) for _, _, bug, _ in failures}
    for _, at, bug, run in sorted(failures, key=lambda each: each[0]):
        found[bug][0].append(run)
        found[bug][1].append(at)
    return found


def _is_over(issue: Issue, runs: list[Run], times: list[datetime], now: datetime) -> bool:
    if issue.until is not None and issue.until > now:
        return False
    is_left = any(run.state == "dead" or (run.state in ("due", "running") and run.attempts) for run in runs)
    return not is_left and (not times or times[-1] <= now - QUIET)


def _snooze_ended(issue: Issue, times: list[datetime], now: datetime) -> bool:
    if issue.until is not None and issue.until <= now:
        return True
    return issue.more is not None and len(times) >= issue.more and times[-issue.more] > issue.changed
