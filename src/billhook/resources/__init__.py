"""Resources of the REST API: one model per object, for the client and the sandbox.

Source: spec, "Resources and their fields" and "Endpoints".
"""

from billhook.fields import sample as sample
from billhook.fields.model import classes_of
from billhook.fields.types import BillingStatus as BillingStatus
from billhook.fields.types import CreditKind as CreditKind
from billhook.resources.access import *  # noqa: F403 - all that is listed below
from billhook.resources.base import *  # noqa: F403
from billhook.resources.catalog import *  # noqa: F403
from billhook.resources.contracts import *  # noqa: F403
from billhook.resources.credits import *  # noqa: F403
from billhook.resources.customers import *  # noqa: F403
from billhook.resources.invoices import *  # noqa: F403
from billhook.resources.usage import *  # noqa: F403

_OTHERS = (
    "BillingStatus", "CreditKind", "MAX_BATCH_BYTES", "MAX_BATCH_EVENTS", "MAX_PAGE_EVENTS", "READ_ONLY",
    "RESOURCES", "WRITE_ONLY", "sample",
)  # fmt: skip
__all__ = sorted([*_OTHERS, *classes_of(__name__, globals())])
