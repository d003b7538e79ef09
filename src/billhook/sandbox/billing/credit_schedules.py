"""Credits that a contract grants, once or again and again.

Source: spec, "Resources and their fields", Contract, creditGrants. The values of `schedule` are not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType

from sqlalchemy import delete, insert, select

from billhook.resources import CreditGrant
from billhook.sandbox.billing import agenda, customers
from billhook.sandbox.billing.contract_terms import KeptContract, renews
from billhook.sandbox.billing.credits import grant_as
from billhook.sandbox.billing.rating import Charge, charge
from billhook.sandbox.periods import months_after
from billhook.sandbox.storage.tables.credit import credit_charge, credit_schedule
from billhook.sandbox.transaction import Transaction, new_id

__all__ = ["SCHEDULES", "begin", "charges", "end", "grant_scheduled"]

_MONTHS: Mapping[str, int] = MappingProxyType({"Monthly": 1, "Quarterly": 3, "Yearly": 12})
"""How often, by `schedule`; else once."""

SCHEDULES = ("Once", *_MONTHS)
"""What a contract's grant may say."""


def begin(tx: Transaction, contract: KeptContract) -> None:
    """A contract has become active: grant its credits from its start on. To be called once for each.

    Of one that began in the past, also those of its cycles that are over: these are billed now, too.
    """
    ends_at = None if renews(contract) else contract.end_date
    for given in contract.credit_grants or []:
        schedule_id = new_id("crs")
        tx.connection.execute(
            insert(credit_schedule).values(
                id=schedule_id, contract_id=contract.id, customer_id=contract.customer_id,
                body=given.to_json().decode(), starts_at=contract.start_date,
            )
        )  # fmt: skip
        moment: datetime | None = contract.start_date
        while moment is not None and moment <= tx.now and (ends_at is None or moment < ends_at):
            _grant(tx, contract.customer_id, contract.id, given, moment)
            moment = _next(contract.start_date, _months(given), moment)
        _come_back(tx, schedule_id, given, moment)


def end(tx: Transaction, contract_id: str) -> None:
    """A contract was deleted or has expired: it grants no more. What was granted stays."""
    of_contract = credit_schedule.c.contract_id == contract_id
    for schedule_id in tx.connection.execute(select(credit_schedule.c.id).where(of_contract)).scalars().all():
        agenda.drop(tx, schedule_id)
    tx.connection.execute(delete(credit_schedule).where(of_contract))


def grant_scheduled(tx: Transaction, subject_id: str) -> None:
    """Grant, and come back if the schedule says so. The step `credit_grant`.

    A customer that is Inactive is granted nothing: its cycle is not billed.
    """
    this = credit_schedule.c.id == subject_id
    row = tx.connection.execute(select(credit_schedule).where(this)).first()
    if row is None:
        return
    given = CreditGrant.from_json(row.body.encode())
    _grant(tx, row.customer_id, row.contract_id, given, tx.now)
    _come_back(tx, subject_id, given, _next(row.starts_at, _months(given), tx.now))


def charges(
    tx: Transaction, contract_id: str, start: datetime, end: datetime, smallest: Decimal
) -> list[Charge]:
    """What is to be paid for the credits that a contract granted from `start` to before `end`."""
    made = credit_charge.c
    rows = tx.connection.execute(
        select(credit_charge)
        .where(made.contract_id == contract_id, made.granted_at >= start, made.granted_at < end)
        .order_by(made.seq)
    )
    return [
        replace(charge(row.credit_product_id, row.name, [], row.price, smallest=smallest), units=row.amount)
        for row in rows
    ]


def _grant(tx: Transaction, customer_id: str, contract_id: str, given: CreditGrant, moment: datetime) -> None:
    """Grant now what was due at `moment`, and charge it to the cycle that this lies in."""
    is_over = given.expiration_date is not None and given.expiration_date <= tx.now
    if is_over or customers.inactive(tx, [customer_id]):
        return
    grant_as(tx, customer_id, given, contract_id=contract_id)
    if given.price and given.grant_amount is not None:
        name = given.name or "Credits"
        tx.connection.execute(
            insert(credit_charge).values(
                contract_id=contract_id, granted_at=moment, name=name, amount=given.grant_amount,
                credit_product_id=given.credit_product_id or name, price=given.price,
            )
        )  # fmt: skip


def _come_back(tx: Transaction, schedule_id: str, given: CreditGrant, moment: datetime | None) -> None:
    """Grant again at `moment`; never, without one or after the credits' end."""
    expires_at = given.expiration_date
    if moment is None or (expires_at is not None and moment >= expires_at):
        tx.connection.execute(delete(credit_schedule).where(credit_schedule.c.id == schedule_id))
    else:
        agenda.add(tx, moment, "credit_grant", schedule_id)


def _months(given: CreditGrant) -> int:
    return _MONTHS.get(given.schedule or "", 0)


def _next(starts_at: datetime, months: int, now: datetime) -> datetime | None:
    """The first moment after `now` that lies whole periods after `starts_at`; None if there is none."""
    if months == 0:
        return None
    passed = (now.year - starts_at.year) * 12 + now.month - starts_at.month
    count = passed // months
    try:
        while (moment := months_after(starts_at, count * months)) <= now:
            count += 1
    except OverflowError:
        return None
    return moment
