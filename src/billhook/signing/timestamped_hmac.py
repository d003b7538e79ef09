"""One header with the time and the signatures, `t=<seconds>,v1=<hex>`, as Stripe sends it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Final, final

from billhook.errors import SignatureMalformed
from billhook.signing.base import Claim, Scheme, timestamp_to_sign
from billhook.signing.header_names import check_header_names
from billhook.signing.hmac_sha256 import HmacSha256
from billhook.signing.keys import Keys, Secret, Secrets, only_secret
from billhook.signing.strict import (
    MAX_SIGNATURES,
    encode,
    header_value,
    read_signature,
    read_timestamp,
    split_entries,
)

__all__ = ["TimestampedHMAC"]

ALGORITHM: Final = HmacSha256()


@final
class TimestampedHMAC(Scheme):
    """Hex HMAC-SHA256 over `timestamp.body`; the secret's UTF-8 bytes are the key, prefix and all.

    Exactly one `t`; entries that are neither `t` nor `v1` are passed over.
    """

    __slots__ = ("_header", "headers")

    name: ClassVar[str] = "timestamped-hmac"

    def __init__(self, header: str = "X-Webhook-Signature") -> None:
        self.headers = (header,)
        check_header_names(self.headers)
        self._header: Final = header

    def load(self, secrets: Secrets) -> Keys:
        return Keys.load(secrets, ALGORITHM.load)

    def read(self, headers: Mapping[str, str], body: bytes, event_type: str) -> Claim:
        timestamp: int | None = None
        signatures: list[bytes] = []
        text = header_value(headers, self._header)
        for entry in split_entries(text, ",", MAX_SIGNATURES + 1, self._header):
            label, equals, value = entry.partition("=")
            if not (label and equals):
                raise SignatureMalformed(f"{self._header} is not a list of name=value entries")
            if label == "v1":
                signatures.append(read_signature(value, "hex", ALGORITHM.signature_bytes, self._header))
            elif label == "t":
                if timestamp is not None:
                    raise SignatureMalformed(f"{self._header} has more than one t")
                timestamp = read_timestamp(value, self._header)
        if timestamp is None:
            raise SignatureMalformed(f"{self._header} has no t")
        return Claim(b"%d.%b" % (timestamp, body), {ALGORITHM.name: signatures}, timestamp)

    def sign(
        self, body: bytes, secret: Secret, *, event_type: str, now: datetime, message_id: str | None = None
    ) -> dict[str, str]:
        """The one header; this scheme signs neither type nor id."""
        _, text = only_secret(secret)
        timestamp = timestamp_to_sign(now)
        signature = ALGORITHM.sign(text, f"{timestamp}.".encode() + body)
        return {self._header: f"t={timestamp},v1={encode(signature, 'hex')}"}
