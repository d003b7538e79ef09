"""A finding of `billhook doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["LEVELS", "Finding", "Level"]

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
"""The worst first. An error can lose or forge deliveries, or stops them; a note is for information."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, why it matters, and what to do. `code` names its kind and stays the same."""

    level: Level
    code: str
    what: str
    why: str
    remedy: str
