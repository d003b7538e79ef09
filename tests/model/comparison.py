"""Compare what is stored with what the rules say, by one query for each table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from billhook.inbox import DeliveryFilter, Inbox
from billhook.inbox.counting.counts import OF_ISSUE
from billhook.inbox.reading.deliveries import id_batches
from billhook.inbox.sqlite.library import sqlite3
from billhook.inbox.watching.conditions import Facts, Thresholds
from billhook.inbox.watching.issues import list_issues
from billhook.inbox.watching.judgement import judge
from billhook.inbox.watching.overview import read_overview, read_totals
from model.attempts import OF_CLASS
from model.issue_rules import Issues, error_of, failures_of
from model.own_types import OWN
from model.records import Delivery, Run
from model.rules import Rules
from model.shown import conditions, status
from support import inbox_view

CONDITIONS_EVERY = 3
"""Of the comparisons of figures: all conditions are judged for four of them."""
STATES = (
    *("received", "waiting", "paused", "running", "retrying"),
    *("done", "dead", "quarantined", "pruned", "erased"),
)
OPEN_STATES = STATES[1:5]
HANDLED = ("planned", "done", "dead")
_DELIVERIES = """SELECT id, source, key, variant, event_type, state, error IS NOT NULL, conflict_of,
    also_sent_as, length(body) = 0 FROM delivery ORDER BY id"""
_RUNS = """SELECT id, delivery_id, handler, state, attempts, due_at, queued, runs_alone, beside_others,
    uncounted_attempts, replays, twin_of, order_key IS NOT NULL, identity IS NOT NULL, newest_only,
    not_before, postponements, token, last_error, finished_at IS NOT NULL, worker FROM run ORDER BY id"""
_FAILURES = "SELECT run_id, error FROM failure ORDER BY id"
_LIMITS = "SELECT name, paused_at IS NOT NULL, failures, next_start_at FROM billhook_handler ORDER BY name"


class StoredRun(NamedTuple):
    """A row of `run`, with the errors of its failures."""

    id: int
    delivery_id: int
    handler: str
    state: str
    attempts: int
    due: str
    queued: bool
    alone: bool
    beside: bool
    uncounted: int
    replays: int
    twin_of: int | None
    ordered: bool
    has_content: bool
    newest: int
    not_before: str | None
    postponements: int
    token: int
    error: str | None
    finished: bool
    worker: str | None
    failures: tuple[str, ...]


class Stored(NamedTuple):
    """All rows that are compared."""

    deliveries: dict[int, tuple[Any, ...]]
    runs: dict[tuple[int, str], StoredRun]
    limits: dict[str, tuple[Any, ...]]


Rows = Callable[[str], list[tuple[Any, ...]]]


@contextmanager
def reader(where: Path | str) -> Iterator[Rows]:
    """Open a connection that only reads."""
    if not isinstance(where, Path):
        yield partial(inbox_view.rows, where)
        return
    with closing(sqlite3.connect(f"file:{where}?mode=ro", uri=True)) as connection:
        yield lambda query: connection.execute(query).fetchall()


def read(rows: Rows) -> Stored:
    """Read what is stored now."""
    failures: defaultdict[int, list[str]] = defaultdict(list)
    for run_id, error in rows(_FAILURES):
        failures[run_id].append(short(error) or "")
    runs = {}
    for row in rows(_RUNS):
        runs[row[1], row[2]] = _stored_run(tuple(row), tuple(failures.get(row[0], ())))
    deliveries = {row[0]: _stored_delivery(tuple(row)) for row in rows(_DELIVERIES)}
    limits = {name: (bool(paused), *others) for name, paused, *others in rows(_LIMITS)}
    return Stored(deliveries, runs, limits)


@lru_cache(10_000)
def _stored_run(row: tuple[Any, ...], failures: tuple[str, ...]) -> StoredRun:
    """Return a row as it is compared; most are the same after a step as before it."""
    values = list(row)
    for number in (6, 7, 8, 12, 13, 19):
        values[number] = bool(values[number])
    values[18] = short(values[18])
    return StoredRun(*values, failures)


@lru_cache(10_000)
def _stored_delivery(row: tuple[Any, ...]) -> tuple[Any, ...]:
    _, source, key, variant, event_type, state, has_error, conflict_of, also, is_empty = row
    return (
        *(source, key, variant.partition("#")[0], "#" in variant, event_type, state, bool(has_error)),
        *(conflict_of, bool(also), bool(is_empty)),
    )


def short(error: str | None) -> str | None:
    """Return an error without what only says where it happened."""
    if error is not None and error.startswith(("RuntimeError:", "LookupError:", "PutOffTooOften:")):
        return error.partition(":")[0]
    if error is not None and error.startswith(OF_CLASS):
        return OF_CLASS
    return error


@lru_cache(10_000)
def text(moment: datetime) -> str:
    """Write a moment as rows have it."""
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")


def expected_delivery(delivery: Delivery) -> tuple[Any, ...]:
    variant, other, _ = delivery.variant.partition("#")
    return (
        *(delivery.source, delivery.key, variant, bool(other), delivery.type, delivery.state),
        *(delivery.needs_action, delivery.conflict_of, bool(delivery.also)),
        delivery.state in ("pruned", "erased"),
    )


def differences(rules: Rules, stored: Stored, offsets: dict[tuple[int, str], int]) -> list[str]:
    """Return a line for each row that is not what the rules say."""
    lines = []
    expected = {one: expected_delivery(each) for one, each in rules.deliveries.items()}
    lines += differing("delivery", expected, stored.deliveries)
    runs = {key: _comparable(run) for key, run in rules.runs.items()}
    found = {key: _as_comparable(row, offsets.get(key, 0)) for key, row in stored.runs.items()}
    lines += differing("run", runs, found)
    limits = {
        name: (each.paused, each.failures, text(each.next_start) if each.next_start else None)
        for name, each in rules.limits.items()
    }
    nothing = (False, 0, None)
    names = limits.keys() | stored.limits.keys()
    lines += differing(
        "handler",
        {name: limits.get(name, nothing) for name in names},
        {name: stored.limits.get(name, nothing) for name in names},
    )
    return lines


def differing(what: str, expected: dict[Any, Any], found: dict[Any, Any]) -> list[str]:
    """Return a line for each key that the two have different values of."""
    if expected == found:
        return []
    lines = []
    for key in sorted(expected.keys() | found.keys()):
        wanted, got = expected.get(key), found.get(key)
        if wanted != got:
            lines.append(
                f"{what} {key}\n    the rules: {_about(wanted, got)}\n    stored:    {_about(got, wanted)}"
            )
    return lines


def _about(one: Any, other: Any) -> str:
    """Write what differs of two rows, or the whole of one that has no other."""
    if isinstance(one, Compared) and isinstance(other, Compared):
        values = zip(Compared._fields, one, other, strict=True)
        return ", ".join(f"{name}={its!r}" for name, its, others in values if its != others)
    return repr(one)


class Compared(NamedTuple):
    """What is compared of a run."""

    state: str
    attempts: int
    due: str
    queued: bool
    alone: bool
    beside: bool
    uncounted: int
    replays: int
    twin_of: int | None
    ordered: bool
    content: bool
    newest: int
    not_before: str | None
    postponements: int
    token: int
    error: str | None
    finished: bool
    owner: str | None
    failures: tuple[str, ...]


def _comparable(run: Run) -> Compared:
    return Compared(
        *(run.state, run.attempts, text(run.due), run.queued, run.alone, run.beside, run.uncounted),
        *(run.replays, run.twin_of, run.order is not None, run.content is not None, run.newest),
        *(text(run.not_before) if run.not_before else None, run.postponements, run.token),
        *(run.error, not run.unfinished, run.owner, tuple(run.failures)),
    )


def _as_comparable(row: StoredRun, offset: int) -> Compared:
    # Its columns are in the same order.
    return Compared(*row[3:17], row.token - offset, row.error, row.finished, row.worker, row.failures)


def figures(rules: Rules, issues: Issues, inbox: Inbox, now: datetime, number: int) -> list[str]:
    """Return a line for each figure, condition and filter that is not what the rules say.

    Of the filters those of the states that a planned delivery may be in, and one of the others in turn, by
    `number`.
    """
    found: Counter[tuple[str, str]] = Counter()
    for key, sums in read_totals(inbox).items():
        of_type = "*" if key.event_type in OWN else key.event_type
        found[key.handler or of_type, key.what] += 0 if key.what == OF_ISSUE else sums.number
    counted: Counter[tuple[str, str]] = Counter()
    for (name, what), times in rules.counted.items():
        counted[rules.present_name(name), what] += times
    lines = differing("figure", dict(+counted), dict(+found))
    overview = read_overview(inbox, now)
    backlog, states = overview.backlog, Counter(each.state for each in rules.deliveries.values())
    stated = {"received": backlog.unread, "planned": backlog.in_progress}
    stated |= {"dead": backlog.dead, "quarantined": backlog.quarantined}
    lines += differing("backlog", {name: states[name] for name in stated}, stated)
    paused = {rules.present_name(name): True for name, each in rules.limits.items() if each.paused}
    lines += differing("paused", paused, {each.name: True for each in overview.paused})
    if number % CONDITIONS_EVERY == 0:
        lines += _conditions(rules, issues, Facts(inbox, now, "worker", None, Thresholds(), overview), now)
    return lines + _filtered(rules, inbox, number)


def of_issues(rules: Rules, issues: Issues, inbox: Inbox) -> list[str]:
    """Return a line for each issue of failures that is not what the rules say."""
    shown = Counter(
        (each.subject, each.title.partition(":")[0], each.state.value, each.count, each.deliveries)
        for each in list_issues(inbox)
        if each.kind == "failure"
    )
    failures, expected = failures_of(rules), Counter[Any]()
    for bug, issue in issues.items():
        runs, times = failures.get(bug, ([], []))
        number = len(times) + rules.deleted[bug]
        deliveries = len({each.id for each in runs})
        expected[issue.subject, error_of(bug), issue.state, number, deliveries] += 1
    return differing("issue", expected, shown)


def _conditions(rules: Rules, issues: Issues, facts: Facts, now: datetime) -> list[str]:
    holding = {each.condition.name for each in judge(facts).holding}
    expected = conditions(rules, issues, now)
    return differing("condition", expected, {name: name in holding for name in expected})


def _filtered(rules: Rules, inbox: Inbox, number: int) -> list[str]:
    deliveries = rules.deliveries.values()
    runs = list(rules.runs.values())
    name = runs[number % len(runs)].name if runs else ""
    had = {each.delivery.id for each in runs if each.name in rules.every_name(name)}
    states = {each.id: status(rules, each) for each in deliveries}
    of_state = {
        f"state={state}": (DeliveryFilter(state=state), [one for one in states if states[one] == state])
        for state in STATES
    }
    filters = {
        f"handler={name}": (DeliveryFilter(handler=name), had),
        f"without_handler={name}": (
            DeliveryFilter(without_handler=name),
            [
                each.id
                for each in deliveries
                if each.state in ("planned", "done", "dead") and each.id not in had
            ],
        ),
        "twins": (DeliveryFilter(twins=True), {each.delivery.id for each in runs if each.twin_of}),
        "conflicts": (DeliveryFilter(conflicts=True), [each.id for each in deliveries if each.conflict_of]),
    }
    filters |= {name: each for name, each in of_state.items() if name[6:] not in OPEN_STATES}
    in_turn = [*filters][number % len(filters)]
    chosen = {in_turn: filters[in_turn]}
    if any(each.state == "planned" for each in deliveries):
        chosen |= {name: of_state[name] for name in map("state={}".format, OPEN_STATES)}
    lines = []
    for which, (selection, expected) in chosen.items():
        found = sorted(chain.from_iterable(id_batches(inbox, selection)))
        if found != sorted(expected):
            lines.append(f"filter {which}: the rules: {sorted(expected)}, found: {found}")
    return lines
