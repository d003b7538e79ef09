"""Generate candidate keys from a secret: as it is, decoded, or with a prefix too many or too few.

For billhook.signing.search, whose comparisons take no constant time: an operator who runs it has the secret
anyway. Nothing here is for a receiver.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from billhook.errors import ConfigError
from billhook.signing.algorithms import (
    KEY_BYTES,
    PUBLIC_PREFIX,
    SECRET_ENCODINGS,
    Ed25519,
    RsaSha256,
    SecretEncoding,
)
from billhook.signing.search.captured import HMAC_LENGTHS
from billhook.signing.secret_text import plain_secret
from billhook.signing.standard_webhooks import SECRET_PREFIX, URL_SAFE

_PREFIX: Final = re.compile(r"[A-Za-z]{2,8}_(?=.)")
HMAC_COST_BYTES: Final = 3_000
ED25519_COST_BYTES: Final = 150_000
"""What one look costs beside the bytes that are hashed, as bytes that are hashed in the same time."""

Signatures = Mapping[int, Collection[bytes]]
"""The signatures of a request by their length."""


@dataclass(frozen=True, slots=True)
class CandidateKey:
    """One reading of one secret.

    `matching(content)` is the captured signature over the content, None if there is none. `secret` and
    `encoding` are what a scheme has to be configured with; `change` says how that differs from the secret as
    given, and is "" if it does not. `number` is that of the secret in its list, from 1.
    """

    number: int
    algorithm: str
    secret: str = field(repr=False)
    encoding: SecretEncoding
    change: str
    matching: Callable[[bytes], bytes | None] = field(repr=False)
    cost_bytes: int = HMAC_COST_BYTES


def key_forms(number: int, secret: str, signatures: Signatures) -> Iterator[CandidateKey]:
    """Yield the readings of a secret that could have made one of `signatures`.

    Raises ConfigError for a public key that is unusable.
    """
    plain, surroundings = plain_secret(secret)
    leave = [f"leave out {surroundings}"] if surroundings else []
    if plain.lstrip().startswith("-----BEGIN"):
        yield from _pem_forms(number, plain, leave, signatures)
        return
    for text, change in _ed25519_texts(plain):
        try:
            yield from _ed25519_forms(number, text, [*leave, *change], signatures)
        except ConfigError:
            if not change:  # otherwise it is a shared secret
                raise
    for text, encoding, change in _shared_texts(plain):
        with suppress(ConfigError):
            material = SECRET_ENCODINGS[encoding](text)
            for digest, length in HMAC_LENGTHS.items():
                if wanted := signatures.get(length):
                    matching = partial(_made_by_hmac, material, digest, frozenset(wanted))
                    changes = ", and ".join([*leave, *change])
                    yield CandidateKey(number, f"hmac-{digest}", text, encoding, changes, matching)


def _made_by_hmac(material: bytes, digest: str, wanted: Collection[bytes], content: bytes) -> bytes | None:
    found = hmac.digest(material, content, digest)
    return found if found in wanted else None


def _shared_texts(secret: str) -> Iterator[tuple[str, SecretEncoding, list[str]]]:
    """Yield how a shared secret may have to be written, its encoding, and what has to be changed for it."""
    yield secret, "text", []
    prefix = _PREFIX.match(secret)
    bare = secret if prefix is None else secret[prefix.end() :]
    if prefix is None:
        leave: list[str] = []
        yield SECRET_PREFIX + secret, "text", [f"write {SECRET_PREFIX} before it"]
    else:
        leave = [f"leave out its prefix {prefix[0]}"]
        yield bare, "text", leave
    yield bare, "hex", leave
    yield bare, "base64", leave
    if set("-_") & set(bare):
        yield bare.translate(URL_SAFE), "base64", [*leave, "write + for each - in it, and / for each _"]


def _ed25519_texts(secret: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the spelling of a public key of Standard Webhooks, and what has to be changed for it."""
    if secret.startswith(PUBLIC_PREFIX):
        yield secret, []
    for encoding in ("hex", "base64"):
        with suppress(ConfigError):
            raw = SECRET_ENCODINGS[encoding](secret)
            if len(raw) == KEY_BYTES:
                yield _whpk(raw), ["write it as whpk_ and the base64 of its 32 bytes"]


def _whpk(raw: bytes) -> str:
    return PUBLIC_PREFIX + base64.b64encode(raw).decode()


def _ed25519_forms(
    number: int, text: str, change: list[str], signatures: Signatures
) -> Iterator[CandidateKey]:
    key, wanted = Ed25519().load(text), signatures.get(64, ())

    def matching(content: bytes) -> bytes | None:
        return next((raw for raw in wanted if key.matches(content, [raw])), None)

    if wanted:
        cost = ED25519_COST_BYTES * len(wanted)
        yield CandidateKey(number, Ed25519.name, text, "text", ", and ".join(change), matching, cost)


def _pem_forms(number: int, pem: str, leave: list[str], signatures: Signatures) -> Iterator[CandidateKey]:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    public: Any = None
    with suppress(ValueError, UnsupportedAlgorithm):
        public = load_pem_public_key(pem.encode())
    if isinstance(public, Ed25519PublicKey):
        change = "write it as whpk_ and the base64 of its last 32 bytes"
        yield from _ed25519_forms(number, _whpk(public.public_bytes_raw()), [*leave, change], signatures)
    elif not isinstance(public, EllipticCurvePublicKey):  # such a key is for tokens alone
        RsaSha256().load(pem)  # raises unless it is a public RSA key, and says what it is
        digests = _signed_digests(public, signatures.get((public.key_size + 7) // 8, ()))

        def matching(content: bytes) -> bytes | None:
            return digests.get(hashlib.sha256(content).digest())

        if digests:
            yield CandidateKey(number, RsaSha256.name, pem, "text", ", and ".join(leave), matching)


def _signed_digests(public: Any, signatures: Collection[bytes]) -> dict[bytes, bytes]:
    """Return the signatures that the private key did make, by the SHA-256 that each signs.

    An RSA signature shows what it signs, so no content has to be tried with the key.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    found: dict[bytes, bytes] = {}
    for raw in signatures:
        with suppress(InvalidSignature):
            found[public.recover_data_from_signature(raw, PKCS1v15(), SHA256())] = raw
    return found
