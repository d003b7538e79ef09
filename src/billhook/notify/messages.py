"""Messages about issues: what is wrong, and where to look.

No text of an exception is in a message, for it may name a customer.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from billhook.basics.printable import first_line, printable
from billhook.basics.type_names import shown_type
from billhook.errors.program import program
from billhook.inbox.watching.issues import Issue
from billhook.inbox.watching.judgement import Severity, condition_of
from billhook.inbox.watching.occurrences import OF_BUGS, OF_STATE, IssueKind

MOST_PER_HOUR = 10
"""The last of these in an hour is a summary of all that is left."""
_LISTED = 20
_LATER = timedelta(minutes=5)
"""An issue that opens so long after it was first seen was resolved or snoozed before: it opens again."""


class Message(NamedTuple):
    """A message, and the issues that it is about; none when all is well again."""

    title: str
    body: str
    issues: tuple[Issue, ...] = ()


class Writer:
    """Writes messages that say which environment and host they come from, with links to the dashboard."""

    def __init__(self, dashboard_url: str | None = None, environment: str | None = None) -> None:
        self._dashboard_url = None if dashboard_url is None else dashboard_url.rstrip("/")
        names = ("billhook", environment, socket.gethostname())
        self._origin = first_line(" ".join(filter(None, names)), 100)

    def title(self, text: str, severity: str | None = None) -> str:
        """Return the subject of a message."""
        return f"[{self._origin}] {f'{severity}: ' if severity else ''}{text}"

    def about(self, issues: Sequence[Issue], sent: int, failing_since: datetime | None) -> list[Message]:
        """Return what an address may be sent now that took `sent` messages in the last hour.

        A message for each issue, or a summary where that would be too many, or of all when it answers again.
        """
        left = MOST_PER_HOUR - sent
        if left <= 0:
            return []
        single = left - 1 if len(issues) > max(1, left - 1) else len(issues)
        if failing_since is not None and len(issues) > 1:
            single = 0
        found = [self._about_one(one) for one in issues[:single]]
        return [*found, self._summary(issues[single:], failing_since)] if issues[single:] else found

    def all_well(self) -> Message:
        """Return the message that no issue is open any more."""
        body = self._with_link(["No issue is open any more."])
        return Message(self.title("all is well again"), body)

    def _about_one(self, one: Issue) -> Message:
        lines = [headline(one)]
        if one.place is not None:
            lines.append(f"at {printable(one.place)}")
        if one.deliveries:
            times = "once" if one.count == 1 else f"{one.count:,} times"
            what = "delivery" if one.deliveries == 1 else "deliveries"
            lines.append(f"{times} so far, {one.deliveries:,} {what}")
        if _is_handled(one):
            lines.append("nothing of it is left: what failed was handled, or discarded, since")
        # Of a state it is not known whether it held before.
        first_at = None if one.kind in OF_STATE else one.first_at
        if first_at is not None and one.opened_at - first_at > _LATER:
            lines.append(f"it happens again: first seen {first_at:%Y-%m-%d %H:%M} UTC")
        condition = condition_of(one.kind)
        first = condition.first_command(one.subject)
        commands = [*([] if first == "failures" else [first]), f"failures show {one.id}"]
        lines += ["", *(f"{program()} {each}" for each in (*commands, f"runbook {condition.runbook}"))]
        if self._dashboard_url is not None:
            lines.append(f"{self._dashboard_url}/failures/{one.id}")
        return Message(self.title(lines[0], condition.severity), "\n".join(lines), (one,))

    def _summary(self, issues: Sequence[Issue], failing_since: datetime | None) -> Message:
        listed = [headline(one) for one in issues[:_LISTED]]
        if len(issues) > _LISTED:
            listed.append(f"and {len(issues) - _LISTED} more")
        if failing_since is None:
            what, why = "more issues are open", f"No more than {MOST_PER_HOUR} messages are sent in an hour."
        else:
            what = "issues are open"
            why = f"This address has taken no message since {failing_since:%Y-%m-%d %H:%M} UTC."
        severities = {condition_of(one.kind).severity for one in issues}
        worst = next(each for each in Severity if each in severities)
        title = self.title(f"{len(issues)} {what}", worst)
        return Message(title, self._with_link([*listed, "", why]), tuple(issues))

    def _with_link(self, lines: Sequence[str]) -> str:
        links = [] if self._dashboard_url is None else [f"{self._dashboard_url}/failures"]
        return "\n".join([*lines, f"{program()} failures", *links])


def headline(one: Issue) -> str:
    """Return what an issue is, without the text of an exception, and whether all of it was handled since."""
    return _what(one) + (", handled since" if _is_handled(one) else "")


def _is_handled(one: Issue) -> bool:
    return one.kind in OF_BUGS and bool(one.deliveries) and not one.is_left


def _what(one: Issue) -> str:
    if one.kind is IssueKind.FAILURE:
        return printable(f"{one.subject} fails: {one.title.partition(':')[0]}")
    if one.kind is IssueKind.DEAD:
        return printable(f"{one.subject}: runs are dead")
    if one.kind is IssueKind.QUARANTINE:
        return printable(f"deliveries of {shown_type(one.subject) or '(no type)'} are quarantined")
    return printable(one.title)
