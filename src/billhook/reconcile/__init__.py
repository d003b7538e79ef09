"""Reconcile: which events the service's API shows that no delivery of the inbox tells of.

Source: spec, "Events", the table; "Endpoints", the lists of contracts, invoices and credits.
"""

from billhook.reconcile.reconciliation import EVENT_TYPES_CHECKED, Reconciliation, TimeRange
from billhook.reconcile.synthetic import Missing, inject
from billhook.reconcile.told import Told

__all__ = ["EVENT_TYPES_CHECKED", "Missing", "Reconciliation", "TimeRange", "Told", "inject"]
