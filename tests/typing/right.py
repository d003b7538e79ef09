"""Handlers that type checkers accept, and the types that the functions have after the decorator."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import assert_type

import psycopg
from flask import Flask
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from billhook import Billhook, Delivery, Discard, Handlers, Retry, effects, signals, testing
from billhook.client import BillingClient
from billhook.events import (
    EVENT_TYPES,
    CreditPoolIncreased,
    Event,
    InvoiceApproved,
    InvoicePaymentStatusChanged,
    InvoiceSendFailed,
    PaymentFailed,
    PingTest,
    TierCrossed,
    UnknownEvent,
    sample,
)
from billhook.handlers.options import EventHandlerOptions
from billhook.resources import BillingStatus, CreditGrant, CreditKind
from billhook.testing import Handled

handlers = Handlers()
hooks = Billhook(handlers=[handlers])
APPROVED = sample(InvoiceApproved)
engine = create_engine("sqlite://")
effects.create_all(engine)


@handlers.on(InvoiceApproved)
def with_event(event: InvoiceApproved) -> str:
    return event.invoice_id


assert_type(with_event(APPROVED), str)
assert_type(with_event(event=APPROVED), str)


@handlers.on(InvoiceApproved)
def with_delivery(event: InvoiceApproved, delivery: Delivery) -> None:
    print(event.date, delivery.key, delivery.attempt)


def call_by_name(delivery: Delivery) -> None:
    with_delivery(event=APPROVED, delivery=delivery)


@handlers.on(PaymentFailed)
async def asynchronous(event: PaymentFailed) -> Decimal:
    return event.amount


@handlers.on(PaymentFailed)
async def asynchronous_with_delivery(event: PaymentFailed, delivery: Delivery) -> str:
    assert_type(await asynchronous(event), Decimal)
    return delivery.idempotency_key


@handlers.on(InvoiceApproved)
def with_a_default(event: InvoiceApproved, delivery: Delivery | None = None) -> None: ...


@handlers.on(InvoiceApproved)
def with_an_option(event: InvoiceApproved, delivery: Delivery, *, again: bool = False) -> bool:
    return again


def call_with_its_option(delivery: Delivery) -> None:
    assert_type(with_an_option(APPROVED, delivery, again=True), bool)


@handlers.on(InvoiceApproved)
def of_any_event(event: Event) -> str:
    return event.type


of_any_event(sample(PingTest))


@handlers.on(InvoiceApproved)
def of_anything(*facts: object) -> None: ...


@handlers.on(InvoiceApproved)
def by_position(event: InvoiceApproved, delivery: Delivery, /) -> None: ...


@handlers.on(InvoiceApproved, PaymentFailed)
def of_two(event: InvoiceApproved | PaymentFailed) -> str:
    return event.invoice_id


@handlers.on(InvoiceApproved, PaymentFailed, InvoiceSendFailed)
def of_three(event: InvoiceApproved | PaymentFailed | InvoiceSendFailed, delivery: Delivery) -> None: ...


@handlers.on(InvoiceApproved, PaymentFailed, InvoiceSendFailed, PingTest)
async def of_four(event: InvoiceApproved | PaymentFailed | InvoiceSendFailed | PingTest) -> None: ...


@handlers.on(InvoiceApproved, PaymentFailed, InvoiceSendFailed, PingTest, TierCrossed)
def of_five(event: InvoiceApproved | PaymentFailed | InvoiceSendFailed | PingTest | TierCrossed) -> None:
    if isinstance(event, PaymentFailed):
        assert_type(event.amount, Decimal)


@handlers.on(InvoiceApproved, PaymentFailed, InvoiceSendFailed, PingTest, TierCrossed, CreditPoolIncreased)
def of_six(event: Event) -> None: ...


@handlers.on(*EVENT_TYPES.values())
def of_a_sequence(event: Event, delivery: Delivery) -> None: ...


@handlers.on_any(timeout_seconds=5)
def of_every_type(event: Event | UnknownEvent) -> str:
    return event.type


@handlers.on_unknown(name="unknown")
def of_unknown_types(event: UnknownEvent, delivery: Delivery) -> None: ...


@handlers.on(
    InvoicePaymentStatusChanged,
    name="billing.follow",
    aliases=("follow",),
    retry=[1, 10, 60.5],
    timeout_seconds=20,
    sources=["eu"],
    ordered_by="invoice_id",
    identity=("invoice_id", "billing_status"),
    identity_window_seconds=3600,
    at_most=4,
    rate="100/min",
    pause_after=20,
)
def with_every_option(event: InvoicePaymentStatusChanged) -> None:
    if not event.paid_at:
        raise Discard("not paid")
    raise Retry("not yet", after_seconds=1)


OPTIONS: EventHandlerOptions = {"retry": [1, 2], "ordered_by": "invoice_id"}


@handlers.on(InvoiceApproved, **OPTIONS)
def with_shared_options(event: InvoiceApproved) -> None: ...


@handlers.on(InvoiceApproved)
def ask(event: InvoiceApproved, delivery: Delivery) -> None:
    assert_type(delivery.client, BillingClient)
    assert_type(delivery.client.invoices.get(event.invoice_id).amount, Decimal | None)
    delivery.client.invoices.list(billing_status="Overdue")
    delivery.client.invoices.list(billing_status=BillingStatus.OVERDUE)
    delivery.client.credits.top_up(
        "cus_1", CreditGrant(name="Top-up", balance_kind="Monetary", price=Decimal(5))
    )
    CreditGrant(balance_kind=CreditKind.UNIT)


@handlers.on(InvoiceApproved)
def book_once(event: InvoiceApproved, delivery: Delivery) -> None:
    with Session(engine) as session, session.begin():
        assert_type(delivery.once(session), bool)
    with engine.begin() as connection:
        delivery.once(connection)
    delivery.once(scoped_session(sessionmaker(engine)))
    with sqlite3.connect("shop.db") as driver:
        delivery.once(driver)
    with psycopg.connect("") as postgres:
        delivery.once(postgres)


@handlers.on(InvoiceApproved)
async def book_once_asynchronously(event: InvoiceApproved, delivery: Delivery) -> None:
    async with AsyncSession() as session:
        assert_type(await session.run_sync(delivery.once), bool)


class Books:
    """Handlers as methods, and an object that is one."""

    def book(self, event: InvoiceApproved, delivery: Delivery) -> None: ...

    def __call__(self, event: Event) -> None: ...

    @staticmethod
    @handlers.on(TierCrossed)
    def count(event: TierCrossed) -> int:
        return 1


books = Books()
handlers.on(InvoiceApproved)(books.book)
handlers.on(InvoiceApproved)(books)
handlers.on(InvoiceApproved)(partial(with_an_option, again=True))
assert_type(Books.count(sample(TierCrossed)), int)

seen: list[Event] = []
handlers.on(InvoiceApproved, name="seen")(seen.append)


@dataclass
class Group:
    """A factory of decorators of one's own."""

    handlers: Handlers

    def of_invoices(self, function: Callable[[InvoiceApproved], None]) -> Callable[[InvoiceApproved], None]:
        return self.handlers.on(InvoiceApproved)(function)


def subscriber(sender: object, *, event: InvoiceApproved, delivery: Delivery) -> None: ...


def observer(sender: object, **facts: object) -> None: ...


signals.invoice_approved.connect(subscriber)
signals.month_end_report.connect(subscriber)
signals.handler_dead.connect(observer)
signals.event_signal("of_my_own").connect(subscriber)


def what_a_test_gets(app: Flask, handled: Handled) -> None:
    """The events of a handler are of the type that it takes."""
    assert_type(testing.handled(app, with_event), list[InvoiceApproved])
    assert_type(testing.handled(app, with_delivery), list[InvoiceApproved])
    assert_type(testing.handled(app, with_a_default), list[InvoiceApproved])
    assert_type(testing.handled(app, asynchronous), list[PaymentFailed])
    assert_type(testing.handled(app, subscriber), list[Event | UnknownEvent])
    assert_type(testing.handled(app, "a.name"), list[Event | UnknownEvent])
    assert_type(handled(asynchronous_with_delivery), list[PaymentFailed])
    assert_type(handled("a.name"), list[Event | UnknownEvent])
