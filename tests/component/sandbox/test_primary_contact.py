"""Whom an invoice goes to. Source: spec, Customer, contacts: "The contact marked primary is the target"."""

from __future__ import annotations

from typing import Any

import pytest

from support.sandbox import running
from support.scenarios import contract, customer, fee


def person(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "email": f"{name}@acme.example", **more}


PRIMARY = person("ada", isPrimary=True)
COPY = person("bob", receiveInvoiceEmail=True)
BOTH = person("cyd", isPrimary=True, receiveInvoiceEmail=True)


@pytest.mark.parametrize(
    ("contacts", "reached"),
    [
        ([PRIMARY], ["ada"]),
        ([COPY, PRIMARY], ["ada", "bob"]),
        ([BOTH, COPY], ["cyd", "bob"]),
        ([COPY], ["bob"]),
        ([person("eve", isPrimary=False), person("eve", isPrimary="yes"), person("eve")], []),
        ([{"name": "mute", "isPrimary": True}], []),
    ],
)
def test_the_primary_contact_is_the_target_and_others_get_copies(
    contacts: list[dict[str, Any]], reached: list[str]
) -> None:
    with running() as sandbox:
        contract(sandbox, customer(sandbox, contacts=contacts), products=[fee(5)])
        sandbox.advance("P33D")
        sent = [body["email"] for _, body in sandbox.raised("CustomerPortalLinkSent")]
        failed = sandbox.raised("InvoiceSendFailed")

    assert sent == [f"{name}@acme.example" for name in reached]
    assert bool(failed) is (reached == [])
