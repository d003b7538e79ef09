"""Events: one model per event type, parsed from bytes and encoded again.

A type of your own is a subclass of Event; ExactDecimal, UtcDatetime and WireModel are for its fields.
Source: spec, "Events".
"""

from billhook.events import base, customers, invoices, usage
from billhook.events.base import *  # noqa: F403 - each module lists its own in __all__
from billhook.events.customers import *  # noqa: F403
from billhook.events.invoices import *  # noqa: F403
from billhook.events.samples import sample as sample
from billhook.events.usage import *  # noqa: F403
from billhook.fields import WireModel as WireModel
from billhook.fields.types import ExactDecimal as ExactDecimal
from billhook.fields.types import UtcDatetime as UtcDatetime

_OTHERS = ("ExactDecimal", "UtcDatetime", "WireModel", "sample")
__all__ = sorted([*_OTHERS, *base.__all__, *customers.__all__, *invoices.__all__, *usage.__all__])
