"""Whether an inbox stays as fast and as small while as many deliveries leave it as come.

    python tests/bench/churn.py [--rounds 20] [--rows 100000] [--kept 0] [--only sqlite postgresql]

Each round is 40 days after the last one by its rows' times: ROWS deliveries are stored by 16 threads and
handled by `billhook worker`, while another process prunes those of the last round as a worker does. The first
tenth is stored before it starts, which gives the p99 of an accept without pruning. Autovacuum is as the
server has it. With KEPT, so many finished deliveries are there from the beginning, as of rounds before, and
the oldest are pruned. Sizes are those of deliveries and runs with their indexes, and of SQLite's file. At the
end the medians of the last five rounds are compared with those of 2 to 6. SQLite has half the ROWS.
"""

from __future__ import annotations

import multiprocessing
import secrets
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Event
from pathlib import Path

from engines import worker_beside
from measuring import BODY, DATABASES, at_once, inbox_at, options, places, save
from size import THREADS, size_of
from sqlalchemy import text

from billhook.engines.maintenance import Maintenance, MaintenanceOptions
from billhook.inbox import Inbox, NewDelivery
from support import query_plans
from support.inbox_view import change, place_of

DAYS = 40
"""Between two rounds: more than the 30 days of deliveries and the 7 of keys."""
Figures = dict[str, float]


def main() -> None:
    """Measure and print."""
    given = options(__doc__, rounds=20, rows=100_000, kept=0, only=DATABASES)
    figures: dict[str, list[Figures]] = {}
    for name, place in places(given.only).items():
        rows = given.rows // 2 if name == "sqlite" else given.rows
        figures[name] = []
        with inbox_at(place) as (inbox, url):
            kept = given.kept // rows
            fill(inbox, url, rows, [DAYS * each for each in range(given.rounds + kept, given.rounds, -1)])
            for number in range(given.rounds):
                figures[name].append(churn(inbox, url, rows, DAYS * (given.rounds - number), DAYS * kept))
                shown = ", ".join(f"{what} {value:,.6g}" for what, value in figures[name][-1].items())
                print(f"{name} round {number + 1}: {shown}", flush=True)
                save(given, figures)
        report(name, figures[name])


def report(name: str, rounds: Sequence[Figures]) -> None:
    """Medians of the last five rounds, of those of rounds 2 to 6."""
    for what in rounds[0]:
        early, late = ([one[what] for one in part] for part in (rounds[1:6], rounds[-5:]))
        ratio = statistics.median(late) / statistics.median(early)
        middle = statistics.median(one[what] for one in rounds)
        print(f"{name} {what}: {ratio:.2f} of rounds 2 to 6; median of all {middle:,.6g}")


def fill(inbox: Inbox, url: str, rows: int, days_ago: Sequence[int]) -> None:
    """Store as many finished deliveries as a round has, of each of these times."""
    where, now = place_of(url), datetime.now(UTC)
    for days in days_ago:
        key, at = f"'{days}-' || n || '-{secrets.token_hex(8)}'", now - timedelta(days=days)
        query_plans.fill(
            where, rows, body=BODY.decode(), at=at, key=key, signed_at=f"'{at:%Y-%m-%d %H:%M:%S.%f}'"
        )
    if days_ago and inbox.database.schema:
        change(where, "VACUUM ANALYZE delivery, run")
        change(where, "CHECKPOINT")


def churn(inbox: Inbox, url: str, rows: int, days_ago: int, kept_days: int) -> Figures:
    """Store and handle the rows of `days_ago`, while those older by more than `kept_days` are pruned."""
    at = datetime.now(UTC) - timedelta(days=days_ago)
    spawn = multiprocessing.get_context("spawn")
    stopped, begun = spawn.Event(), spawn.Event()
    pruner = spawn.Process(
        target=prune, args=(url, days_ago + kept_days + DAYS / 2, begun, stopped), daemon=True
    )
    pruner.start()
    _, alone = put(inbox, rows // 10, at)
    begun.set()
    rate, beside = put(inbox, rows - rows // 10, at)
    with tempfile.TemporaryDirectory() as folder, worker_beside(Path(folder), url):
        while not (first := unfinished(inbox, rows)) < rows:
            time.sleep(0.01)
        started = time.perf_counter()
        while (left := unfinished(inbox, rows)) > rows // 100:
            time.sleep(0.1)
        handled = (first - left) / (time.perf_counter() - started)
        while unfinished(inbox, 1):
            time.sleep(0.05)
    while has_older(inbox, at - timedelta(days=kept_days + 1)):
        time.sleep(0.1)
    stopped.set()
    pruner.join()
    return {
        "accepted a second": rate,
        "handled a second": handled,
        "p99 of an accept beside pruning, of without": p99(beside) / p99(alone),
        "MB": size_of(inbox) / 1e6,
    }


def put(inbox: Inbox, count: int, at: datetime) -> tuple[float, list[float]]:
    """Store that many from threads; return how many a second, and the seconds of each."""
    seconds: list[list[float]] = [[] for _ in range(THREADS)]

    def store(number: int) -> None:
        for _ in range(count // THREADS + (number < count % THREADS)):
            started = time.perf_counter()
            one = NewDelivery("default", secrets.token_hex(12), "InvoiceApproved", BODY, "{}", at, at)
            inbox.put(one, timeout_seconds=30)
            seconds[number].append(time.perf_counter() - started)

    started = time.perf_counter()
    at_once(THREADS, store)
    return count / (time.perf_counter() - started), [each for of_thread in seconds for each in of_thread]


def p99(seconds: list[float]) -> float:
    """Return the time that one in a hundred exceeds."""
    return sorted(seconds)[int(len(seconds) * 0.99)]


def unfinished(inbox: Inbox, limit: int) -> int:
    """Count the unfinished deliveries, up to a limit."""
    some = f"SELECT 1 FROM delivery WHERE state IN ('received', 'planned') LIMIT {limit}"
    with inbox.database.read() as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM ({some}) AS few")).scalar_one())


def has_older(inbox: Inbox, at: datetime) -> bool:
    """Return whether deliveries of earlier rounds are left; their ids are the lowest."""
    with inbox.database.read() as connection:
        first = connection.execute(text("SELECT received_at FROM delivery ORDER BY id LIMIT 1")).scalar()
    return first is not None and str(first) < str(at)


def prune(url: str, days: float, begun: Event, stopped: Event) -> None:
    """Do a worker's maintenance once it is to begin, with a retention pass that is due."""
    inbox = Inbox(url)
    maintenance = Maintenance(inbox, MaintenanceOptions(retention_days=days))
    maintenance._next_at = 0.0
    begun.wait()
    while not stopped.is_set():
        time.sleep(min(0.5, maintenance.run_if_due(datetime.now(UTC))))
    inbox.close()


if __name__ == "__main__":
    main()
