"""Which deliveries the page lists: from the fields of its form to a filter, an address and a command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from billhook.clock import parse_time
from billhook.inbox import DeliveryFilter, Inbox
from billhook.inbox.admin import search_bound
from billhook.inbox.states import DeliveryState, DeliveryStatus

__all__ = ["FIELDS", "Selection", "parse_selection"]

FIELDS = ("type", "state", "source", "handler", "key", "error", "contains", "since", "until")
"""The fields of the form that take text; they are named as the options of the command."""
FLAGS = ("conflicts", "twins")
SEARCH_LIMIT = 100_000
"""How many of the newest deliveries are read for a text in their bodies."""
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Selection:
    """What was chosen: `fields` as written, and their filter. `mistakes` are sentences for the visitor."""

    fields: dict[str, Any]
    filter: DeliveryFilter
    mistakes: tuple[str, ...]
    searched: str = ""

    @property
    def is_narrowed(self) -> bool:
        """Whether anything but the state is chosen."""
        return any(name != "state" for name in self.fields)

    def at_fixed_times(self) -> Selection:
        """Return it with times instead of ages, so that it selects the same later on."""
        times = {"since": self.filter.since, "until": self.filter.until}
        fixed = {name: at.isoformat() for name, at in times.items() if at is not None}
        return replace(self, fields={**self.fields, **fixed})

    def list_command(self, program: str) -> str:
        """Return the command that lists the same."""
        return self._command(program, "list")

    def replay_command(self, program: str) -> str | None:
        """Return the command that replays the same; None if there is none.

        The command replays with `--handler` what succeeded too, has no `--twins`, and asks for a filter.
        """
        if not self.fields or "handler" in self.fields or "twins" in self.fields:
            return None
        return self._command(program, "replay")

    def _command(self, program: str, what: str) -> str:
        words = [program, "deliveries", what]
        for name, value in self.fields.items():
            words.append(f"--{name}" if name in FLAGS else f"--{name} {_quote(value)}")
        return " ".join(words)

    def within_search_limit(self, inbox: Inbox) -> Selection:
        """Return it with a search for a text bounded to the newest of what else is selected."""
        if self.filter.contains is None:
            return self
        number, from_id, received_at = search_bound(inbox, self.filter, SEARCH_LIMIT)
        searched = f"Searched the newest {number:,} deliveries"
        if received_at is not None:
            searched += f", back to {received_at:%Y-%m-%d %H:%M:%S} UTC"
        return replace(self, filter=replace(self.filter, from_id=from_id), searched=searched + ".")


def _quote(text: str) -> str:
    """Return a text as a word of a shell's command line, without characters that cannot be seen.

    Pages write these as escapes, which plain quotes would hand to the command as they are. bash, zsh and ksh
    read escapes in $'…'.
    """
    if text.isprintable():
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + "".join(each if each.isprintable() else _escape(each) for each in escaped) + "'"


def _escape(character: str) -> str:
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"


def parse_selection(values: Mapping[str, str], now: datetime) -> Selection:
    """Return what the fields of a form or an address select; what cannot be read is among the mistakes."""
    fields: dict[str, Any] = {}
    mistakes: list[str] = []
    for name in (*FIELDS, *FLAGS):
        value = values.get(name, "").strip()
        if not value:
            continue
        if len(value) > _LONGEST or "\0" in value or any("\ud800" <= each <= "\udfff" for each in value):
            mistakes.append(f"{name}: no more than {_LONGEST} characters of text")
            continue
        fields[name] = "1" if name in FLAGS else value
    times: dict[str, datetime] = {}
    for name in ("since", "until"):
        if name in fields:
            try:
                times[name] = parse_time(fields[name], now)
            except ValueError as error:
                mistakes.append(f"{name}: {error}")
    state = fields.get("state")
    if state is not None and state not in (*DeliveryStatus, DeliveryState.PLANNED):
        mistakes.append(f"state: there is none that is named {state!r}")
        state = None
    chosen = DeliveryFilter(
        event_type=fields.get("type"),
        state=state,
        since=times.get("since"),
        until=times.get("until"),
        conflicts="conflicts" in fields,
        twins="twins" in fields,
        source=fields.get("source"),
        handler=fields.get("handler"),
        key=fields.get("key"),
        error=fields.get("error"),
        contains=fields.get("contains"),
    )
    return Selection(fields, chosen, tuple(mistakes))
