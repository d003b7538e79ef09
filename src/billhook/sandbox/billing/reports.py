"""What is in the reports that the end of a month makes. The specification shows their ids alone.

Source: spec, "Events", MonthEndReport and UnchargedEvents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import insert, select

from billhook.resources import Resource
from billhook.sandbox.refusals import not_found
from billhook.sandbox.storage.tables.billing import report
from billhook.sandbox.transaction import Transaction, new_id
from billhook.wire.fields import Integer, MaybeListOf, Moment, Number, Text

__all__ = ["Billed", "LateUsage", "Report", "ReportResponse", "Uncharged", "find", "keep"]


class Billed(Resource, register=False):
    """The invoices of one currency."""

    currency: Annotated[Text, Field(description="Currency code.", examples=["USD"])]
    invoices: Annotated[Integer, Field(description="How many were issued.", examples=[3])]
    amount: Annotated[Number, Field(description="What they come to.")]


class Uncharged(Resource, register=False):
    """Events of one name and one customer."""

    customer_id: Annotated[Text, Field(description="Id of the customer.", examples=["cus_1042"])]
    name: Annotated[Text, Field(description="Name of the events.", examples=["api_call"])]
    events: Annotated[Integer, Field(description="How many there are.", examples=[12])]


class LateUsage(Resource, register=False):
    """Usage of a cycle that came when it was billed, for a contract that has no invoice any more."""

    customer_id: Annotated[Text, Field(description="Id of the customer.", examples=["cus_1042"])]
    contract_id: Annotated[Text, Field(description="Id of the contract.", examples=["con_7"])]
    product_id: Annotated[Text, Field(description="Id of the product.", examples=["cat_31"])]
    product_name: Annotated[Text, Field(description="Name of it.", examples=["API calls"])]
    start_time: Annotated[Moment, Field(description="When the cycle began.")]
    end_time: Annotated[Moment, Field(description="When it ended.")]
    units: Annotated[Number, Field(description="Units used beyond those that were billed.")]
    currency: Annotated[Text, Field(description="Currency code.", examples=["USD"])]
    amount: Annotated[Number, Field(description="What they come to, without credits.")]


class Report(Resource, register=False):
    """What a month came to."""

    id: Annotated[Text, Field(description="Id of the report.", examples=["rep_1"])]
    type: Annotated[Text, Field(description="MonthEnd or UnchargedEvents.", examples=["MonthEnd"])]
    start_time: Annotated[Moment, Field(description="When the month began.")]
    end_time: Annotated[Moment, Field(description="When it ended.")]
    events: Annotated[Integer, Field(description="How many events it had.", examples=[1200])]
    uncharged_events: Annotated[Integer, Field(description="How many of them no meter counted.")]
    unsold_events: Annotated[
        Integer, Field(description="How many were counted, but by no meter of what was sold to the customer.")
    ] = 0
    new_customers: Annotated[Integer | None, Field(description="Customers that were made in it.")] = None
    new_contracts: Annotated[Integer | None, Field(description="Contracts that were made in it.")] = None
    billed: Annotated[MaybeListOf[Billed], Field(description="Invoices that were issued in it.")] = None
    uncharged: Annotated[
        MaybeListOf[Uncharged], Field(description="What no meter counted: at most 1000 of them.")
    ] = None
    unsold: Annotated[
        MaybeListOf[Uncharged],
        Field(description="What was counted and not sold to the customer: at most 1000 of them."),
    ] = None
    late_usage: Annotated[
        MaybeListOf[LateUsage],
        Field(
            description="Usage that came too late for any invoice: at most 1000 of them, null without any."
        ),
    ] = None


class ReportResponse(Resource, register=False):
    """A report."""

    report: Annotated[Report, Field(description="The report.")]


def keep(tx: Transaction, facts: Mapping[str, Any]) -> Report:
    """Store a report with these facts, by the names of Report's fields."""
    made = Report(id=new_id("rep"), **facts)
    tx.connection.execute(insert(report).values(id=made.id, body=made.to_json().decode()))
    return made


def find(tx: Transaction, report_id: str) -> Report:
    """The report with this id; a refusal, not_found, if there is none."""
    body = tx.connection.execute(select(report.c.body).where(report.c.id == report_id)).scalar_one_or_none()
    if body is None:
        raise not_found("report")
    return Report.from_json(body.encode())
