"""The app and the billing service, both in this process and over real sockets: neither is a mock."""

from flask import Flask

from billhook.testing import RunningSandbox


def test_what_a_customer_used_is_booked_when_its_invoice_is_approved(
    billhook_app: Flask, sandbox: RunningSandbox
) -> None:
    client, now = sandbox.client, sandbox.service.clock.now()
    acme = sandbox.call("POST", "/_sandbox/customers", {"name": "Acme", "externalId": "acme"})["customer"]
    calls = client.catalog_products.create({"name": "API calls"}).id
    meter = {"name": "Calls", "eventName": "call", "aggregationMethod": "count"}
    sandbox.call("POST", "/_sandbox/meters", {**meter, "catalogProductId": calls})
    sold = {"catalogProductId": calls, "pricing": {"type": "PerUnit", "price": 0.5}}
    client.contracts.create(
        {"customerId": acme["id"], "name": "By use", "startDate": now, "products": [sold]}
    )

    used = [{"name": "call", "timestamp": now, "customerAlias": "acme", "ref": f"{n}"} for n in range(40)]
    client.events.submit(used)
    sandbox.advance("P40D")  # the month ends, and a day later the invoice is approved

    assert list(billhook_app.extensions["books"].values()) == [20]
