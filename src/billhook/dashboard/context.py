"""DashboardContext: what the views share: the app's state, the pages, and the record of what was done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from flask import abort, current_app, g

from billhook.extension import ENVIRON, get_state
from billhook.pages import Pages

if TYPE_CHECKING:
    from billhook.inbox import DeliveryDetails, Inbox
    from billhook.state import BillhookState

__all__ = ["DashboardContext"]


@dataclass(frozen=True, slots=True)
class DashboardContext:
    """The pages of one dashboard, and the billhook of the app that the current request is of."""

    pages: Pages

    @property
    def state(self) -> BillhookState:
        """The state of the app. Raises ConfigError without a Billhook."""
        return get_state(current_app._get_current_object())  # type: ignore[attr-defined]

    @property
    def inbox(self) -> Inbox:
        """The app's inbox."""
        return self.state.inbox

    @property
    def now(self) -> datetime:
        """The time, by the clock of the app."""
        return self.state.dispatcher.clock.now()

    @property
    def command(self) -> str:
        """How the command line begins that works on the same inbox."""
        return "billhook" if ENVIRON in current_app.extensions else "flask --app … billhook"

    def delivery(self, delivery_id: int) -> DeliveryDetails:
        """Return a delivery; the page of an unknown one is 404."""
        from billhook.inbox.admin import details

        # No database takes a larger number.
        found = details(self.inbox, [delivery_id]) if delivery_id < 2**63 else []
        if not found:
            abort(404, f"There is no delivery {delivery_id} in this inbox.")
        return found[0]

    @contextmanager
    def recorded(self, what: str, which: str) -> Iterator[Callable[[int, Sequence[int]], None]]:
        """Record an action of the visitor while the block does it: a row, and a line of the log.

        The block calls what this yields after each batch: with how many it changed, and the ids.
        """
        from billhook.inbox.actions import recorded

        with recorded(self.inbox, g.billhook_visitor.name, what, which, self.now) as recorder:
            yield recorder.add
