"""The durable truth: what came, who must handle it, and how that went. The only SQL of billhook."""

from billhook.inbox.records import (
    Claim,
    Incoming,
    Likeness,
    Outcome,
    Plan,
    Receipt,
    Stored,
    Terms,
    Twin,
    Verdict,
)
from billhook.inbox.runs import NextTimes
from billhook.inbox.states import DeliveryState, RunState
from billhook.inbox.store import Inbox
from billhook.inbox.turn import Turn

__all__ = [
    "Claim",
    "DeliveryState",
    "Inbox",
    "Incoming",
    "Likeness",
    "NextTimes",
    "Outcome",
    "Plan",
    "Receipt",
    "RunState",
    "Stored",
    "Terms",
    "Turn",
    "Twin",
    "Verdict",
]
