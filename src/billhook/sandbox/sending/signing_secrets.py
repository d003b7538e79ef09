"""What deliveries are signed with: given, or made to fit the scheme and kept; rotated on request.

What was given is never written down. A rotation holds until a start at which secrets are given again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from billhook.errors import ConfigError
from billhook.sandbox.options import SandboxOptions
from billhook.sandbox.sending.key_material import Secret, check_secrets, for_receivers, new_secret
from billhook.sandbox.storage import facts
from billhook.sandbox.transaction import Transaction
from billhook.signing import Scheme, StandardWebhooks, TimestampedHMAC
from billhook.wire import strict_json

__all__ = ["Signer", "begin", "check_given", "rotate", "signer", "told"]

_MADE = "signing_secrets"
_ROTATED = "rotated_secrets"
_GIVEN = "given"
"""Stands for the newest of those that were given, in what is written down."""
_THEN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Signer:
    """A scheme with the secrets that sign now, newest first; only schemes that can have more than one."""

    scheme: Scheme
    secrets: Sequence[Secret] = field(repr=False)

    def sign(self, body: bytes, *, event_type: str, now: datetime, message_id: str) -> dict[str, str]:
        """The scheme's headers, with a signature of each secret. ValueError for what cannot be signed."""
        signed = [
            self.scheme.sign(body, secret, event_type=event_type, now=now, message_id=message_id)
            for secret in self.secrets
        ]
        return {name: self._joined([one[name] for one in signed]) for name in signed[0]}

    @property
    def can_overlap(self) -> bool:
        """Has a delivery room for the signatures of two secrets?"""
        return isinstance(self.scheme, StandardWebhooks | TimestampedHMAC)

    @property
    def signs_time(self) -> bool:
        """Can a delivery be stale?"""
        early, late = (
            self.sign(b"{}", event_type="A", now=now, message_id="1")
            for now in (_THEN, _THEN + timedelta(hours=1))
        )
        return early != late

    def _joined(self, values: list[str]) -> str:
        if len(set(values)) == 1:
            return values[0]
        if isinstance(self.scheme, StandardWebhooks):
            return " ".join(values)
        return ",".join([values[0], *(value.partition(",")[2] for value in values[1:])])  # t=…,v1=…,v1=…


def check_given(options: SandboxOptions) -> None:
    """Raise ConfigError for a given secret that the scheme cannot sign with."""
    if options.secrets:
        check_secrets(options.scheme, options.secrets)


def begin(tx: Transaction) -> None:
    """See that there is a secret: those of the options if any, else those that are kept, else a new one."""
    scheme = tx.options.scheme
    if tx.options.secrets:
        facts.forget(tx.connection, _ROTATED)
        return
    try:
        check_secrets(scheme, _kept(tx))
    except ConfigError:  # none, or those of another scheme
        _keep(tx, [new_secret(scheme)])


def signer(tx: Transaction) -> Signer:
    """What signs now."""
    made = Signer(tx.options.scheme, _kept(tx))
    return made if made.can_overlap else Signer(made.scheme, made.secrets[:1])


def rotate(tx: Transaction, *, overlap: bool) -> Secret:
    """Sign with a new secret from now on, and with the one before it as well if they are to overlap.

    Gives what receivers verify with.
    """
    secret = new_secret(tx.options.scheme)
    _keep(tx, [secret, *(_kept(tx)[:1] if overlap else ())])
    return for_receivers(tx.options.scheme, secret)


def told(tx: Transaction) -> Secret:
    """What receivers verify with, of the newest secret."""
    return for_receivers(tx.options.scheme, _kept(tx)[0])


def _kept(tx: Transaction) -> list[Secret]:
    given = list(tx.options.secrets)
    name = _ROTATED if given else _MADE
    text = facts.recall(tx.connection, name)
    if text is None:
        return [*given]
    found: Any = strict_json.loads(text.encode())
    return [given[0] if one == _GIVEN else one for one in found]


def _keep(tx: Transaction, found: Sequence[Secret]) -> None:
    given = list(tx.options.secrets)
    name = _ROTATED if given else _MADE
    text = strict_json.dumps([_GIVEN if one in given else one for one in found]).decode()
    facts.remember(tx.connection, name, text)
