"""Scheme: the one way to verify a delivery; a concrete scheme only adds how its headers are read.

The order is fixed: form of the headers, then signature, then time. The causes `stale` and `future` in a log
are therefore always about authentic deliveries (a replay, or a wrong clock); an attacker without the secret
cannot produce them. A public-key signature costs a hundred times as much to verify as an HMAC, so it is not
verified when the stated time is outside the tolerance: the cause is then `mismatch`, because nothing proves
who stated that time.
"""

from __future__ import annotations

import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final, NamedTuple

from billhook.errors import ConfigError, SignatureError, SignatureMismatch, TimestampInFuture, TimestampTooOld
from billhook.signing.keys import Keys, Secret, Secrets
from billhook.signing.parsing import is_identifier
from billhook.signing.times import require_aware

__all__ = ["Scheme", "SignedContent", "Verified", "check_header_names", "outgoing_message_id"]


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of verifying an authentic delivery.

    `key` names the delivery: the signed id, else "sha256:" and the hex SHA-256 of the exact signed bytes.
    `signed_at` is aware UTC, or None where the scheme signs no time.
    """

    key: str
    signed_at: datetime | None


class SignedContent(NamedTuple):
    """The signed bytes and the signatures of a request, well-formed and not yet verified."""

    content: bytes
    """The bytes that must have been signed."""
    signatures: Mapping[str, Sequence[bytes]]
    """The decoded signatures by algorithm. A sender cannot choose an algorithm that is not configured."""
    signed_at: datetime | None = None
    """Aware UTC."""
    message_id: str | None = None
    key_id: str | None = None
    ends_at: datetime | None = None
    """When the signature expires, if the sender states it."""


class Scheme(ABC):
    """One way of signing webhooks. Immutable, without secrets, shared by all threads."""

    __slots__ = ()

    name: ClassVar[str]
    headers: tuple[str, ...]
    """The names of the headers that it reads and writes."""

    @abstractmethod
    def load(self, secrets: Secrets) -> Keys:
        """Decode and check the secrets once, at start. Raises ConfigError and WeakSecret."""

    @abstractmethod
    def read(self, headers: Mapping[str, str], body: bytes, event_type: str) -> SignedContent:
        """Parse the headers. Raises SignatureMissing or SignatureMalformed, and nothing else."""

    @abstractmethod
    def sign(
        self, body: bytes, secret: Secret, *, event_type: str, now: datetime, message_id: str | None = None
    ) -> dict[str, str]:
        """Return the headers that a sender adds, except X-Webhook-Type.

        ValueError for an id, type or time that cannot be signed; ConfigError or WeakSecret for such a secret.
        """

    @property
    def signs_time(self) -> bool:
        """Whether a time is signed, so that an old delivery goes stale."""
        return True

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
        """Verify one delivery; raise SignatureError, and no other error for any headers and body.

        `headers` ignores case; `now` is aware; a signature exactly `tolerance_seconds` away is still good.
        """
        signed = self.read(headers, body, event_type)
        age_seconds = (
            0.0 if signed.signed_at is None else (require_aware(now) - signed.signed_at).total_seconds()
        )
        # Both directions: a signature from the future could be kept and sent when its time has come.
        fresh = abs(age_seconds) <= tolerance_seconds
        if not keys.accept(signed.content, signed.signatures, signed.key_id, public=fresh):
            why = "no signature in the request matches its content under any known key"
            if not fresh:
                why += f"; public keys were not tried, as its time is {abs(age_seconds):.1f} s from now"
            raise SignatureMismatch(why)
        if not fresh:
            raise _outside(age_seconds, tolerance_seconds)
        if signed.ends_at is not None and require_aware(now) >= signed.ends_at:
            raise TimestampTooOld(f"the signature expired at {signed.ends_at.isoformat()}")
        # Only signed bytes identify a delivery: an unsigned header could be changed to repeat it.
        key = signed.message_id or "sha256:" + hashlib.sha256(signed.content).hexdigest()
        return Verified(key, signed.signed_at)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(self.headers)}>"


def outgoing_message_id(message_id: str | None) -> str:
    """Return `message_id` if receivers accept it, ValueError otherwise; a new random one for None."""
    if message_id is None:
        return f"msg_{os.urandom(16).hex()}"
    if not is_identifier(message_id):
        raise ValueError('message_id must be 1 to 256 printable ASCII characters without "." and ","')
    return message_id


def _outside(age_seconds: float, tolerance_seconds: int) -> SignatureError:
    tolerance = f"the tolerance is {tolerance_seconds} s"
    error: SignatureError
    if age_seconds > 0:
        error = TimestampTooOld(f"signed {age_seconds:.1f} s ago, {tolerance}")
    else:
        error = TimestampInFuture(f"signed {-age_seconds:.1f} s ahead of this clock, {tolerance}")
    error.age_seconds = age_seconds
    return error


TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # Source: RFC 9110, section 5.6.2


def check_header_names(names: Sequence[object]) -> None:
    """Raise ConfigError for an invalid header name, and for one header with two meanings."""
    lowered: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not TOKEN.fullmatch(name):
            raise ConfigError(f"{name!r} cannot be the name of a header")
        if name.lower() in lowered:
            raise ConfigError(f"the header {name!r} is given two meanings: each needs its own")
        lowered.add(name.lower())
