"""Probes: requests of this process that are verified like any delivery and not stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["PROBE", "DeliveryProbe", "find_probe"]

PROBE = "billhook.probe"
"""Key of the probe in the WSGI environ. A client cannot set it: headers arrive as HTTP_… and as text."""


class DeliveryProbe:
    """Put it into the environ of a request made in this process; the receiver sets `status`.

    If `status` is still None afterwards, something else in the app answered the request.
    """

    def __init__(self) -> None:
        self.status: int | None = None


def find_probe(environ: Mapping[str, Any]) -> DeliveryProbe | None:
    """Return the probe of this request; None for a delivery."""
    found = environ.get(PROBE)
    return found if isinstance(found, DeliveryProbe) else None
