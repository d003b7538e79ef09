"""The app and the billing service, both in this process and over real sockets: neither is a mock."""

from pathlib import Path
from threading import Thread

import ledger
from werkzeug.serving import make_server

from billhook.client import BillingClient
from billhook.sandbox import Sandbox, SandboxOptions
from billhook.sandbox.serving import serving


def test_what_a_customer_used_is_booked_when_its_invoice_is_approved(tmp_path: Path) -> None:
    sandbox = Sandbox(SandboxOptions(allow_private=True))
    with serving(sandbox) as url, BillingClient(url, sandbox.client_id, str(sandbox.api_token)) as client:
        app = ledger.create_app(
            BILLHOOK_ENGINE="inline",  # handlers run within the request
            BILLHOOK_INBOX_URL=f"sqlite:///{tmp_path}/inbox.db",
            BILLHOOK_SECRETS=sandbox.signing_secret,
            BILLHOOK_API_URL=url,
            BILLHOOK_API_CLIENT_ID=sandbox.client_id,
            BILLHOOK_API_REFRESH_TOKEN=sandbox.api_token,
        )
        server = make_server("127.0.0.1", 0, app)
        Thread(target=server.serve_forever, daemon=True).start()
        client.webhooks.subscribe(f"http://127.0.0.1:{server.port}/webhooks/billing", "InvoiceApproved")
        now = sandbox.clock.now()
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
        # The month ends, and a day later the invoice is approved.
        sandbox.call("POST", "/_sandbox/clock", {"advance": "P40D"})
        sandbox.call("POST", "/_sandbox/flush", {})  # waits until all was sent
        server.shutdown()
        server.server_close()

    assert list(app.extensions["books"].values()) == [20]
