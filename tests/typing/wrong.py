"""Handlers that type checkers refuse, each at the line that is marked with what is wrong there.

This module is never run.
"""

from __future__ import annotations

from datetime import datetime

from psycopg import AsyncConnection
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession

from billhook import Delivery, Handlers, signals
from billhook.events import (
    CustomerCreated,
    Event,
    InvoiceApproved,
    InvoicePaymentStatusChanged,
    InvoiceSendFailed,
    Overage,
    PaymentFailed,
    PingTest,
    TierCrossed,
    UnknownEvent,
)
from billhook.resources import CreditGrant

handlers = Handlers()


@handlers.on(InvoiceApproved)  # WRONG: another event
def another_event(event: PaymentFailed) -> None: ...


@handlers.on(InvoiceApproved)  # WRONG: another event
def another_event_with_delivery(event: PaymentFailed, delivery: Delivery) -> None: ...


@handlers.on(InvoiceApproved)  # WRONG: another event
async def another_event_asynchronous(event: PaymentFailed) -> None: ...


@handlers.on(InvoiceApproved, PaymentFailed)  # WRONG: one of two events
def one_of_two(event: InvoiceApproved) -> None: ...


@handlers.on(InvoiceApproved, PaymentFailed)  # WRONG: one of two events
async def one_of_two_asynchronous(event: PaymentFailed, delivery: Delivery) -> None: ...


@handlers.on(InvoiceApproved, PaymentFailed, PingTest)  # WRONG: two of three events
def two_of_three(event: InvoiceApproved | PaymentFailed) -> None: ...


@handlers.on(InvoiceApproved, PaymentFailed, PingTest, TierCrossed)  # WRONG: three of four events
def three_of_four(event: InvoiceApproved | PaymentFailed | PingTest) -> None: ...


@handlers.on(InvoiceApproved, PaymentFailed, PingTest, TierCrossed, InvoiceSendFailed)  # WRONG: four of five
def four_of_five(event: InvoiceApproved | PaymentFailed | PingTest | TierCrossed) -> None: ...


@handlers.on(InvoiceApproved, PaymentFailed, PingTest, TierCrossed, Overage, CustomerCreated)  # WRONG: of six
def one_of_six(event: InvoiceApproved) -> None: ...


@handlers.on(InvoiceApproved)  # WRONG: no argument
def without_arguments() -> None: ...


@handlers.on(InvoiceApproved)  # WRONG: no argument
async def without_arguments_asynchronous() -> None: ...


@handlers.on(InvoiceApproved)  # WRONG: the second argument is a Delivery
def wrong_second(event: InvoiceApproved, delivery: datetime) -> None: ...


@handlers.on(InvoiceApproved)  # WRONG: the event comes first
def wrong_order(delivery: Delivery, event: InvoiceApproved) -> None: ...


@handlers.on(InvoiceApproved)  # WRONG: three arguments
def three_arguments(event: InvoiceApproved, delivery: Delivery, more: int) -> None: ...


@handlers.on(InvoiceApproved)  # WRONG: both come by position
def by_keyword(event: InvoiceApproved, *, delivery: Delivery) -> None: ...


@handlers.on(InvoiceApproved)  # WRONG: only plain subscribers get a sender
def with_sender(sender: str, *, event: InvoiceApproved, delivery: Delivery) -> None: ...


@handlers.on_any()  # WRONG: an unknown event is no Event
def without_the_unknown(event: Event) -> None: ...


@handlers.on_unknown()  # WRONG: a known event
def known(event: PingTest) -> None: ...


def taken_by_name() -> None:
    handlers.on("InvoiceApproved")  # WRONG: a name instead of the class


def an_unknown_event_class() -> None:
    handlers.on(UnknownEvent)  # WRONG: it is no Event: on_unknown() is for it


def without_event_types() -> None:
    handlers.on()  # WRONG: no event class


def misspelt_option() -> None:
    handlers.on(InvoiceApproved, timout_seconds=3)  # WRONG: timeout_seconds


def option_of_another_type() -> None:
    handlers.on(InvoiceApproved, retry="10,60")  # WRONG: a text


def rate_as_a_number() -> None:
    handlers.on(InvoiceApproved, rate=10)  # WRONG: a number without a time


def aliases_as_one_text() -> None:
    handlers.on(InvoiceApproved, aliases="send")  # WRONG: a text


def order_of_any_event() -> None:
    handlers.on_any(ordered_by="invoice_id")  # WRONG: not every event has the field


@handlers.on(InvoiceApproved)
def misspelt_field(event: InvoiceApproved) -> None:
    print(event.invoiceId)  # WRONG: invoice_id


@handlers.on(InvoicePaymentStatusChanged)
def optional_field(event: InvoicePaymentStatusChanged) -> None:
    print(event.paid_at.year)  # WRONG: it may be None


@handlers.on(InvoiceApproved)
def misspelt_key(event: InvoiceApproved, delivery: Delivery) -> None:
    print(delivery.idempotence_key)  # WRONG: idempotency_key


@handlers.on(InvoiceApproved)
def wrong_call(event: InvoiceApproved, delivery: Delivery) -> None:
    delivery.client.invoices.fetch(event.invoice_id)  # WRONG: get


@handlers.on(InvoiceApproved)
def wrong_group(event: InvoiceApproved, delivery: Delivery) -> None:
    delivery.client.invoice.get(event.invoice_id)  # WRONG: invoices


@handlers.on(InvoiceApproved)
def wrong_argument(event: InvoiceApproved, delivery: Delivery) -> None:
    delivery.client.invoices.get(event.date)  # WRONG: invoice_id


@handlers.on(InvoiceApproved)
def wrong_result(event: InvoiceApproved, delivery: Delivery) -> None:
    print(delivery.client.invoices.get(event.invoice_id).amuont)  # WRONG: amount


@handlers.on(InvoiceApproved)
def misspelt_words(event: InvoiceApproved, delivery: Delivery) -> None:
    delivery.client.invoices.list(billing_status="overdue")  # WRONG: Overdue
    CreditGrant(balance_kind="Money")  # WRONG: Monetary


@handlers.on(InvoiceApproved)
def effects_without_a_transaction(event: InvoiceApproved, delivery: Delivery) -> None:
    delivery.once()  # WRONG: in which transaction?
    delivery.once("shop.db")  # WRONG: a path
    delivery.once(create_engine("sqlite://"))  # WRONG: an engine has no transaction


@handlers.on(InvoiceApproved)
async def effect_of_an_asynchronous_session(event: InvoiceApproved, delivery: Delivery) -> None:
    async with AsyncSession() as session:
        delivery.once(session)  # WRONG: await session.run_sync(delivery.once)
    async with await AsyncConnection.connect("") as connection:
        delivery.once(connection)  # WRONG: it commits asynchronously


def misspelt_signals() -> None:
    signals.invoice_aproved.connect(misspelt_signals)  # WRONG: invoice_approved
    signals.handler_died.connect(misspelt_signals)  # WRONG: handler_dead


@handlers.on(InvoiceApproved)
def keeps_its_type(event: InvoiceApproved) -> None: ...


def calls_of_the_decorated_function(event: PingTest) -> None:
    keeps_its_type(event)  # WRONG: another event
