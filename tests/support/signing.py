"""A sender of signed deliveries: its secrets, its bodies, and the headers of one good delivery."""

from __future__ import annotations

from datetime import UTC, datetime

from billhook.signing import StandardWebhooks

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"
PATH = "/webhooks/billing"
PING = "PingTest"
APPROVED = b'{"date":"2026-01-15T09:30:00Z","invoiceId":"inv_1"}'


def signed(
    body: bytes = b"{}",
    event_type: str = PING,
    *,
    message_id: str | None = None,
    at: datetime | None = None,
    secret: str = SECRET,
) -> dict[str, str]:
    """The headers of one good delivery."""
    headers = StandardWebhooks().sign(
        body, secret, event_type=event_type, now=at or datetime.now(UTC), message_id=message_id
    )
    return {"X-Webhook-Type": event_type, "Content-Type": "application/json", **headers}


def signed_by_package(body: bytes, event_type: str, key: str, secret: str = SECRET) -> dict[str, str]:
    """The headers of one good delivery, signed by the package standardwebhooks."""
    from standardwebhooks import Webhook

    now = datetime.now(UTC)
    return {
        "webhook-id": key,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(key, now, body.decode()),
        "X-Webhook-Type": event_type,
        "Content-Type": "application/json",
    }
