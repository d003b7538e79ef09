"""What the inbox cannot do."""

from __future__ import annotations

from typing import ClassVar

from billhook.errors.root import BillhookError

__all__ = [
    "BacklogFull",
    "DeadlinePassed",
    "Draining",
    "IllegalTransition",
    "InboxError",
    "InboxUnavailable",
    "OutOfResources",
]


class InboxError(BillhookError):
    """The inbox cannot do what was asked."""


class InboxUnavailable(InboxError):
    """Storage failed, or cannot be reached; nothing was acknowledged, the sender must try again."""

    cause: ClassVar[str] = "storage"


class DeadlinePassed(InboxUnavailable):
    """The commit did not come back within BILLHOOK_DEADLINE_SECONDS."""

    cause = "deadline"


class BacklogFull(InboxUnavailable):
    """BILLHOOK_BACKLOG_LIMIT deliveries wait already."""

    cause = "backlog"


class Draining(InboxUnavailable):
    """The process is shutting down and takes nothing more."""

    cause = "draining"


class OutOfResources(InboxUnavailable):
    """The process has no memory left, or may start no thread; a limit of the system has to be raised."""

    cause = "resources"


class IllegalTransition(InboxError):
    """A state may not follow another; the table is in billhook.inbox.states."""

    def __init__(self, kind: str, before: str, after: str) -> None:
        self.kind = kind
        self.before = before
        self.after = after
        super().__init__(f"a {kind} in state {before!r} cannot become {after!r}")
