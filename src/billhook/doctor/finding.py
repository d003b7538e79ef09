"""A finding of `billhook doctor` and `billhook check`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from billhook.program import in_program

Level = Literal["error", "warning", "note", "ok"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note", "ok")
"""The worst first. An error can lose or forge deliveries, or stops them; a note is for information."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, why it matters, and what to do. `code` names its kind and stays the same.

    With the level `ok` it says only `what` was found to be well. `file` is the text of a file to save.
    """

    level: Level
    code: str
    what: str
    why: str = ""
    remedy: str = ""
    file: str = ""

    @property
    def line(self) -> str:
        """All of it as one sentence."""
        return "; ".join(filter(None, [": ".join(filter(None, [self.what, self.why])), self.remedy]))

    def in_program(self, app: Any = None) -> Self:
        """Return it with its commands as the user has to type them: see `billhook.program`."""
        return replace(self, what=in_program(self.what, app), remedy=in_program(self.remedy, app))
