"""Reconciliation: go through the objects that the API lists, and find the events that no delivery reports.

Only what an object proves is asked for. A contract that exists was created, an invoice with a payment status
was approved and had its status changed, an entry of the credit ledger changed a pool. What else may have
happened to an object, such as an earlier status, leaves no trace in it.

Source: spec, "Events", the table; "States and transitions": "A change of payment status emits the
InvoicePaymentStatusChanged webhook". That an invoice is approved before it is paid is an assumption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from functools import partial

from billhook.client import BillingClient
from billhook.errors import InvalidRequest, ResourceNotFound
from billhook.events import (
    ContractCreated,
    ContractExpired,
    CreditPoolDepleted,
    CreditPoolIncreased,
    CustomerCreated,
    Event,
    InvoiceApproved,
    InvoicePaymentStatusChanged,
)
from billhook.inbox import Inbox
from billhook.reconcile import synthetic
from billhook.reconcile.delivered_events import CreditChange, DeliveredEvents
from billhook.reconcile.synthetic import MissingEvent
from billhook.resources import BillingStatus, Contract, CreditLedgerEntry, Customer, Invoice

_PAGE = 100


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From `since` to before `until`."""

    since: datetime
    until: datetime

    def __contains__(self, moment: datetime) -> bool:
        return self.since <= moment < self.until


