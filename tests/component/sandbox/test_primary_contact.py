"""Whom an invoice goes to. Source: spec, Customer, contacts: "The contact marked primary is the target"."""

from __future__ import annotations

from typing import Any

from support.sandbox import Running
from support.scenarios import contract, customer, fee


def person(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "email": f"{name}@acme.example", **more}


PRIMARY = person("ada", isPrimary=True)
COPY = person("bob", receiveInvoiceEmail=True)
BOTH = person("cyd", isPrimary=True, receiveInvoiceEmail=True)


REACHED: list[tuple[list[dict[str, Any]], list[str]]] = [
    ([PRIMARY], ["ada"]),
    ([COPY, PRIMARY], ["ada", "bob"]),
    ([BOTH, COPY], ["cyd", "bob"]),
    ([COPY], ["bob"]),
    ([person("eve", isPrimary=False), person("eve", isPrimary="yes"), person("eve")], []),
    ([{"name": "mute", "isPrimary": True}], []),
]


def test_the_primary_contact_is_the_target_and_others_get_copies(sandbox: Running) -> None:
    owners = [customer(sandbox, contacts=contacts) for contacts, _ in REACHED]
    for owner in owners:
        contract(sandbox, owner, products=[fee(5)])
    sandbox.advance("P33D")
    sent = [(body["customerId"], body["email"]) for _, body in sandbox.raised("CustomerPortalLinkSent")]
    failed = len({body["invoiceId"] for _, body in sandbox.raised("InvoiceSendFailed")})

    for owner, (_, reached) in zip(owners, REACHED, strict=True):
        emails = [email for customer_id, email in sent if customer_id == owner]
        assert emails == [f"{name}@acme.example" for name in reached]
    assert failed == 2
