"""Compare what `billhook status --json` prints with what the rules say."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from typing import Any

from click.testing import CliRunner
from flask import Flask
from flask.cli import ScriptInfo

from billhook.cli.status import status
from model.comparison import differing
from model.issue_rules import Issues
from model.records import Delivery
from model.rules import Rules
from model.shown import backlogs, conditions

_COUNTED = ("received", "planned", "dead", "quarantined")
STATES = ("waiting", "running", "paused", "retrying", "dead")


def differences(rules: Rules, issues: Issues, app: Flask, now: datetime) -> list[str]:
    """Return a line for each value that the command prints otherwise."""
    ended = CliRunner().invoke(status, ["--json"], obj=ScriptInfo(create_app=lambda: app))
    if ended.exit_code or ended.exception is not None:
        return [f"status: {ended.output}{ended.exception!r}"]
    printed = json.loads(ended.stdout)
    expected = _expected(rules, issues, now)
    holding = {each["name"] for each in printed["conditions"]}
    found: dict[str, Any] = {name: printed[name] for name in expected if name in printed}
    found["paused"] = sorted(each["name"] for each in printed["paused"])
    found["workers"] = {each["owner"]: each["alive"] for each in printed["workers"]}
    found["handler_backlogs"] = _backlogs(printed["handler_backlogs"])
    found["conditions"] = {name: name in holding for name in expected["conditions"]}
    return differing("status", expected, found)


def _expected(rules: Rules, issues: Issues, now: datetime) -> dict[str, Any]:
    deliveries = [*rules.deliveries.values()]
    numbers = {state: sum(each.state == state for each in deliveries) for state in _COUNTED}
    unfinished = [each for each in deliveries if each.state in ("received", "planned")]
    seen = [each for each in rules.processes if each.seen is not None]
    return {
        "unread": numbers["received"],
        "in_progress": numbers["planned"],
        "unfinished": len(unfinished),
        "dead": numbers["dead"],
        "quarantined": numbers["quarantined"],
        "conflicts": sum(each.state == "quarantined" and each.conflict_of is not None for each in deliveries),
        "oldest_at": min(unfinished, key=_id).received.isoformat() if unfinished else None,
        "paused": sorted({rules.present_name(name) for name, each in rules.limits.items() if each.paused}),
        "workers": {each.name: each.is_alive(now) for each in seen if not (each.stopped or each.forgotten)},
        "handler_backlogs": backlogs(rules, now),
        "conditions": conditions(rules, issues, now),
    }


def _id(delivery: Delivery) -> int:
    return delivery.id


def _backlogs(printed: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """Return how many runs of each handler are in which state; those that a limit holds are waiting."""
    found: Counter[tuple[str, str]] = Counter()
    for each in printed:
        for state in (*STATES, "limited"):
            found[each["name"], "waiting" if state == "limited" else state] += each.get(state, 0)
    return +found
