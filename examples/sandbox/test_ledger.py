"""The app and the billing service, both in this process and over real sockets: neither is a mock."""

from flask import Flask

from billhook.testing import RunningSandbox


def test_what_a_customer_used_is_booked_when_its_invoice_is_approved(
    billhook_app: Flask, sandbox: RunningSandbox
) -> None:
    acme, calls = sandbox.create_customer("Acme"), sandbox.create_meter("calls")
    sandbox.subscribe(acme, calls, price=0.5)

    sandbox.use(acme, calls, 40)
    sandbox.advance("40d")  # the month ends, and a day later the invoice is approved

    assert list(billhook_app.extensions["books"].values()) == [20]
