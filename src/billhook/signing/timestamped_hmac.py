"""One header with the time and the signatures, `t=<seconds>,v1=<hex>`, as Stripe sends it."""

from __future__ import annotations

from typing import ClassVar, final

from billhook.signing.template import SignatureTemplate

__all__ = ["TimestampedHMAC"]


@final
class TimestampedHMAC(SignatureTemplate):
    """Hex HMAC-SHA256 over `timestamp.body`; the secret's UTF-8 bytes are the key, prefix and all.

    Exactly one `t`; entries that are neither `t` nor `v1` are passed over.
    """

    __slots__ = ()

    name: ClassVar[str] = "timestamped-hmac"

    def __init__(self, header: str = "X-Webhook-Signature") -> None:
        super().__init__(
            content="{timestamp}.{body}", signature_header=header, signature_entry="v1", time_entry="t"
        )
