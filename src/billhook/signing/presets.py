"""Signature schemes of well-known senders, each one a preset of SignatureTemplate."""

from __future__ import annotations

from typing import ClassVar, final

from billhook.signing.template import ReplayProtection, SignatureTemplate


@final
class TimestampedHMAC(SignatureTemplate):
    """Hex HMAC-SHA256 over `timestamp.body`; the secret's UTF-8 bytes are the key, prefix and all.

    Exactly one `t`; entries other than `t` and `v1` are ignored.
    """

    name: ClassVar[str] = "timestamped-hmac"

    def __init__(self, header: str = "X-Webhook-Signature") -> None:
        super().__init__(
            content="{timestamp}.{body}", signature_header=header, signature_entry="v1", time_entry="t"
        )


@final
class TimestampedRSA(SignatureTemplate):
    """Base64 RSA-SHA256 (PKCS#1 v1.5) over `timestamp.body`, the time in a header of its own.

    Secrets are public keys in PEM; {key id: PEM} with `key_id_header`, where the sender names the key.
    """

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


@final
class BodyHMAC(SignatureTemplate):
    """Hex HMAC-SHA256 of the body, after `prefix`.

    No time is signed, so a captured delivery stays valid, and only deduplication by the inbox stops a replay.
    `replay_protection="dedupe-only"` confirms that this is accepted.
    """

    name: ClassVar[str] = "body-hmac"

    def __init__(
        self, header: str, prefix: str = "sha256=", *, replay_protection: ReplayProtection | None = None
    ) -> None:
        super().__init__(
            content="{body}", signature_header=header, prefix=prefix, replay_protection=replay_protection
        )
