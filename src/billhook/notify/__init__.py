"""Notifications: tell people of issues once, by mail, chat, pager or a plain URL (extra billhook[notify]).

Any process that has addresses can send, and a row of the inbox decides which of them does: `Notifier`. That
the inbox itself cannot be read is sent without it: `OutageNotifier`. The addresses are sent to by apprise.
"""

from billhook.notify.addresses import KEY, NotifyAddress, read_addresses
from billhook.notify.messages import Writer
from billhook.notify.notifier import Notifier
from billhook.notify.outage import OutageNotifier, state_folders

__all__ = ["KEY", "Notifier", "NotifyAddress", "OutageNotifier", "Writer", "read_addresses", "state_folders"]
