"""The inbox: the database of deliveries, their runs and failures. All SQL of billhook is here."""

from billhook.inbox.counting.counts import OTHER_TYPES as OTHER_TYPES
from billhook.inbox.counting.counts import Counted as Counted
from billhook.inbox.inbox import Inbox as Inbox
from billhook.inbox.reading.deliveries import Deliveries as Deliveries
from billhook.inbox.reading.deliveries import DeliveryDetails as DeliveryDetails
from billhook.inbox.running.due import NOTHING_DUE as NOTHING_DUE
from billhook.inbox.running.due import NextTimes as NextTimes
from billhook.inbox.running.filters import DeliveryFilter as DeliveryFilter
from billhook.inbox.running.transaction import InboxTransaction as InboxTransaction
from billhook.inbox.running.unread import RoundRobin as RoundRobin
from billhook.inbox.tables.records import Claim as Claim
from billhook.inbox.tables.records import ContentKey as ContentKey
from billhook.inbox.tables.records import HandlerLimits as HandlerLimits
from billhook.inbox.tables.records import Lease as Lease
from billhook.inbox.tables.records import NewDelivery as NewDelivery
from billhook.inbox.tables.records import PausedHandler as PausedHandler
from billhook.inbox.tables.records import PutStatus as PutStatus
from billhook.inbox.tables.records import Receipt as Receipt
from billhook.inbox.tables.records import RunOptions as RunOptions
from billhook.inbox.tables.records import RunPlan as RunPlan
from billhook.inbox.tables.records import RunResult as RunResult
from billhook.inbox.tables.records import StoredDelivery as StoredDelivery
from billhook.inbox.tables.records import UncalledRun as UncalledRun
from billhook.inbox.tables.records import WorkerRecord as WorkerRecord
from billhook.inbox.tables.states import DeliveryState as DeliveryState
from billhook.inbox.tables.states import RunState as RunState
