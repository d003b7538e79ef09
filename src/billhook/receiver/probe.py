"""A probe: a delivery that goes the way of all others, is verified, and is not stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["PROBE", "Probe", "probe_of"]

PROBE = "billhook.probe"
"""Its key in the WSGI environ. What a client sends arrives under other keys, and never as an object."""


class Probe:
    """Put it into the environ of a request made in this process; `status` is what the receiver answered.

    None means that something else in the app answered in its place.
    """

    def __init__(self) -> None:
        self.status: int | None = None


def probe_of(environ: Mapping[str, Any]) -> Probe | None:
    """The probe that this request is; None for a delivery."""
    found = environ.get(PROBE)
    return found if isinstance(found, Probe) else None
