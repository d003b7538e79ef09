"""The first term of a plan's contracts, and whether they are renewed.

Source: spec, "Resources and their fields", Plan, billingData: duration, a number whose unit is not shown, and
autoRenewal.
"""

from __future__ import annotations

from typing import Any

from support.sandbox import Running
from support.scenarios import STARTED, contract, dates, fee


def of_plan(sandbox: Running, billing: dict[str, Any], **terms: Any) -> Any:
    """A contract of a new plan with this billingData."""
    wanted = {"name": "Growth", "billingData": billing, "products": [fee(1)]}
    plan = sandbox.ok("POST", "/_sandbox/plans", wanted)["plan"]
    return contract(sandbox, name=None, planId=plan["id"], **terms)


RENEWED = [
    (None, None, True),
    (None, True, True),
    (None, False, False),
    (True, False, False),
    (False, True, True),
    (False, None, False),
]


def test_a_plans_renewal_is_used_as_is_and_else_the_contracts(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Contract, planId; autoRenewContract: true when omitted."""
    made = [
        of_plan(
            sandbox,
            {} if plans is None else {"autoRenewal": plans},
            autoRenewContract=own,
            endDate="2026-02-20T12:00:00Z",
        )
        for own, plans, _ in RENEWED
    ]
    sandbox.advance("P60D")
    expired = {body["contractId"] for _, body in sandbox.raised("ContractExpired")}
    noticed = {body["contractId"] for _, body in sandbox.raised("UpcomingRenewal")}
    dates_of_expiry = set(dates(sandbox, "ContractExpired"))

    renewed = [is_renewed for *_, is_renewed in RENEWED]
    assert [each["autoRenewContract"] for each in made] == renewed
    assert [each["id"] not in expired for each in made] == renewed
    assert [each["id"] in noticed for each in made] == renewed
    assert dates_of_expiry == {"2026-02-20T12:00:00Z"}


FIRST_TERMS = [
    (STARTED, 12, "2027-01-10T12:00:00Z"),
    (STARTED, 1, "2026-02-10T12:00:00Z"),
    ("2026-01-31T00:00:00Z", 1, "2026-02-28T00:00:00Z"),
    (STARTED, 1200, "2126-01-10T12:00:00Z"),
]


def test_a_plans_duration_is_the_months_of_the_first_term(sandbox: Running) -> None:
    made = [of_plan(sandbox, {"duration": months}, startDate=start)["id"] for start, months, _ in FIRST_TERMS]
    read = [sandbox.ok("GET", f"/_sandbox/contracts/{each}")["contract"]["endDate"] for each in made]
    told = [body["endDate"] for _, body in sandbox.raised("ContractCreated")]

    assert read == told == [end for *_, end in FIRST_TERMS]
