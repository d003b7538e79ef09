"""RSA over the time and the body: the receiver holds public keys only."""

from __future__ import annotations

from typing import ClassVar, final

from billhook.signing.template import SignatureTemplate

__all__ = ["TimestampedRSA"]


@final
class TimestampedRSA(SignatureTemplate):
    """Base64 RSA-SHA256 (PKCS#1 v1.5) over `timestamp.body`, the time in a header of its own.

    Secrets are public keys in PEM; with `key_id_header`, {key id: PEM}, and the sender says which.
    """

    __slots__ = ()

    name: ClassVar[str] = "timestamped-rsa"

    def __init__(
        self,
        signature_header: str = "X-Webhook-Signature",
        timestamp_header: str = "X-Webhook-Timestamp",
        key_id_header: str | None = None,
    ) -> None:
        super().__init__(
            content="{timestamp}.{body}",
            algorithm="rsa-sha256",
            encoding="base64",
            signature_header=signature_header,
            timestamp_header=timestamp_header,
            key_id_header=key_id_header,
        )
