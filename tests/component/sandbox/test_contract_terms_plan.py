"""The first term of a plan's contracts, and whether they are renewed.

Source: spec, "Resources and their fields", Plan, billingData: duration, a number whose unit is not shown, and
autoRenewal.
"""

from __future__ import annotations

from typing import Any

import pytest

from support.sandbox import Running, running
from support.scenarios import STARTED, Customer, contract, dates, fee, invoices, metered


def of_plan(sandbox: Running, billing: dict[str, Any], **terms: Any) -> Any:
    """A contract of a new plan with this billingData."""
    wanted = {"name": "Growth", "billingData": billing, "products": [fee(1)]}
    plan = sandbox.ok("POST", "/_sandbox/plans", wanted)["plan"]
    return contract(sandbox, name=None, planId=plan["id"], **terms)


@pytest.mark.parametrize(
    ("own", "plans", "renewed"),
    [
        (None, None, True),
        (None, True, True),
        (None, False, False),
        (True, False, True),
        (False, True, False),
        (False, None, False),
    ],
)
def test_a_contracts_auto_renew_overrides_its_plans(
    own: bool | None, plans: bool | None, renewed: bool
) -> None:
    """Source: spec, "Resources and their fields", Contract, autoRenewContract: true when omitted."""
    billing = {} if plans is None else {"autoRenewal": plans}
    with running() as sandbox:
        made = of_plan(sandbox, billing, autoRenewContract=own, endDate="2026-02-20T12:00:00Z")
        sandbox.advance("P60D")
        expired = dates(sandbox, "ContractExpired")
        notices = sandbox.raised("UpcomingRenewal")

    assert made["autoRenewContract"] is renewed
    assert expired == ([] if renewed else ["2026-02-20T12:00:00Z"])
    assert bool(notices) is renewed


@pytest.mark.parametrize(
    ("start", "months", "end"),
    [
        (STARTED, 12, "2027-01-10T12:00:00Z"),
        (STARTED, 1, "2026-02-10T12:00:00Z"),
        ("2026-01-31T00:00:00Z", 1, "2026-02-28T00:00:00Z"),
        (STARTED, 1200, "2126-01-10T12:00:00Z"),
    ],
)
def test_a_plans_duration_is_the_months_of_the_first_term(start: str, months: int, end: str) -> None:
    with running() as sandbox:
        made = of_plan(sandbox, {"duration": months}, startDate=start)
        read = sandbox.ok("GET", f"/_sandbox/contracts/{made['id']}")["contract"]
        told = [body["endDate"] for _, body in sandbox.raised("ContractCreated")]

    assert made["endDate"] == read["endDate"] == end
    assert told == [end]


def test_a_contracts_own_end_goes_before_its_plans_duration() -> None:
    with running() as sandbox:
        made = of_plan(sandbox, {"duration": 12}, endDate="2026-03-01T00:00:00Z")

    assert made["endDate"] == "2026-03-01T00:00:00Z"


def test_a_contract_without_a_term_has_no_end() -> None:
    with running() as sandbox:
        made = of_plan(sandbox, {})

    assert "endDate" not in made


def test_a_term_of_a_plans_duration_expires_or_is_renewed_by_as_many_months_again() -> None:
    """Source: spec, "Events", ContractExpired."""
    with running() as sandbox:
        start = "2026-01-31T00:00:00Z"
        renewed = of_plan(sandbox, {"duration": 1}, startDate=start)["id"]
        over = of_plan(sandbox, {"duration": 1, "autoRenewal": False}, startDate=start)["id"]
        sandbox.advance("P80D")
        end = sandbox.ok("GET", f"/_sandbox/contracts/{renewed}")["contract"]["endDate"]
        expired = [(body["contractId"], body["date"]) for _, body in sandbox.raised("ContractExpired")]
        billed = [each["contractId"] for each in invoices(sandbox)]

    assert end == "2026-04-30T00:00:00Z"
    assert expired == [(over, "2026-02-28T00:00:00Z")]
    assert billed == [renewed, over, renewed]


def test_usage_after_a_term_of_a_plans_duration_is_charged_by_nothing() -> None:
    """A meter counts it still: unsold, not uncharged. Source: spec, "Events", UnchargedEvents."""
    with running() as sandbox:
        acme, calls = Customer.of(sandbox), metered(sandbox)
        billing = {"duration": 1, "autoRenewal": False}
        wanted = {"name": "Growth", "billingData": billing, "products": [{"catalogProductId": calls}]}
        plan = sandbox.ok("POST", "/_sandbox/plans", wanted)["plan"]
        contract(sandbox, acme.id, name=None, planId=plan["id"])
        acme.use(1, at="2026-02-05T00:00:00Z")
        acme.use(1, at="2026-03-05T00:00:00Z")
        sandbox.advance("P3M")
        reports = [body["reportId"] for _, body in sandbox.raised("MonthEndReport")]
        ends = [sandbox.ok("GET", f"/_sandbox/reports/{each}")["report"] for each in reports]

    assert [end["unsoldEvents"] for end in ends] == [0, 0, 1]
