"""Resources of the REST API: one model per object, for the client and the sandbox.

Source: spec, "Resources and their fields" and "Endpoints".
"""

from billhook.fields import sample as sample
from billhook.fields.types import BillingStatus as BillingStatus
from billhook.fields.types import CreditKind as CreditKind
from billhook.resources import access, base, catalog, contracts, credits, customers, invoices, usage  # noqa: A004
from billhook.resources.access import *  # noqa: F403 - each module lists its own in __all__
from billhook.resources.base import *  # noqa: F403
from billhook.resources.catalog import *  # noqa: F403
from billhook.resources.contracts import *  # noqa: F403
from billhook.resources.credits import *  # noqa: F403
from billhook.resources.customers import *  # noqa: F403
from billhook.resources.invoices import *  # noqa: F403
from billhook.resources.usage import *  # noqa: F403

_MODULES = (access, base, catalog, contracts, credits, customers, invoices, usage)
__all__ = sorted(
    ["BillingStatus", "CreditKind", "sample", *(name for each in _MODULES for name in each.__all__)]
)
