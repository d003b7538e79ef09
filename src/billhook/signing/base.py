"""The one way a delivery is verified; a scheme adds only how its headers are read.

Order: the shape of the headers, then the signature, then the time. So the causes `stale` and `future` in
a log are always about authentic deliveries (a replay, or a clock that is wrong), and nobody without the
secret can make them. A signature by a public key costs a hundred times what HMAC costs, so where the time
that it states is outside the tolerance it is not verified: the cause is `mismatch`, for nobody can say then
who stated that time.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, NamedTuple

from billhook.errors import SignatureError, SignatureMismatch, TimestampInFuture, TimestampTooOld
from billhook.signing.keys import Keys, Secret, Secrets
from billhook.signing.strict import is_identifier
from billhook.signing.times import aware

__all__ = ["Claim", "Scheme", "Verified", "identifier_to_sign"]


@dataclass(frozen=True, slots=True)
class Verified:
    """The verdict on an authentic delivery.

    `key` names the delivery: the signed id, else "sha256:" and the hex SHA-256 of the exact signed bytes.
    `signed_at` is aware UTC, or None where the scheme signs no time.
    """

    key: str
    signed_at: datetime | None


class Claim(NamedTuple):
    """What the headers say, well-formed and not yet believed."""

    content: bytes
    """The bytes that must have been signed."""
    signatures: Mapping[str, Sequence[bytes]]
    """Decoded, by the algorithm that may judge them: the sender cannot name one that is not configured."""
    signed_at: datetime | None = None
    """Aware UTC."""
    message_id: str | None = None
    key_id: str | None = None
    ends_at: datetime | None = None
    """From when on it is good no more, where the sender says so."""


class Scheme(ABC):
    """One way of signing webhooks. Immutable, without secrets, shared by all threads."""

    __slots__ = ()

    name: ClassVar[str]
    headers: tuple[str, ...]
    """The names of the headers that it reads and writes."""

    @abstractmethod
    def load(self, secrets: Secrets) -> Keys:
        """Decode and judge the secrets, once, at start; ConfigError or WeakSecret for what cannot be used."""

    @abstractmethod
    def read(self, headers: Mapping[str, str], body: bytes, event_type: str) -> Claim:
        """The claim that the headers make; SignatureMissing or SignatureMalformed, and nothing else."""

    @abstractmethod
    def sign(
        self, body: bytes, secret: Secret, *, event_type: str, now: datetime, message_id: str | None = None
    ) -> dict[str, str]:
        """The headers that a sender adds, all but X-Webhook-Type.

        ValueError for an id, type or time unfit to be signed, ConfigError or WeakSecret for such a secret.
        """

    def verify(
        self,
        headers: Mapping[str, str],
        body: bytes,
        keys: Keys,
        *,
        event_type: str,
        now: datetime,
        tolerance_seconds: int,
    ) -> Verified:
        """Verify one delivery, or raise a SignatureError, whatever the headers and the body hold.

        `headers` ignores case; `now` is aware; a signature exactly `tolerance_seconds` away is still good.
        """
        claim = self.read(headers, body, event_type)
        age_seconds = 0.0 if claim.signed_at is None else (aware(now) - claim.signed_at).total_seconds()
        fresh = abs(age_seconds) <= tolerance_seconds
        if not keys.accept(claim.content, claim.signatures, claim.key_id, public=fresh):
            why = "no signature in the request matches its content under any known key"
            if not fresh:
                why += f"; public keys were not asked, for it states a time {abs(age_seconds):.1f} s from now"
            raise SignatureMismatch(why)
        if not fresh:
            raise _outside(age_seconds, tolerance_seconds)
        if claim.ends_at is not None and aware(now) >= claim.ends_at:
            raise TimestampTooOld(f"what was signed ended at {claim.ends_at.isoformat()}")
        key = claim.message_id or "sha256:" + hashlib.sha256(claim.content).hexdigest()
        return Verified(key, claim.signed_at)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(self.headers)}>"


def identifier_to_sign(message_id: str | None) -> str:
    """`message_id` itself when a receiver would take it; a new random one for None."""
    if message_id is None:
        return f"msg_{os.urandom(16).hex()}"
    if not is_identifier(message_id):
        raise ValueError('message_id must be 1 to 256 printable ASCII characters without "." and ","')
    return message_id


def _outside(age_seconds: float, tolerance_seconds: int) -> SignatureError:
    tolerance = f"the tolerance is {tolerance_seconds} s"
    if age_seconds > 0:
        return TimestampTooOld(f"signed {age_seconds:.1f} s ago, {tolerance}")
    return TimestampInFuture(f"signed {-age_seconds:.1f} s ahead of this clock, {tolerance}")
