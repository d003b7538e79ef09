"""Schemes of well-known senders: templates with names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final, get_args

from billhook.signing.algorithms import HmacName, digest_of
from billhook.signing.scheme import check_option
from billhook.signing.template import ReplayProtection, SignatureTemplate


@final
class TimestampedHMAC(SignatureTemplate):
    """Hex HMAC over `timestamp.body`, with SHA-256 or SHA-512; the secret's UTF-8 bytes are the key.

    Exactly one `t`; entries other than `t` and `v1` are ignored.
    """

    name: ClassVar[str] = "timestamped-hmac"
    options: ClassVar[Mapping[str, str]] = {"signature_header": "header", "signature_algorithm": "algorithm"}

    def __init__(self, header: str = "X-Webhook-Signature", *, algorithm: HmacName = "hmac-sha256") -> None:
        check_option("algorithm", algorithm, get_args(HmacName))
        super().__init__(
            content="{timestamp}.{body}",
            algorithm=algorithm,
            signature_header=header,
            signature_entry="v1",
            time_entry="t",
        )


@final
class TimestampedRSA(SignatureTemplate):
    """Base64 RSA-SHA256 (PKCS#1 v1.5) over `timestamp.body`, the time in a header of its own.

    Secrets are public keys in PEM; {key id: PEM} with `key_id_header`, where the sender names the key.
    """

    name: ClassVar[str] = "timestamped-rsa"
    options: ClassVar[Mapping[str, str]] = {
        "signature_header": "signature_header",
        "timestamp_header": "timestamp_header",
    }

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
    """Hex HMAC of the body, with SHA-256 or SHA-512, after `prefix`: by default `sha256=` or `sha512=`.

    No time is signed, so a captured delivery stays valid, and only deduplication by the inbox stops a replay.
    `replay_protection="dedupe-only"` confirms that this is accepted.
    """

    name: ClassVar[str] = "body-hmac"
    options: ClassVar[Mapping[str, str]] = {
        "signature_header": "header",
        "signature_prefix": "prefix",
        "signature_algorithm": "algorithm",
        "replay_protection": "replay_protection",
    }

    def __init__(
        self,
        header: str = "X-Webhook-Signature",
        prefix: str | None = None,
        *,
        algorithm: HmacName = "hmac-sha256",
        replay_protection: ReplayProtection | None = None,
    ) -> None:
        check_option("algorithm", algorithm, get_args(HmacName))
        super().__init__(
            content="{body}",
            algorithm=algorithm,
            signature_header=header,
            prefix=f"{digest_of(algorithm)}=" if prefix is None else prefix,
            replay_protection=replay_protection,
        )