@dataclass(eq=False, repr=False)
class Reconciliation:
    """One comparison of the API's objects with the events of deliveries.

    `checked` counts the objects of each kind that were compared. `unchecked` counts those that were not:
    invoices that changed after the period, whose deliveries may be on their way, and customers that no
    delivery describes and that were not read.

    `progress` is called after each object that was read.

    `read_customers`: read a customer by an update with no fields, the only operation on a single one.
    Source: spec, "Endpoints", PUT /customers/{customerId}: "an empty object is accepted in shape".
    """

    client: BillingClient
    inbox: Inbox
    delivered: DeliveredEvents
    period: TimeRange
    _: KW_ONLY
    event_types: Collection[str]
    read_customers: bool
    progress: Callable[[], object]

    def __post_init__(self) -> None:
        self.checked: Counter[str] = Counter()
        self.unchecked: Counter[str] = Counter()
        self._read: dict[str, Customer | None] = {}
        self._customer_ids: set[str] = set(self.delivered.customer_ids)
        self._maybe_new: set[str] = set()

    def missing(self) -> Iterator[MissingEvent]:
        """Yield the missing events, page by page of the API. Raises ApiError, and InboxUnavailable."""
        asked = frozenset(self.event_types)
        ledgers = asked & {CreditPoolIncreased.type, CreditPoolDepleted.type}
        customers = CustomerCreated.type in asked
        # Contracts and invoices are listed for their customers too: the API has no list of customers.
        if customers or ledgers or asked & {ContractCreated.type, ContractExpired.type}:
            for contract in self.client.contracts.list(limit=_PAGE):
                yield from self._of_contract(contract)
        if customers or ledgers or asked & {InvoiceApproved.type, InvoicePaymentStatusChanged.type}:
            since, until = self.period.since, self.period.until
            for invoice in self.client.invoices.list(issued_after=since, issued_before=until, limit=_PAGE):
                yield from self._of_invoice(invoice)
        if customers:
            for customer_id in sorted(self._maybe_new):
                yield from self._of_customer(customer_id)
        if ledgers:
            for customer_id in sorted(self._customer_ids):
                yield from self._of_credits(customer_id)

    def _of_contract(self, contract: Contract) -> Iterator[MissingEvent]:
        self.progress()
        self._customer_ids.add(contract.customer_id)
        created = contract.created_at in self.period
        # Without renewal for certain: a contract that is renewed does not expire.
        ends = contract.end_date if contract.auto_renew_contract is False else None
        ended = ends is not None and ends in self.period and contract.deleted_at is None
        self.checked["contracts"] += created or ended
        if created:
            self._maybe_new.add(contract.customer_id)
            yield from self._unless_reported(
                ContractCreated, contract, contract.created_at, "it was created",
                lambda: synthetic.contract_created(
                    contract, self._customer_body(contract.customer_id), sought=self.read_customers
                ),
            )  # fmt: skip
        if ended and ends is not None:
            yield from self._unless_reported(
                ContractExpired, contract, ends, "it ended, without renewal",
                partial(synthetic.contract_expired, contract),
            )  # fmt: skip

    def _of_invoice(self, invoice: Invoice) -> Iterator[MissingEvent]:
        self.progress()
        if invoice.customer_id is not None:
            self._customer_ids.add(invoice.customer_id)
            self._maybe_new.add(invoice.customer_id)
        if invoice.updated_at >= self.period.until:
            self.unchecked["invoices"] += 1
            return
        self.checked["invoices"] += 1
        status = invoice.billing_status
        if status is None or status == BillingStatus.NONE:
            return  # perhaps not approved yet
        proof = invoice, invoice.updated_at, f"its billingStatus is {status}"
        approved = partial(synthetic.invoice_approved, invoice)
        yield from self._unless_reported(InvoiceApproved, *proof, approved)
        changed = partial(synthetic.payment_status_changed, invoice)
        yield from self._unless_reported(InvoicePaymentStatusChanged, *proof, changed, str(status))

    def _of_customer(self, customer_id: str) -> Iterator[MissingEvent]:
        if self.delivered.knows_customer(customer_id):
            self.checked["customers"] += 1
            return
        if not self.read_customers:
            self.unchecked["customers"] += 1
            return
        customer = self._customer(customer_id)
        self.checked["customers"] += 1
        if customer is not None and customer.created_at in self.period:
            yield from self._unless_reported(
                CustomerCreated, customer, customer.created_at, "it was created",
                partial(synthetic.customer_created, customer),
            )  # fmt: skip

    def _customer(self, customer_id: str) -> Customer | None:
        """Return the customer, read once; None if it was deleted."""
        if customer_id not in self._read:
            try:
                self._read[customer_id] = self.client.customers.update(customer_id, {})
            except ResourceNotFound:
                self._read[customer_id] = None
            self.progress()
        return self._read[customer_id]

    def _customer_body(self, customer_id: str) -> object:
        """Return the customer as an event has it: from a delivery, or as the API shows it if allowed."""
        body = self.delivered.new_customer(self.inbox, customer_id)
        if body is not None or not self.read_customers:
            return body
        customer = self._customer(customer_id)
        return None if customer is None else synthetic.customer_created(customer)

    def _of_credits(self, customer_id: str) -> Iterator[MissingEvent]:
        changed: dict[str, list[CreditLedgerEntry]] = {
            CreditPoolIncreased.type: [],
            CreditPoolDepleted.type: [],
        }
        try:
            for entry in self.client.credits.list(customer_id, limit=_PAGE):
                self.progress()
                if entry.created_at in self.period and entry.amount is not None:
                    self.checked["credits"] += 1
                    if entry.amount > 0:
                        changed[CreditPoolIncreased.type].append(entry)
                    elif entry.amount < 0 and entry.balance_after_entry == 0:
                        changed[CreditPoolDepleted.type].append(entry)
        except ResourceNotFound:
            return  # deleted, or merged into another
        except InvalidRequest:  # a customer that a delivery names, and the service does not know
            self.unchecked["credits"] += 1
            return
        for event_type, entries in changed.items():
            if event_type not in self.event_types:
                continue
            has_amount = event_type == CreditPoolIncreased.type
            changes = [
                CreditChange(
                    entry.created_at, entry.amount if has_amount else None, entry.balance_after_entry
                )
                for entry in entries
            ]
            for position in self.delivered.unmatched(event_type, customer_id, changes):
                entry = entries[position]
                detail = f"its amount is {entry.amount}, and the balance after it {entry.balance_after_entry}"
                yield MissingEvent(
                    event_type, "credit", entry.id, customer_id, entry.created_at, detail,
                    obstacle=synthetic.NO_POOL,
                )  # fmt: skip

    def _unless_reported(
        self,
        kind: type[Event],
        about: Contract | Customer | Invoice,
        at: datetime,
        detail: str,
        fields: Callable[[], synthetic.Fields | str],
        *status: str,
    ) -> Iterator[MissingEvent]:
        """Yield the event about an object, unless a delivery reports it or its type is not asked for.

        Where a quarantined delivery reports it, that is to be replayed instead.
        """
        if kind.type not in self.event_types or self.delivered.has(kind.type, about.id, *status):
            return
        customer_id = about.id if isinstance(about, Customer) else about.customer_id
        missing = MissingEvent(kind.type, type(about).__name__.lower(), about.id, customer_id, at, detail)
        quarantined = self.delivered.quarantined_as(kind.type, about.id, *status)
        if quarantined is None:
            yield synthetic.with_event(missing, kind, fields())
        else:
            # Not synthetic as well: after a replay of that delivery, handlers would get the event twice.
            text = f"delivery {quarantined} tells of it and is quarantined: replay that"
            yield replace(missing, obstacle=text, quarantined_as=quarantined)
