"""WHO said it: signature schemes as pure functions, bytes in and a verdict out.

Nothing here reads a clock, opens a file or logs. `cryptography` is imported only when a public key is used,
so that an app with shared secrets alone never pays for it.
"""

from __future__ import annotations

from billhook.signing.base import Claim, Scheme, Verified
from billhook.signing.body_hmac import BodyHMAC
from billhook.signing.body_jwt import BodyJWT
from billhook.signing.keys import Keys
from billhook.signing.standard_webhooks import StandardWebhooks
from billhook.signing.template import SignatureTemplate
from billhook.signing.timestamped_hmac import TimestampedHMAC
from billhook.signing.timestamped_rsa import TimestampedRSA

__all__ = [
    "BodyHMAC",
    "BodyJWT",
    "Claim",
    "Keys",
    "Scheme",
    "SignatureTemplate",
    "StandardWebhooks",
    "TimestampedHMAC",
    "TimestampedRSA",
    "Verified",
]
