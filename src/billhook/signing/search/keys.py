"""Generate the keys that a captured request may have been signed with.

A key is a secret as it is, decoded, or with a prefix too many or too few.

For billhook.signing.search only: the comparisons do not take constant time, which is harmless because the
operator who runs the search has the secret. A receiver must not use them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from billhook.errors import ConfigError
from billhook.signing import algorithms
from billhook.signing.algorithms import ED25519, RSA_SHA256, SECRET_ENCODINGS, SecretEncoding, digest_of
from billhook.signing.search.captured import HMAC_LENGTHS
from billhook.signing.secret_text import plain_secret
from billhook.signing.standard_webhooks import SECRET_PREFIX, URL_SAFE

_KEY_PREFIX: Final = re.compile(r"[A-Za-z]{2,8}_(?=.)")


@dataclass(frozen=True, slots=True)
class CandidateKey:
    """One reading of one secret; `number` is the position of the secret in its list, from 1.

    `signatures.get(compute(content))` is the captured signature of a content, or None. A scheme has to be
    configured with `secret` and `encoding`; `change` says how that differs from the given secret, "" if it
    does not.
    """

    number: int
    given: str = field(repr=False)
    algorithm: str
    secret: str = field(repr=False)
    encoding: SecretEncoding
    change: str
    signatures: Mapping[bytes, bytes] = field(repr=False)
    compute: Callable[[bytes], bytes] = field(repr=False)


def key_forms(number: int, given: str, captured: Collection[bytes]) -> Iterator[CandidateKey]:
    """Yield the readings of a secret with which one of the `captured` signatures could have been made.

    Raises ConfigError for a public key that is unusable.
    """
    plain, surroundings = plain_secret(given)
    leave = f"leave out {surroundings}" if surroundings else ""
    for algorithm, text, encoding, change in _readings(plain):
        try:
            signatures, compute = _signing(algorithm, text, encoding, captured)
        except ConfigError:
            if algorithm.startswith("hmac") or change:  # it is a key of another kind
                continue
            raise
        if signatures:
            changes = ", and ".join(filter(None, (leave, change)))
            yield CandidateKey(number, given, algorithm, text, encoding, changes, signatures, compute)


def _readings(secret: str) -> Iterator[tuple[str, str, SecretEncoding, str]]:
    """Yield algorithm, spelling and encoding of each possible reading, and how to change the secret."""
    write_public = "write it as whpk_ and the base64 of its"
    if secret.lstrip().startswith("-----BEGIN"):
        public = algorithms.pem_public_key(secret)
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if isinstance(public, Ed25519PublicKey):
            yield ED25519.name, _whpk(public.public_bytes_raw()), "text", f"{write_public} last 32 bytes"
        elif not isinstance(public, EllipticCurvePublicKey):  # such a key is for tokens alone
            yield RSA_SHA256.name, secret, "text", ""
        return
    if secret.startswith(algorithms.PUBLIC_PREFIX):
        yield ED25519.name, secret, "text", ""
    for decode in (SECRET_ENCODINGS["hex"], SECRET_ENCODINGS["base64"]):
        with suppress(ConfigError):
            yield ED25519.name, _whpk(decode(secret)), "text", f"{write_public} 32 bytes"
    prefix = _KEY_PREFIX.match(secret)
    bare, leave = (secret[prefix.end() :], f"leave out its prefix {prefix[0]}") if prefix else (secret, "")
    other = (bare, leave) if prefix else (SECRET_PREFIX + secret, f"write {SECRET_PREFIX} before it")
    shared: list[tuple[str, SecretEncoding, str]] = [
        (secret, "text", ""), (other[0], "text", other[1]), (bare, "hex", leave), (bare, "base64", leave),
    ]  # fmt: skip
    if set("-_") & set(bare):
        change = "write + for each - in it, and / for each _"
        shared.append((bare.translate(URL_SAFE), "base64", f"{leave}, and {change}" if leave else change))
    for (text, encoding, change), digest in product(shared, HMAC_LENGTHS):
        yield f"hmac-{digest}", text, encoding, change


def _whpk(raw: bytes) -> str:
    return algorithms.PUBLIC_PREFIX + base64.b64encode(raw).decode()


def _signing(
    algorithm: str, text: str, encoding: SecretEncoding, captured: Collection[bytes]
) -> tuple[Mapping[bytes, bytes], Callable[[bytes], bytes]]:
    """Return CandidateKey.signatures, empty if none can be the key's, and CandidateKey.compute."""
    if algorithm == ED25519.name:
        key, own = ED25519.load(text), {raw: raw for raw in captured if len(raw) == 64}
        return own, lambda content: next((raw for raw in own if key.matches(content, [raw])), b"")
    if algorithm == RSA_SHA256.name:
        from cryptography.exceptions import InvalidSignature

        # An RSA signature shows what it signs, so no content has to be tried with the key.
        public, digests = algorithms.rsa_public_key(text), {}
        for raw in captured:
            with suppress(InvalidSignature):
                digests[public.recover_data_from_signature(raw, *algorithms.pkcs1_sha256())] = raw
        return digests, lambda content: hashlib.sha256(content).digest()
    digest, material = digest_of(algorithm), SECRET_ENCODINGS[encoding](text)
    own = {raw: raw for raw in captured if len(raw) == HMAC_LENGTHS[digest]}
    return own, lambda content: hmac.digest(material, content, digest)
