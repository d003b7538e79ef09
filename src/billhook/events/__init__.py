"""Events: one model per event type, parsed from bytes and encoded again.

A type of your own is a subclass of Event; ExactDecimal, UtcDatetime and WireModel are for its fields.
Source: spec, "Events".
"""

from billhook.events.base import *  # noqa: F403 - all that is listed below
from billhook.events.customers import *  # noqa: F403
from billhook.events.invoices import *  # noqa: F403
from billhook.events.samples import sample as sample
from billhook.events.usage import *  # noqa: F403
from billhook.fields import WireModel as WireModel
from billhook.fields.model import classes_of
from billhook.fields.types import BillingStatus as BillingStatus
from billhook.fields.types import CreditKind as CreditKind
from billhook.fields.types import ExactDecimal as ExactDecimal
from billhook.fields.types import UtcDatetime as UtcDatetime

_OTHERS = (
    "BillingStatus", "CreditKind", "EVENT_TYPES", "ExactDecimal", "UtcDatetime", "WireModel",
    "parse_event", "sample",
)  # fmt: skip
__all__ = sorted([*_OTHERS, *classes_of(__name__, globals())])
