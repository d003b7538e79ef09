"""Scheme: the one way to verify a delivery; a concrete scheme only adds how its headers are read.

The order is fixed: form of the headers, then signature, then time. The causes `stale` and `future` in a log
are therefore always about authentic deliveries (a replay, or a wrong clock); an attacker without the secret
cannot produce them. A public-key signature costs a hundred times as much to verify as an HMAC, so it is not
verified when the stated time is outside the tolerance: the cause is then `mismatch`, because nothing proves
who stated that time.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final, NamedTuple, TypeAlias, final

from billhook.errors import ConfigError, SignatureError, SignatureMismatch, TimestampInFuture, TimestampTooOld
from billhook.signing.algorithms import Key
from billhook.signing.secret_text import plain_secret
from billhook.signing.times import require_aware

Secret: TypeAlias = str | Mapping[str, str]
"""A secret or PEM, or {key id: PEM} where the sender names its key."""

Secrets: TypeAlias = Sequence[Secret] | Mapping[str, str]


TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # Source: RFC 9110, section 5.6.2


@final
class Keys:
    """The keys of one source; neither repr() nor str() shows them."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Sequence[tuple[str | None, Key]]) -> None:
        self._keys: Final = tuple(keys)

    @classmethod
    def load(cls, secrets: Secrets, load_one: Callable[[str], Key], *, need_ids: bool = False) -> Keys:
        """Load each secret with `load_one`; a {key id: secret} mapping stands for its items."""
        pairs = _pairs(secrets)
        if not pairs:
            raise ConfigError("no secret was given: list at least one")
        if need_ids and any(key_id is None for key_id, _ in pairs):
            raise ConfigError("key_id_header needs {key id: key} mappings, got a key without an id")
        ids = [key_id for key_id, _ in pairs if key_id is not None]
        if len(set(ids)) < len(ids):
            raise ConfigError("a key id is given twice: each key needs its own")
        return cls([(key_id, load_one(usable_secret(secret))) for key_id, secret in pairs])

    def accept(
        self,
        content: bytes,
        signatures: Mapping[str, Sequence[bytes]],
        key_id: str | None,
        *,
        public: bool = True,
    ) -> bool:
        """Return True if a key (the one with `key_id`, unless that is None) made one of `signatures`.

        `public=False` leaves public keys out. All candidates are verified even after a match, so that the
        time taken reveals nothing.
        """
        found = False
        for own_id, key in self._keys:
            if (key_id is None or key_id == own_id) and (public or not key.public):
                candidates = signatures.get(key.algorithm)
                if candidates:
                    found |= key.matches(content, candidates)
        return found

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"<Keys: {len(self._keys)}>"


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
    begins_at: datetime | None = None
    """When the signature becomes valid, if the sender states it."""


