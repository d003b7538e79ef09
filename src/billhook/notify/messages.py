"""The texts of notifications: what is wrong, and where to look.

No text of an exception is in them, for it may name a customer.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from billhook.inbox.issues import Issue
from billhook.inbox.occurrences import IssueKind
from billhook.printable import printable

MOST_PER_HOUR = 10
"""The last of these in an hour is a summary of all that is left."""
_LISTED = 20
_LATER = timedelta(minutes=5)
"""An issue that opens so long after it was first seen was resolved or ignored before: it opens again."""


class Message(NamedTuple):
    """A message, and the issues that it is about; none when all is well again."""

    title: str
    body: str
    issues: tuple[Issue, ...] = ()


def messages(issues: Sequence[Issue], sent: int, program: str, dashboard_url: str | None) -> list[Message]:
    """Return what an address may be sent now that took `sent` messages in the last hour.

    A message for each issue, or a summary where that would be too many; without issues, that all is well.
    """
    left = MOST_PER_HOUR - sent
    if left <= 0:
        return []
    if not issues:
        text = "No issue is open any more."
        return [Message("[billhook] all is well again", _with_link(text, program, dashboard_url))]
    if len(issues) <= max(1, left - 1):
        return [_message(one, program, dashboard_url) for one in issues]
    single = [_message(one, program, dashboard_url) for one in issues[: left - 1]]
    return [*single, _summary(issues[left - 1 :], program, dashboard_url)]


def headline(one: Issue) -> str:
    """Return what an issue is, without the text of an exception."""
    if one.kind is IssueKind.FAILURE:
        return printable(f"{one.subject} fails: {one.title.partition(':')[0]}")
    if one.kind is IssueKind.DEAD:
        return printable(f"{one.subject}: runs are dead")
    if one.kind is IssueKind.QUARANTINE:
        return printable(f"deliveries of {one.subject or '(no type)'} are quarantined")
    return printable(one.title)


def _message(one: Issue, program: str, dashboard_url: str | None) -> Message:
    lines = [headline(one)]
    if one.place is not None:
        lines.append(f"at {printable(one.place)}")
    if one.deliveries:
        times = "once" if one.count == 1 else f"{one.count:,} times"
        what = "delivery" if one.deliveries == 1 else "deliveries"
        lines.append(f"{times} so far, {one.deliveries:,} {what}")
    if one.first_at is not None and one.opened_at - one.first_at > _LATER:
        lines.append(f"it happens again: first seen {one.first_at:%Y-%m-%d %H:%M} UTC")
    lines += ["", f"{program} failures show {one.id}", f"{program} runbook {one.kind.runbook}"]
    if dashboard_url is not None:
        lines.append(f"{dashboard_url.rstrip('/')}/failures/{one.id}")
    return Message(f"[billhook] {lines[0]}", "\n".join(lines), (one,))


def _summary(issues: Sequence[Issue], program: str, dashboard_url: str | None) -> Message:
    listed = [headline(one) for one in issues[:_LISTED]]
    if len(issues) > _LISTED:
        listed.append(f"and {len(issues) - _LISTED} more")
    text = "\n".join([*listed, "", f"No more than {MOST_PER_HOUR} messages are sent in an hour."])
    return Message(
        f"[billhook] {len(issues)} more issues are open",
        _with_link(text, program, dashboard_url),
        tuple(issues),
    )


def _with_link(text: str, program: str, dashboard_url: str | None) -> str:
    lines = [text, f"{program} failures"]
    if dashboard_url is not None:
        lines.append(f"{dashboard_url.rstrip('/')}/failures")
    return "\n".join(lines)
