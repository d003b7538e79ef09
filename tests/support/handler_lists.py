"""Lists of handlers for engines that are made without an app."""

from __future__ import annotations

from billhook import Handlers
from billhook.engines.newest_list import NewestList
from billhook.events import PingTest
from billhook.handlers import ConnectedHandlers, connect
from billhook.inbox import Inbox


def lists_of(inbox: Inbox) -> NewestList:
    """The lists of an app that has four handlers."""
    app, handlers = object(), Handlers()
    for number in range(4):
        handlers.on(PingTest, name=f"h{number}")(lambda event: None)
    connect(handlers.freeze(), app)
    return NewestList(inbox, ConnectedHandlers(app))
