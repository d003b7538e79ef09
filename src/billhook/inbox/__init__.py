"""The inbox: the database of deliveries, their runs and failures. All SQL of billhook is here."""

from billhook.inbox.counts import OTHER_TYPES as OTHER_TYPES
from billhook.inbox.counts import Counted as Counted
from billhook.inbox.deliveries import Deliveries as Deliveries
from billhook.inbox.deliveries import DeliveryDetails as DeliveryDetails
from billhook.inbox.due import NOTHING_DUE as NOTHING_DUE
from billhook.inbox.due import NextTimes as NextTimes
from billhook.inbox.filters import DeliveryFilter as DeliveryFilter
from billhook.inbox.inbox import Inbox as Inbox
from billhook.inbox.records import Claim as Claim
from billhook.inbox.records import ContentKey as ContentKey
from billhook.inbox.records import HandlerLimits as HandlerLimits
from billhook.inbox.records import Lease as Lease
from billhook.inbox.records import NewDelivery as NewDelivery
from billhook.inbox.records import PausedHandler as PausedHandler
from billhook.inbox.records import PutStatus as PutStatus
from billhook.inbox.records import Receipt as Receipt
from billhook.inbox.records import RunOptions as RunOptions
from billhook.inbox.records import RunPlan as RunPlan
from billhook.inbox.records import RunResult as RunResult
from billhook.inbox.records import StoredDelivery as StoredDelivery
from billhook.inbox.records import UncalledRun as UncalledRun
from billhook.inbox.records import WorkerRecord as WorkerRecord
from billhook.inbox.states import DeliveryState as DeliveryState
from billhook.inbox.states import RunState as RunState
from billhook.inbox.transaction import InboxTransaction as InboxTransaction
from billhook.inbox.unread import RoundRobin as RoundRobin
