"""The inbox: the database of deliveries, their runs and failures. All SQL of billhook is here."""

from billhook.inbox.counts import OTHER_TYPES, Counted
from billhook.inbox.deliveries import Deliveries, DeliveryDetails
from billhook.inbox.due import NOTHING_DUE, NextTimes
from billhook.inbox.filters import DeliveryFilter
from billhook.inbox.inbox import Inbox
from billhook.inbox.records import (
    Claim,
    ContentKey,
    DuplicateRun,
    HandlerLimits,
    Lease,
    NewDelivery,
    PausedHandler,
    PutStatus,
    Receipt,
    RunOptions,
    RunPlan,
    RunResult,
    StoredDelivery,
    SupersededRun,
    WorkerRecord,
)
from billhook.inbox.states import DeliveryState, RunState
from billhook.inbox.transaction import InboxTransaction
from billhook.inbox.unread import RoundRobin

__all__ = [
    "NOTHING_DUE",
    "OTHER_TYPES",
    "Claim",
    "ContentKey",
    "Counted",
    "Deliveries",
    "DeliveryDetails",
    "DeliveryFilter",
    "DeliveryState",
    "DuplicateRun",
    "HandlerLimits",
    "Inbox",
    "InboxTransaction",
    "Lease",
    "NewDelivery",
    "NextTimes",
    "PausedHandler",
    "PutStatus",
    "Receipt",
    "RoundRobin",
    "RunOptions",
    "RunPlan",
    "RunResult",
    "RunState",
    "StoredDelivery",
    "SupersededRun",
    "WorkerRecord",
]
