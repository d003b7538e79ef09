"""The states of deliveries and runs as pages show them: a word, and a colour."""

from __future__ import annotations

from billhook.dispatch.quarantine import parse_error
from billhook.inbox.admin import ListedDelivery, RunDetails

__all__ = ["last_error", "run_state", "tone"]

_TONES = {
    "done": "good",
    "succeeded": "good",
    "running": "accent",
    "retrying": "warn",
    "paused": "warn",
    "dead": "bad",
    "quarantined": "bad",
    "error": "bad",
    "warning": "warn",
}


def tone(state: str) -> str:
    """Return the tone of a state; quiet for what needs no attention."""
    return _TONES.get(state, "quiet")


def run_state(run: RunDetails) -> str:
    """Return the state of a run; "retrying" for one that failed and will be called again."""
    return "retrying" if run.status == "due" and run.attempts > 0 else run.status


def last_error(one: ListedDelivery) -> str | None:
    """Return why a delivery was not handled: its own error, or that of a run."""
    if one.error is not None:
        return str(parse_error(one.error)["error"])
    return next((run.last_error for run in reversed(one.runs) if run.last_error), None)
