"""Register and call handlers, and decide on retries. No SQL, no HTTP."""

from billhook.handlers.event_loop import CANCEL_SECONDS, EVENT_LOOPS
from billhook.handlers.handler import (
    ConnectedHandlers,
    Delivery,
    Handler,
    HandlerFailure,
    Headers,
    StoredHeaders,
    call,
    connect,
)
from billhook.handlers.handlers import Handlers
from billhook.handlers.retry import RetryDecision, RetrySchedule, decide

__all__ = [
    "CANCEL_SECONDS",
    "EVENT_LOOPS",
    "ConnectedHandlers",
    "Delivery",
    "Handler",
    "HandlerFailure",
    "Handlers",
    "Headers",
    "RetryDecision",
    "RetrySchedule",
    "StoredHeaders",
    "call",
    "connect",
    "decide",
]
