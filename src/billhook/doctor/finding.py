"""What a check returns: a finding of `billhook doctor` and `billhook check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from billhook.errors import InboxUnavailable, SchemaMismatch
from billhook.errors.program import in_program

Level = Literal["error", "warning", "note", "ok"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note", "ok")
"""The worst first. An error can lose or forge deliveries, or stops them; a note is for information."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, why it matters, and what to do. `code` names its kind and stays the same.

    With the level `ok` it says only `what` was found to be well. `file` is the text of a file to save.
    Commands in `what` and `remedy` become those that the user has to type: see `billhook.errors.program`.
    """

    level: Level
    code: str
    what: str
    why: str = ""
    remedy: str = ""
    file: str = ""

    def __post_init__(self) -> None:
        for name in ("what", "remedy"):
            object.__setattr__(self, name, in_program(getattr(self, name)))

    @property
    def line(self) -> str:
        """All of it as one sentence."""
        return "; ".join(filter(None, [": ".join(filter(None, [self.what, self.why])), self.remedy]))


def finding_of(error: Exception) -> Finding:
    """Return the finding about an inbox that cannot be read or written, or a part that cannot be loaded."""
    if isinstance(error, SchemaMismatch) and error.stores:
        return Finding(
            "warning", "inbox", str(error), "its receivers store deliveries, and its workers wait",
            "install the billhook that made the schema, and restart receivers and workers",
        )  # fmt: skip
    if isinstance(error, InboxUnavailable | SchemaMismatch):
        what, remedy = str(error), "make the database reachable"
        if isinstance(error, SchemaMismatch):
            what, remedy = error.what, error.remedy
        why = "every delivery is answered 503 until it can be stored"
        return Finding("error", "inbox", what, why, remedy)
    return Finding(
        "error", "configuration", str(error), "billhook does not start, or not as you mean it",
        "correct what it names; `billhook options` lists the options",
    )  # fmt: skip
