# ruff: noqa: E501 - a fault is in one line
"""Faults of one line, each in a rule that the model has: what histories must find.

python -m model.faults [NUMBER…]     in tests/, tries each of them, or these, in a copy of the source

First a copy without a fault runs the same histories: where that differs from the rules, nothing is found. What
became of each fault is written to faults.txt, beside this: the seed and the step that found it. The histories
are the one that found it last, and the first of those that tests run with --long, which go to 1150;
MODEL_SEEDS=1009-1150 takes others of them. All 83 are found: 72 by the first eight, the others by the later ones
that are named.

Two lines are no faults, and were replaced here: a check for orphaned claims that goes on for ever, as it costs
time only; and a fourth reading after READINGS, as its wait is not there, which quarantines the delivery too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import billhook

FIRST, NUMBER, STEPS = 1_001, 8, 300
MOST_SECONDS = 1_200.0
"""A copy that takes longer hangs: it is ended, and nothing is found."""


class Fault(NamedTuple):
    """A line of a file of billhook, once in it, and what is written in its place."""

    file: str
    old: str
    new: str


_ORDER = "inbox/running/ordering.py"
_SUPERSEDING = "inbox/running/superseding.py"
_RUNS = "inbox/running/runs.py"
_PLANNING = "inbox/running/planning.py"
_TWINS = "inbox/running/content_duplicates.py"
_TRANSACTION = "inbox/running/transaction.py"
_LIMITS = "inbox/running/limits.py"
_CLAIMS = "inbox/running/claims.py"
_LEASES = "inbox/running/leases.py"
_OPERATIONS = "inbox/operating/operations.py"
_DISPATCHER = "engines/dispatcher.py"
_INGEST = "inbox/storing/ingest.py"

FAULTS = [
    # Order, and only the newest.
    Fault(_RUNS, "superseded = discard_superseded(connection, keys, at)", "superseded = []"),
    Fault(_RUNS, "return settled, release_next(connection, keys, at), superseded", "return settled, [], superseded"),
    Fault(_RUNS, "(result.state is not RunState.DUE or key.newest_only)", "result.state is not RunState.DUE"),
    Fault(_ORDER, ".order_by(own.c.state, own.c.delivery_id)", ".order_by(own.c.state, own.c.delivery_id.desc())"),
    Fault(_ORDER, ".order_by(own.c.state, own.c.delivery_id)", ".order_by(own.c.state.desc(), own.c.delivery_id)"),
    Fault(_SUPERSEDING, "run.c.newest_only == 1,", "run.c.newest_only >= 0,"),
    Fault(_SUPERSEDING, "run.c.uncounted_attempts == run.c.postponements\n", "run.c.uncounted_attempts >= run.c.postponements\n"),
    Fault(_SUPERSEDING, "run.c.delivery_id < newest)", "run.c.delivery_id <= newest)"),
    Fault(_PLANNING, "RunState.DUE if options.order_key is None else RunState.WAITING", "RunState.DUE"),
    Fault(_PLANNING, "    finish_deliveries(connection, finished)", "    finish_deliveries(connection, set())"),
    Fault(_PLANNING, "superseded = discard_superseded(connection, keys, now)", "superseded = []"),
    # Content duplicates.
    Fault(_TWINS, "abs(key.received_at - received_at) <= window:", "received_at:"),
    Fault(_TWINS, "earlier.append((delivery_id, key.received_at))", "pass"),
    Fault(_TWINS, ".order_by(run.c.id)", ".order_by(run.c.id.desc())"),
    Fault("inbox/tables/schema.py", "and_(run.c.identity.is_not(None), run.c.twin_of.is_(None))", "run.c.identity.is_not(None)"),
    # Results and tokens.
    Fault(_RUNS, 'run.c.token == given["fencing_token"],', 'run.c.token >= given["fencing_token"],'),
    Fault(_RUNS, 'attempts=given["attempt"],', "attempts=run.c.attempts,"),
    Fault(_RUNS, 'run.c.uncounted_attempts + given["is_uncounted"]', "run.c.uncounted_attempts"),
    Fault(_RUNS, "run.c.state == RunState.DEAD.value), DeliveryState.DEAD.value),", "run.c.state == RunState.DEAD.value), DeliveryState.DONE.value),"),
    Fault(_RUNS, "not (result.uncounted or is_reading(handler))", "not is_reading(handler)"),
    Fault(_LEASES, 'or_(run.c.runs_alone == literal_column("1"), run.c.queued == literal_column("1"))', 'run.c.queued == literal_column("1")'),
    Fault(_LEASES, '{"queued": 0, "beside_others": 0}', '{"beside_others": 0}'),
    # Claims.
    Fault(_TRANSACTION, "attempts=run.c.attempts + 1,", "attempts=run.c.attempts,"),
    Fault(_TRANSACTION, "token=run.c.token + 1,", "token=run.c.token,"),
    Fault(_TRANSACTION, "beside_others=0,", "beside_others=run.c.beside_others,"),
    Fault(_TRANSACTION, '"attempts": run.c.attempts - 1,', '"attempts": run.c.attempts,'),
    Fault(_TRANSACTION, '~in_parameter(LEASE, "leases"),', 'in_parameter(LEASE, "leases"),'),
    Fault(_TRANSACTION, "update(run).where(HELD).values(due_at=leased_until)", "update(run).where(HELD).values(due_at=run.c.due_at)"),
    Fault(_TRANSACTION, "not result.uncounted and result.state is not RunState.DISCARDED", "not result.uncounted"),
    Fault(_TRANSACTION, "not result.uncounted and result.state is not RunState.DISCARDED", "result.state is not RunState.DISCARDED"),
    Fault(_TRANSACTION, "None if result.state is RunState.SUCCEEDED else result.error", "None if result.state is not RunState.DUE else result.error"),
    Fault(_CLAIMS, "table.c.due_at <= _NOW, ~paused]", "table.c.due_at <= _NOW]"),
    Fault(_CLAIMS, "found = [*conditions, table.c.due_at <= _NOW, ~paused]", "found = [*conditions, ~paused]"),
    Fault("inbox/tables/records.py", "due_at=due_at, error=error, uncounted=True)", "due_at=due_at, error=error, uncounted=False)"),
    # Leases and deaths.
    Fault(_LEASES, "        return put_off + lost + 1", "        return put_off + lost"),
    Fault(_LEASES, "return put_off + max(0, lost - 1)", "return put_off + lost"),
    Fault(_LEASES, "    if row.beside_others:", "    if not row:"),
    Fault(_LEASES, '_make_due(connection, queued, now, {"attempts": run.c.attempts - 1})', "_make_due(connection, queued, now, {})"),
    Fault(_LEASES, 'values = {"runs_alone": 1,', 'values = {"runs_alone": 0,'),
    Fault("engines/lease_table.py", "self._third_seconds = lease_seconds / 3", "self._third_seconds = lease_seconds * 3"),
    Fault("engines/lease_table.py", "self._orphan_checks, self.orphan_check_at = 2, 0.0", "self._orphan_checks, self.orphan_check_at = 2, math.inf"),
    Fault("engines/suspects.py", "if not started and not ordinary_due:", "if not ordinary_due:"),
    Fault("engines/cycle.py", "transaction.mark_not_alone(sorted(not_alone))", "pass"),
    # Limits and pauses.
    Fault(_LIMITS, "most if limits.at_most is None else limits.at_most - running[name]", "most if limits.at_most is None else limits.at_most"),
    Fault(_LIMITS, "            name = own_name(self.limits, row.handler)\n            taken", "            name = row.handler\n            taken"),
    Fault(_LIMITS, "failures = 0 if error is None else failures + 1", "failures += error is not None"),
    Fault(_LIMITS, "failures >= most:", "failures > most:"),
    Fault(_LIMITS, '"paused_error": None, "failures": 0}', '"paused_error": None}'),
    Fault(_LIMITS, "return 0 if waited < timedelta(0) else int(waited / interval) + 1", "return 1"),
    Fault(_LIMITS, "return {own_name(self.limits, name) for name in paused}", "return paused"),
    # Calls.
    Fault(_DISPATCHER, "if claim.attempt - claim.uncounted > attempts:", "if claim.attempt > attempts:"),
    Fault(_DISPATCHER, "number = claim.attempt if missing else claim.attempt - claim.uncounted", "number = claim.attempt"),
    Fault(_DISPATCHER, 'told["uncounted"] = missing and state is RunState.DUE', 'told["uncounted"] = False'),
    Fault("handlers/handler.py", "if name in handler.aliases), None)", "if name == handler.name), None)"),
    Fault("handlers/retry.py", "        return after_seconds\n", "        return schedule.delays_seconds[attempt - 1]\n"),
    # Operators.
    Fault(_OPERATIONS, "due_at=now,\n            token=run.c.token + 1,", "due_at=now,"),
    Fault(_OPERATIONS, "            uncounted_attempts=0,\n", ""),
    Fault(_OPERATIONS, "replays=run.c.replays + case((is_due, 0), else_=1),", "replays=run.c.replays + 1,"),
    Fault(_OPERATIONS, "            attempts=0,\n", ""),
    Fault(_OPERATIONS, "RunState.RUNNING, RunState.DEAD)\n", "RunState.RUNNING)\n"),
    Fault(_OPERATIONS, "for row in (*runs, *reading) if row.order_key]", "for row in reading]"),
    Fault(_OPERATIONS, "token=run.c.token + 1,\n                    **NOT_CLAIMED,", "**NOT_CLAIMED,"),
    Fault(_OPERATIONS, '_OF_THE_EVENT = ("last_error", "order_key", "newest_key", "identity")', '_OF_THE_EVENT = ("last_error", "newest_key", "identity")'),
    Fault(_OPERATIONS, "replayable = (*_HANDLED, DeliveryState.QUARANTINED)", "replayable = (*_HANDLED, DeliveryState.QUARANTINED, DeliveryState.ERASED)"),
    Fault("inbox/running/filters.py", "DeliveryStatus.RETRYING: [not_paused, retrying],", "DeliveryStatus.RETRYING: [retrying],"),
    Fault("inbox/counting/retention.py", "limits.delete_untimed_before if row.signed_at is None else limits.delete_before", "limits.delete_before"),
    # Keys.
    Fault(_INGEST, "if stored[variant].digest not in (None, new.digest):", "if not stored:"),
    Fault(_INGEST, "variant = new.event_type if new.known else UNKNOWN", "variant = new.event_type"),
    Fault(_INGEST, "if event_type in named:", "if not named:"),
    # Types in the body and of the user's own; releases that know them, and a clock that is set back.
    Fault(_INGEST, "by_bytes = new.type_field is not None or (first is not None and first.type_field is not None)", "by_bytes = new.type_field is not None"),
    Fault("inbox/counting/counts.py", '_HAS_TYPE = "coalesce(sent_as, event_type) != \'\'"', '_HAS_TYPE = "TRUE"'),
    Fault("engines/reading.py", "READ_AGAIN_SECONDS[max(0, number - 1)]", "READ_AGAIN_SECONDS[0]"),
    Fault("engines/reading.py", "if number >= READINGS:", "if number >= READINGS - 1:"),
    Fault(_OPERATIONS, "if its.isdisjoint(had) and not any(map(is_reading, had))}", "if its.isdisjoint(had)}"),
    Fault(_OPERATIONS, "connection.execute(delete(run).where(in_values(run.c.id, [row.id for row in reading])))", "pass"),
    Fault("inbox/running/handler_lists.py", "{each for each in known if self.knows(each) == other.knows(each)}", "{*known}"),
    Fault("engines/newest_list.py", "            times = [min(at, found_at) for at in times]", "            pass"),
    # Effects that happen once, issues, and what status shows.
    Fault("handlers/handler.py", "self.handler, self.idempotency_key, self.replays)", "self.handler, self.idempotency_key, 0)"),
    Fault("handlers/handler.py", '(f",{self.variant}" if self.variant else "")', '""'),
    Fault("inbox/watching/issue_updates.py", "return bool(occurrence.last_at > row.changed_at)", "return True"),
    Fault("inbox/watching/issue_updates.py", "is_quiet = occurrence is None or occurrence.last_at <= now - QUIET", "is_quiet = True"),
    Fault("inbox/watching/snoozes.py", "return nth is not None and nth > row.changed_at", "return nth is not None"),
    Fault("inbox/watching/handler_backlogs.py", 'states["waiting"] += numbers[name, "queued"]', "pass"),
]  # fmt: skip


RESULTS = Path(__file__).with_name("faults.txt")
NOT_FOUND = "not found"


def try_one(fault: Fault | None, folder: Path, seeds: str) -> str:
    """Run histories on a copy with the fault, if any; return what became of it: where it was found, or not."""
    source = folder / "src"
    shutil.copytree(Path(billhook.__file__).parent.parent, source, dirs_exist_ok=True)
    if fault is not None:
        file = source / "billhook" / fault.file
        text = file.read_text()
        if text.count(fault.old) != 1:
            return "its line is not there once"
        file.write_text(text.replace(fault.old, fault.new))
    path = os.pathsep.join((str(source), str(Path(__file__).parent.parent)))
    command = [sys.executable, "-m", "model.histories", seeds, str(STEPS)]
    environment = {**os.environ, "PYTHONPATH": path}
    try:
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=MOST_SECONDS
        )
    except subprocess.TimeoutExpired:
        return "not found in time"
    lines = ended.stdout.splitlines()[:3] or ended.stderr.splitlines()[-3:]
    sys.stdout.write("".join(f"    {line}\n" for line in lines))
    if ended.returncode == 0:
        return NOT_FOUND
    where = re.match(r"seed (\d+), step (\d+)", ended.stdout)
    return f"found at {where[1]}/{where[2]}" if where else "found by an error"


def line_of(fault: Fault) -> str:
    """Return a fault as the file of results has it."""
    return f"{fault.file}: {' '.join(fault.old.split())} → {' '.join(fault.new.split())}"


def results() -> dict[str, str]:
    """Return what became of each fault that was tried."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {line: what for what, _, line in (each.partition(" | ") for each in lines)}


