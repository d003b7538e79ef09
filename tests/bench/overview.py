"""How long figures take in an inbox of 1,000,000 deliveries, also beside a worker; what counting costs.

    python tests/bench/overview.py [--rows 1000000] [--rates 0 1000 3000] [--json FILE]

The inbox has 1,000,000 deliveries of three days with a run each, a twentieth of which failed once, and a
month of days in the hourly counts. They are counted as a worker counts them. Then as many deliveries are
stored and settled as a worker of each rate leaves above the watermark at most. An overview is what
`billhook status` reads, a scrape what Prometheus is given. SQLite, and PostgreSQL when
BILLHOOK_TEST_POSTGRES_URL is set. Medians.
"""

from __future__ import annotations

import statistics
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from measuring import inbox_at, options, places, save, timed

from billhook.engines.maintenance import COUNT_SECONDS
from billhook.events import EVENT_TYPES
from billhook.inbox import Inbox
from billhook.inbox.counting.counts import Counted, CountKey, Counts, Sum, note
from billhook.inbox.tables.dialect import dialect_of
from billhook.inbox.watching.overview import read_overview
from billhook.metrics import metrics_text
from support import query_plans
from support.inbox_view import change, place_of

HANDLERS = 4
REPEATS = 21
_AT = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f000', '{since:%Y-%m-%d %H:%M:%S}', (n * {step}) || ' seconds')",
    "postgresql": "CAST('{since}' AS timestamptz) + n * {step} * interval '1 second'",
}
_FILL_RUNS = """
    INSERT INTO run (delivery_id, handler, state, attempts, due_at, token, finished_at, duration_seconds)
    SELECT id, 'shop.' || (id % {handlers}), 'succeeded', 1, received_at, 1, received_at, (id % 97) * 0.004
    FROM delivery WHERE id > (SELECT coalesce(max(delivery_id), 0) FROM run)
"""
_FILL_FAILURES = """
    INSERT INTO failure (run_id, attempt, failed_at, error, duration_seconds, retried)
    SELECT id, 1, finished_at, 'ValueError: no', 0.02, 1
    FROM run WHERE id % 20 = 0 AND id > (SELECT coalesce(max(run_id), 0) FROM failure)
"""


def main() -> None:
    """Measure and print."""
    given = options(__doc__, rows=1_000_000, rates=[0, 1000, 3000])
    figures: dict[str, object] = {}
    for name, place in places().items():
        with inbox_at(place, known_types=EVENT_TYPES) as (inbox, url):
            figures[name] = measure(name, inbox, place_of(url), given)
    save(given, figures)


def measure(name: str, inbox: Inbox, where: Path | str, given: Any) -> dict[str, float]:
    """Measure one database."""
    three_days = timedelta(days=3)
    now = datetime.now(UTC) - timedelta(seconds=60)
    fill(where, name, "old-", given.rows, now - three_days, three_days / given.rows)
    fill_days(inbox, now)
    # Or a step, as the next of 256 commits, would move the log of all this into SQLite's file: 1.9 s once.
    inbox.database.checkpoint(at_once=True)
    steps = advance(inbox)
    found = {
        "counted_rows_per_second": 2.05 * given.rows / sum(steps),
        "count_step_ms": statistics.median(steps) * 1000,
        "longest_count_step_ms": max(steps) * 1000,
    }
    with inbox.database.read() as connection:
        lag = dialect_of(connection).watermark_lag
    # On PostgreSQL a step counts what the step before it has noted.
    uncounted_seconds = COUNT_SECONDS * (1 + inbox.database.writes_overlap) + lag.total_seconds()
    stored = 0
    for rate in given.rates:
        rows = int(rate * uncounted_seconds) - stored
        if rows > 0:
            since = datetime.now(UTC) - timedelta(seconds=uncounted_seconds)
            fill(where, name, f"{rate}-", rows, since, timedelta(seconds=uncounted_seconds) / rows)
            stored += rows
        overviews = (timed(lambda: read_overview(inbox, datetime.now(UTC))) for _ in range(REPEATS))
        scrapes = (timed(lambda: metrics_text(inbox)) for _ in range(REPEATS))
        found[f"overview_ms_{rate}"] = statistics.median(overviews) * 1000
        found[f"scrape_ms_{rate}"] = statistics.median(scrapes) * 1000
    for key, value in found.items():
        print(f"{name:10} {key:26} {value:9.1f}", flush=True)
    return found


def fill(where: Path | str, name: str, salt: str, rows: int, since: datetime, step: timedelta) -> None:
    """Store deliveries that were handled one after the other."""
    types = " ".join(f"WHEN {number} THEN '{one}'" for number, one in enumerate(EVENT_TYPES))
    at = _AT[name].format(since=since, step=step.total_seconds())
    columns = {"source": "'default'", "key": f"'{salt}' || n", "signed_at": at, "received_at": at}
    columns["event_type"] = f"CASE n % {len(EVENT_TYPES)} {types} END"
    query_plans.fill(where, rows, body="x" * 300, has_runs=False, **columns)
    for statement in (_FILL_RUNS.format(handlers=HANDLERS), _FILL_FAILURES, "ANALYZE"):
        change(where, statement)


def fill_days(inbox: Inbox, now: datetime) -> None:
    """Have a month of days in the hourly counts."""
    counts = Counts()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    for day in range(4, 34):
        hour = midnight - timedelta(days=day)
        for event_type in EVENT_TYPES:
            counts.add(Counted.ACCEPTED, hour, source="default", event_type=event_type)
        for number in range(HANDLERS):
            for bucket in range(12):
                key = CountKey(hour, "", "", f"shop.{number}", "succeeded", "", bucket)
                counts.put(key, Sum(100, 1.0, hour))
    with inbox.database.write() as connection:
        counts.write(connection)


def advance(inbox: Inbox) -> list[float]:
    """Move the watermark as maintenance does; return the seconds of each step."""
    steps = []
    while True:
        with inbox.database.read() as connection:
            if note(connection, datetime.now(UTC)) is None:
                return steps
        steps.append(timed(lambda: inbox.advance_watermark(datetime.now(UTC))))


if __name__ == "__main__":
    main()
