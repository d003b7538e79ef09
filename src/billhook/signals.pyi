"""The types of billhook.signals: with the names of the event signals, which the module itself does not list.

So a type checker refuses a name that is misspelt. `event_signal` returns the signal of an event type of
your own.
"""

from collections.abc import Mapping
from typing import Any

from blinker import Signal

# Of the life of deliveries and runs, for observers.
delivery_accepted: Signal
delivery_conflict: Signal
delivery_duplicate: Signal
delivery_quarantined: Signal
delivery_rejected: Signal
delivery_twin: Signal
handler_dead: Signal
handler_ended: Signal
handler_paused: Signal
handler_retrying: Signal
handler_started: Signal
handler_succeeded: Signal

# Of the event types.
anonymous_customer: Signal
commitment_crossed: Signal
commitment_usage_crossed: Signal
contract_created: Signal
contract_expired: Signal
credit_pool_depleted: Signal
credit_pool_increased: Signal
credit_pool_threshold_crossed: Signal
currency_commitment_usage_crossed: Signal
customer_created: Signal
customer_portal_link_sent: Signal
final_tier_exceeded: Signal
invoice_approved: Signal
invoice_payment_status_changed: Signal
invoice_send_failed: Signal
month_end_report: Signal
new_customer_without_contract: Signal
overage: Signal
payment_failed: Signal
ping_test: Signal
tier_crossed: Signal
uncharged_events: Signal
upcoming_renewal: Signal

EVENT_SIGNALS: Mapping[str, Signal]

def event_signal(name: str) -> Signal: ...
def emit(signal: Signal, sender: object, **facts: Any) -> None: ...