def _write(found: dict[str, str]) -> None:
    """Write the results, in the order of the faults."""
    lines = [line_of(each) for each in FAULTS]
    RESULTS.write_text("".join(f"{found[line]} | {line}\n" for line in lines if line in found))


def _tried(fault: Fault | None) -> str:
    seeds = [os.environ.get("MODEL_SEEDS", f"{FIRST}-{FIRST + NUMBER - 1}")]
    if fault is not None and (last := re.match(r"found at (\d+)/", results().get(line_of(fault), ""))):
        seeds.insert(0, f"{last[1]}-{int(last[1]) + 1}")  # one alone would be shortened
    for each in seeds:
        with tempfile.TemporaryDirectory(prefix="billhook-fault-") as folder:
            result = try_one(fault, Path(folder), each)
        if result != NOT_FOUND:
            return result
    return NOT_FOUND


def main() -> None:
    """Try the faults, and write which are found."""
    unbroken = _tried(None)
    if unbroken != NOT_FOUND:
        sys.exit(f"without a fault a difference is {unbroken}: what is found says nothing")
    for number in [int(each) for each in sys.argv[1:]] or range(len(FAULTS)):
        fault = FAULTS[number]
        result = _tried(fault)
        _write({**results(), line_of(fault): result})
        sys.stdout.write(f"{number} {result}: {line_of(fault)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
