"""Register and call handlers, and decide on retries. No SQL, no HTTP."""

from billhook.dispatch.call import HandlerFailure, call
from billhook.dispatch.delivery import Delivery, Headers, StoredHeaders
from billhook.dispatch.event_loop import CANCEL_SECONDS, EVENT_LOOPS
from billhook.dispatch.handler import ConnectedHandlers, Handler, connect
from billhook.dispatch.registry import Handlers
from billhook.dispatch.retry import RetryDecision, RetrySchedule, decide

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
