"""Notifications: tell people of issues once, by mail, chat, pager or a plain URL (extra billhook[notify])."""

from billhook.notify.addresses import NotifyAddress, read_addresses
from billhook.notify.notifier import Notifier

__all__ = ["Notifier", "NotifyAddress", "read_addresses"]
