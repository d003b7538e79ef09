"""Decisions about handlers: who is called, how, and what follows. No SQL, no HTTP."""

from billhook.dispatch.call import Failed, call
from billhook.dispatch.delivery import Delivery, Headers
from billhook.dispatch.handler import Handler
from billhook.dispatch.registry import Handlers
from billhook.dispatch.retry import Decision, RetrySchedule, decide
from billhook.dispatch.subscribers import Subscriber, Subscribers, connect

__all__ = [
    "Decision",
    "Delivery",
    "Failed",
    "Handler",
    "Handlers",
    "Headers",
    "RetrySchedule",
    "Subscriber",
    "Subscribers",
    "call",
    "connect",
    "decide",
]