class Scheme(ABC):
    """One way of signing webhooks. Immutable, without secrets, shared by all threads."""

    name: ClassVar[str]
    options: ClassVar[Mapping[str, str]] = {}
    """The options (fields of Settings) that have a choice here, each with the argument that takes it."""
    headers: tuple[str, ...]
    """The names of the headers that it reads and writes."""
    separator: str | None = None
    """What is between the signatures of several secrets in one header; None where it holds one."""

    def _use_headers(self, *names: str) -> None:
        """Set `headers`; raise ConfigError for an invalid name, and for one header with two meanings."""
        lowered: set[str] = set()
        for name in names:
            if not isinstance(name, str) or not TOKEN.fullmatch(name):
                raise ConfigError(f"{name!r} cannot be the name of a header")
            if name.lower() in lowered:
                raise ConfigError(f"the header {name!r} is given two meanings: each needs its own")
            lowered.add(name.lower())
        self.headers = names

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

        Raises ValueError for an id, type or time that cannot be signed, and ConfigError or WeakSecret for a
        secret that cannot be used.
        """

    @property
    def signs_time(self) -> bool:
        """Whether a time is signed, so that an old delivery is refused as stale."""
        return True

    @property
    def signs_type(self) -> bool:
        """Whether the event type is signed, which then has to be in a header."""
        return False

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
        if now.tzinfo is None and (signed.signed_at or signed.ends_at or signed.begins_at):
            require_aware(now)  # raises
        age_seconds = 0.0 if signed.signed_at is None else (now - signed.signed_at).total_seconds()
        # Both directions: a signature from the future could be kept and sent when its time has come.
        fresh = abs(age_seconds) <= tolerance_seconds
        if not keys.accept(signed.content, signed.signatures, signed.key_id, public=fresh):
            why = "no signature in the request matches its content under any known key"
            if not fresh:
                why += f"; public keys were not tried, as its time is {abs(age_seconds):.1f} s from now"
            raise SignatureMismatch(why)
        if not fresh:
            tolerance = f"the tolerance is {tolerance_seconds} s"
            error: SignatureError = TimestampTooOld(f"signed {age_seconds:.1f} s ago, {tolerance}")
            if age_seconds < 0:
                error = TimestampInFuture(f"signed {-age_seconds:.1f} s ahead of this clock, {tolerance}")
            error.age_seconds = age_seconds
            raise error
        if signed.ends_at is not None and now >= signed.ends_at:
            raise TimestampTooOld(f"the signature expired at {signed.ends_at.isoformat()}")
        # The tolerance counts here: a sender whose clock is ahead may state the moment of signing.
        if signed.begins_at is not None and (signed.begins_at - now).total_seconds() > tolerance_seconds:
            raise TimestampInFuture(f"the signature is not good before {signed.begins_at.isoformat()}")
        # Only signed bytes identify a delivery: an unsigned header could be changed to repeat it.
        key = signed.message_id or "sha256:" + hashlib.sha256(signed.content).hexdigest()
        return Verified(key, signed.signed_at)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(self.headers)}>"


def check_option(name: str, value: object, allowed: Iterable[object]) -> None:
    """Raise ConfigError unless the value of an option is one of those that are allowed."""
    if value not in allowed:
        raise ConfigError(f"{name} {value!r} is not one of {', '.join(map(str, allowed))}")


def usable_secret(secret: object) -> str:
    """Return `secret` if it is text to which nothing was added while it was copied.

    Raises ConfigError otherwise, which never contains its value.
    """
    if not isinstance(secret, str):
        raise ConfigError(f"a secret must be a str, got {type(secret).__name__}")
    # Half a surrogate pair cannot be encoded: the error would come at the first delivery.
    if any("\ud800" <= character <= "\udfff" for character in secret):
        raise ConfigError("a secret holds characters that are not valid Unicode text")
    plain, what = plain_secret(secret)
    if what:
        raise ConfigError(f"a secret has {what}, which would be part of the key: remove it")
    return plain


def single_secret(secret: Secret) -> tuple[str | None, str]:
    """Return the key id, or None, and the secret to sign with. Raises ConfigError for several secrets."""
    if not isinstance(secret, Mapping):
        return None, usable_secret(secret)
    if len(secret) != 1:
        raise ConfigError(f"sign with one key, got a mapping of {len(secret)}")
    ((key_id, text),) = _pairs(secret)
    return key_id, usable_secret(text)


def _pairs(secrets: Secrets) -> list[tuple[str | None, object]]:
    value: object = secrets
    if isinstance(value, Mapping):
        for key_id in value:
            if not isinstance(key_id, str) or not key_id:
                raise ConfigError(f"a key id must be a str and not empty, got {type(key_id).__name__}")
        return list(value.items())
    # A str is a sequence too: each of its characters would become a secret.
    if isinstance(value, str | bytes | bytearray) or not isinstance(value, Sequence):
        raise ConfigError(f"secrets must be a list, newest first, got {type(value).__name__}")
    pairs: list[tuple[str | None, object]] = []
    for secret in value:
        pairs += _pairs(secret) if isinstance(secret, Mapping) else [(None, secret)]
    return pairs
