"""The durable truth: what came, who must handle it, and how that went. The only SQL of billhook."""

from billhook.inbox.records import Claim, Incoming, Outcome, Plan, Receipt, Stored, Verdict
from billhook.inbox.states import DeliveryState, RunState
from billhook.inbox.store import Inbox
from billhook.inbox.turn import Turn

__all__ = [
    "Claim",
    "DeliveryState",
    "Inbox",
    "Incoming",
    "Outcome",
    "Plan",
    "Receipt",
    "RunState",
    "Stored",
    "Turn",
    "Verdict",
]
