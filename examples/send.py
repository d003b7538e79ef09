"""Send one signed sample event to a receiver, as the billing service would.

    python examples/send.py InvoiceApproved http://127.0.0.1:8000/webhooks/billing

The secret is the first of BILLHOOK_SECRETS, or of FLASK_BILLHOOK_SECRETS. Fields are changed with
`--set NAME=VALUE`; `--id` sends the same delivery again, which the receiver answers as a duplicate.
"""

from __future__ import annotations

import argparse
import os
import sys
import urllib.error
import urllib.request
from datetime import UTC, datetime

from billhook.events import EVENT_TYPES, sample
from billhook.signing import StandardWebhooks


def main() -> None:
    """Sign, send, and print the answer; exits with 1 for any other than 200."""
    parser = argparse.ArgumentParser(description="Send one signed sample event.")
    parser.add_argument("type", choices=sorted(EVENT_TYPES), metavar="TYPE")
    parser.add_argument("url")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="changes")
    parser.add_argument("--id", help="the delivery's id (default: a new one)")
    options = parser.parse_args()

    secrets = os.environ.get("BILLHOOK_SECRETS") or os.environ.get("FLASK_BILLHOOK_SECRETS")
    if not secrets:
        sys.exit("set BILLHOOK_SECRETS or FLASK_BILLHOOK_SECRETS to the receiver's secret")
    changes = dict(change.split("=", 1) for change in options.changes)
    body = sample(EVENT_TYPES[options.type], **changes).to_json()
    signature = StandardWebhooks().sign(
        body,
        secrets.split(",")[0].strip(),
        event_type=options.type,
        now=datetime.now(UTC),
        message_id=options.id,
    )
    headers = {"Content-Type": "application/json", "X-Webhook-Type": options.type, **signature}
    request = urllib.request.Request(options.url, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            print(answer.status, answer.read().decode())
    except urllib.error.HTTPError as error:
        sys.exit(f"{error.code} {error.read().decode()}")


if __name__ == "__main__":
    main()
