"""Secrets in the form that a scheme takes: made anew, and the half of them that receivers need."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from billhook.errors import ConfigError
from billhook.signing import Scheme

__all__ = ["Secret", "check_secrets", "for_receivers", "is_public", "new_secret"]

Secret = str | Mapping[str, str]
"""A secret or PEM, or {key id: PEM} where the scheme names its key."""

_THEN = datetime(2026, 1, 1, tzinfo=UTC)


def for_receivers(scheme: Scheme, secret: Secret) -> Secret:
    """What is needed to verify: a shared secret is the same on both sides, of a key pair it is the public."""
    try:
        scheme.load([secret])
    except ConfigError:
        if isinstance(secret, Mapping):
            return {key_id: _public(text) for key_id, text in secret.items()}
        return _public(secret)
    return secret


def new_secret(scheme: Scheme) -> Secret:
    """A random secret in a form that the scheme signs with; ConfigError if none is found."""
    for make in (_shared, _hexadecimal, _ed25519, _rsa):
        text = make()
        for secret in (text, {f"key-{secrets.token_hex(4)}": text}):
            try:
                check_secrets(scheme, [secret])
            except ConfigError:
                continue
            return secret
    raise ConfigError(f"no secret can be made for the scheme {scheme.name}: give one, secrets=[...]")


def check_secrets(scheme: Scheme, found: Sequence[Secret]) -> None:
    """Raise ConfigError unless the scheme can sign with each of them, and there is one."""
    if not found:
        raise ConfigError("there is no secret to sign with")
    for secret in found:
        with suppress(ValueError):  # of the type or the id, where the scheme's template has no room for them
            scheme.sign(b"{}", secret, event_type="A", now=_THEN, message_id="1")


def is_public(scheme: Scheme, secret: Secret) -> bool:
    """Is it what receivers alone can use: the public key of a pair?"""
    try:
        check_secrets(scheme, [secret])
    except ConfigError:
        return True
    return False


def _shared() -> str:
    return f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"


def _hexadecimal() -> str:
    return secrets.token_hex(32)  # is base64, too


def _ed25519() -> str:
    return f"whsk_{base64.b64encode(secrets.token_bytes(32)).decode()}"


def _rsa() -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _public(secret: str) -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if secret.startswith("whsk_"):
        text = secret.removeprefix("whsk_")
        seed = base64.b64decode(text + "=" * (-len(text) % 4))[:32]
        raw = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
        return f"whpk_{base64.b64encode(raw).decode()}"
    key = serialization.load_pem_private_key(secret.encode(), password=None)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()
