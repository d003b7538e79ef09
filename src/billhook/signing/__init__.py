"""Signature schemes as pure functions: verify and sign bytes.

Nothing here reads a clock, opens a file or logs. `cryptography` is imported only when a public key is used,
so that an app with shared secrets alone never pays for it.
"""

from __future__ import annotations

from billhook.signing.body_jwt import BodyJWT
from billhook.signing.presets import BodyHMAC, TimestampedHMAC, TimestampedRSA
from billhook.signing.scheme import Keys, Scheme, SignedContent, Verified
from billhook.signing.standard_webhooks import StandardWebhooks
from billhook.signing.template import SignatureTemplate

__all__ = [
    "BodyHMAC",
    "BodyJWT",
    "Keys",
    "Scheme",
    "SignatureTemplate",
    "SignedContent",
    "StandardWebhooks",
    "TimestampedHMAC",
    "TimestampedRSA",
    "Verified",
]
