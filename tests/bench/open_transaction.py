"""How fast a worker on PostgreSQL is while a transaction stays open, as a dump's or a report's does.

    python tests/bench/open_transaction.py [--rounds 2] [--rows 80000] [--json FILE]

Rounds in turn without such a transaction and with one, which begins before the ROWS deliveries are stored,
and ends behind the last that is handled. The rates of each quarter are shown: the server removes nothing
that was handled since the transaction began.
"""

from __future__ import annotations

import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from churn import put, unfinished
from engines import worker_beside
from measuring import SERVER, inbox_at, options, places, save

from support.postgres import libpq

QUARTERS = 4


def main() -> None:
    """Measure and print."""
    given = options(__doc__, rounds=2, rows=80_000)
    figures = []
    for number in range(given.rounds):
        for is_open in (False, True):
            rates = handled(given.rows, is_open=is_open)
            figures.append({"open": is_open, "rates": rates})
            shown = ", ".join(f"{rate:,.0f}" for rate in rates)
            print(f"round {number + 1}, {'open' if is_open else 'none'}: {shown} runs/s", flush=True)
            save(given, figures)


def handled(rows: int, *, is_open: bool) -> list[float]:
    """Return the runs a second in each quarter of a backlog."""
    (place,) = places(["postgresql"]).values()
    with inbox_at(place) as (inbox, url), psycopg.connect(**libpq(SERVER)) as other:
        if is_open:
            other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            other.execute("SELECT 1")
        put(inbox, rows, datetime.now(UTC))
        rates = []
        with tempfile.TemporaryDirectory() as folder, worker_beside(Path(folder), url):
            before = rows
            while unfinished(inbox, rows) == rows:
                time.sleep(0.01)
            started = time.perf_counter()
            for quarter in range(1, QUARTERS + 1):
                while (left := unfinished(inbox, rows)) > rows * (QUARTERS - quarter) // QUARTERS:
                    time.sleep(0.5)
                rates.append((before - left) / (time.perf_counter() - started))
                before, started = left, time.perf_counter()
        return rates


if __name__ == "__main__":
    main()
