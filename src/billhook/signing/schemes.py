"""The schemes that options describe, by the values of BILLHOOK_SIGNATURE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from billhook.signing.presets import BodyHMAC, TimestampedHMAC, TimestampedRSA
from billhook.signing.scheme import Scheme
from billhook.signing.standard_webhooks import StandardWebhooks

SCHEMES: Final[Mapping[str, type[Scheme]]] = {
    each.name: each for each in (StandardWebhooks, TimestampedHMAC, TimestampedRSA, BodyHMAC)
}
"""`billhook doctor signature` tries them in this order."""


def schemes_with(option: str) -> str:
    """Return the names of the schemes that have a choice for an option, for its help."""
    return " and ".join(name for name, scheme in SCHEMES.items() if option in scheme.options)
