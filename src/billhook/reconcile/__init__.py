"""Find events that the service's API proves and that have no delivery in the inbox.

Source: spec, "Events", the table; "Endpoints", the lists of contracts, invoices and credits.
"""

from billhook.reconcile.delivered_events import DeliveredEvents
from billhook.reconcile.reconciliation import Reconciliation, TimeRange
from billhook.reconcile.synthetic import MissingEvent, inject

__all__ = ["DeliveredEvents", "MissingEvent", "Reconciliation", "TimeRange", "inject"]
