"""Signing secrets: taken from the options, or generated for the scheme and stored; rotated on request.

Secrets from the options are never stored. A rotation lasts until the sandbox is next started with secrets.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from billhook.errors import ConfigError
from billhook.sandbox.storage.database import Transaction
from billhook.signing import Scheme

Secret = str | Mapping[str, str]
"""A secret or PEM, or {key id: PEM} where the scheme names its key."""

_THEN = datetime(2026, 1, 1, tzinfo=UTC)


def for_receivers(scheme: Scheme, secret: Secret) -> Secret:
    """Return what verifies signatures of `secret`: the shared secret itself, or the public key of a pair."""
    try:
        scheme.load([secret])
    except ConfigError:
        if isinstance(secret, Mapping):
            return {key_id: _public(text) for key_id, text in secret.items()}
        return _public(secret)
    return secret


def new_secret(scheme: Scheme) -> Secret:
    """Return a random secret in a form that the scheme can sign with; ConfigError if none is found."""
    # Tried in turn: a custom scheme does not say which form its secrets have.
    random = base64.b64encode(secrets.token_bytes(32)).decode()
    hexadecimal = secrets.token_hex(32)  # is base64, too
    for text in (f"whsec_{random}", hexadecimal, f"whsk_{random}", None):
        text = text or _rsa()
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
        with suppress(ValueError):  # the scheme cannot sign this type or this id; other values may fit
            scheme.sign(b"{}", secret, event_type="A", now=_THEN, message_id="1")


def is_public(scheme: Scheme, secret: Secret) -> bool:
    """Return True if receivers alone can use `secret`: it is the public key of a pair."""
    try:
        check_secrets(scheme, [secret])
    except ConfigError:
        return True
    return False


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


_MADE = "signing_secrets"
_ROTATED = "rotated_secrets"
_FROM_OPTIONS = "given"
"""Placeholder in the stored rotation for the newest secret of the options, which is never stored."""


@dataclass(frozen=True, slots=True)
class Signer:
    """A scheme with the secrets that sign now, newest first."""

    scheme: Scheme
    secrets: Sequence[Secret] = field(repr=False)

    def sign(self, body: bytes, *, event_type: str, now: datetime, message_id: str) -> dict[str, str]:
        """Return the scheme's headers, signed with each secret. ValueError for what cannot be signed."""
        signed = [
            self.scheme.sign(body, secret, event_type=event_type, now=now, message_id=message_id)
            for secret in self.secrets
        ]
        return {name: self._joined([one[name] for one in signed]) for name in signed[0]}

    def _joined(self, values: list[str]) -> str:
        separator = self.scheme.separator
        if separator is None or len(set(values)) == 1:
            return values[0]
        # What all of them have, such as the time, once.
        return separator.join(dict.fromkeys(part for value in values for part in value.split(separator)))


def ensure_secret(tx: Transaction) -> None:
    """Make sure there is a secret: of the options, else the stored ones, else a new one."""
    scheme = tx.options.scheme
    # A start with secrets begins anew with these, as the options say.
    if tx.options.secrets:
        tx.store_setting(_ROTATED, None)
        return
    try:
        check_secrets(scheme, _kept(tx))
    except ConfigError:  # none, or those of another scheme
        _keep(tx, [new_secret(scheme)])


def current_signer(tx: Transaction) -> Signer:
    """Return the signer with the secrets in use; only one, if the scheme cannot overlap."""
    made = Signer(tx.options.scheme, _kept(tx))
    return made if made.scheme.separator else Signer(made.scheme, made.secrets[:1])


def rotate(tx: Transaction, *, overlap: bool) -> Secret:
    """Sign with a new secret from now on, with `overlap` also with the previous one.

    Returns what receivers verify with.
    """
    secret = new_secret(tx.options.scheme)
    _keep(tx, [secret, *(_kept(tx)[:1] if overlap else ())])
    return for_receivers(tx.options.scheme, secret)


def verification_secret(tx: Transaction) -> Secret:
    """Return what verifies signatures of the newest secret."""
    return for_receivers(tx.options.scheme, _kept(tx)[0])


def _kept(tx: Transaction) -> list[Secret]:
    from_options = list(tx.options.secrets)
    name = _ROTATED if from_options else _MADE
    found = tx.setting(name)
    if found is None:
        return from_options
    return [from_options[0] if one == _FROM_OPTIONS else one for one in found]


def _keep(tx: Transaction, found: Sequence[Secret]) -> None:
    from_options = list(tx.options.secrets)
    name = _ROTATED if from_options else _MADE
    tx.store_setting(name, [_FROM_OPTIONS if one in from_options else one for one in found])
