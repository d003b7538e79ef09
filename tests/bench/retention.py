"""How many deliveries retention deletes in a second beside a receiver, and what the receiver loses by it.

    python tests/bench/retention.py [--rounds 3] [--rows 60000] [--seconds 10] [--json FILE]

A round fills the inbox with ROWS finished deliveries that are past their retention, and measures for SECONDS
how many deliveries 16 threads put, alone, and beside a process that prunes as a worker does. At its end, what
is left of the old ones is pruned and the new ones become old, so that each round is a turnover; sizes are
those of the deliveries and their runs with indexes, and of SQLite's file.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Event

from measuring import DATABASES, at_once, inbox_at, options, places, ratios, save, spread
from size import THREADS, fill, put_new, size_of
from sqlalchemy import text

from billhook.engines.maintenance import Maintenance, MaintenanceOptions
from billhook.inbox import Inbox

RETENTION = MaintenanceOptions(retention_days=1.0)


def main() -> None:
    """Measure and print."""
    given = options(__doc__, rounds=3, rows=60_000, seconds=10.0, only=DATABASES)
    figures: dict[str, list[tuple[float, float, float, int]]] = {}
    for name, place in places(given.only).items():
        with inbox_at(place) as (inbox, url):
            figures[name] = [measure(inbox, url, given.rows, given.seconds) for _ in range(given.rounds)]
        alone, beside, deleted, _ = zip(*figures[name], strict=True)
        print(
            f"{name:10} puts/s {spread(alone, 0)} alone, {spread(beside, 0)} beside: "
            f"{spread(ratios(beside, alone))}; {statistics.median(deleted):,.0f} deleted/s"
        )
    save(given, figures)


def measure(inbox: Inbox, url: str, rows: int, seconds: float) -> tuple[float, float, float, int]:
    """Puts a second, the same beside a process that prunes, deletions a second, and bytes at the end."""
    fill(inbox, url, rows)
    alone = puts(inbox, seconds)
    spawn = multiprocessing.get_context("spawn")
    stopped = spawn.Event()
    process = spawn.Process(target=prune, args=(url, stopped))
    before = old_rows(inbox)
    process.start()
    while old_rows(inbox) == before:
        time.sleep(0.01)
    before, started = old_rows(inbox), time.perf_counter()
    beside = puts(inbox, seconds)
    deleted = (before - (left := old_rows(inbox))) / (time.perf_counter() - started)
    if not left:
        print("all rows were deleted before the end: give more --rows")
    while old_rows(inbox):
        time.sleep(0.1)
    stopped.set()
    process.join()
    size = size_of(inbox)
    with inbox.database.write() as connection:
        at = datetime.now(UTC) - timedelta(days=8)
        moment = at if inbox.database.schema else at.strftime("%Y-%m-%d %H:%M:%S.%f")
        connection.execute(text("UPDATE delivery SET state = 'done', received_at = :at"), {"at": moment})
    print(
        f"{alone:6.0f} puts/s alone, {beside:6.0f} beside, {deleted:6.0f} deleted/s, {size:,} bytes",
        flush=True,
    )
    return alone, beside, deleted, size


def puts(inbox: Inbox, seconds: float) -> float:
    """Deliveries that threads put in a second."""
    counts = [0] * THREADS
    until = time.perf_counter() + seconds

    def put(number: int) -> None:
        while time.perf_counter() < until:
            put_new(inbox)
            counts[number] += 1

    at_once(THREADS, put)
    return sum(counts) / seconds


def old_rows(inbox: Inbox) -> int:
    """Count the finished deliveries."""
    with inbox.database.read() as connection:
        return int(
            connection.execute(text("SELECT count(*) FROM delivery WHERE state = 'done'")).scalar_one()
        )


def prune(url: str, stopped: Event) -> None:
    """Do a worker's maintenance, with a retention pass that is due."""
    inbox = Inbox(url)
    maintenance = Maintenance(inbox, RETENTION)
    maintenance._next_at = 0.0
    while not stopped.is_set():
        time.sleep(maintenance.run_if_due(datetime.now(UTC)))
    inbox.close()


if __name__ == "__main__":
    main()
