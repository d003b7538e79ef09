"""What the demo's inbox says once all is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from billhook.errors import InboxUnavailable

__all__ = ["settled"]

_AT_MOST = 1_000


def settled(path: Path, patience_seconds: float, check_alive: Callable[[], None]) -> dict[str, str]:
    """{key: state} of the inbox at `path`, once nothing waits any more, or when patience is over."""
    from billhook.inbox import Inbox
    from billhook.inbox.admin import Selection, page

    inbox = Inbox(f"sqlite:///{path}")
    until = time.monotonic() + patience_seconds
    try:
        while True:
            over = time.monotonic() >= until
            try:
                states = {one.key: one.state for one in page(inbox, Selection(), _AT_MOST)}
            except InboxUnavailable:  # the server that makes it is not up, or is about to end
                if over:
                    raise
            else:
                if over or not any(state in ("received", "planned") for state in states.values()):
                    return states
            check_alive()
            time.sleep(0.02)
    finally:
        inbox.close()
