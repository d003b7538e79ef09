"""Where the time of a no-op run on PostgreSQL goes: the server alone, and the worker's own CPU.

    python tests/bench/floor.py [--rounds 3] [--count 20000]

Each round lets `billhook worker` handle COUNT deliveries, which records every statement of its thread, and
then replays these statements, with their parameters and commits, from one plain connection on the same
deliveries: that is the time of the server alone, which must follow one another. The worker's CPU is that of
its process, without the server; what it takes for the recording is not taken off. Needs
BILLHOOK_TEST_POSTGRES_URL.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import threading
import time
from pathlib import Path

from noop import handlers

RECORD = os.environ.get("BENCH_STATEMENTS")
Statement = tuple[bytes, object]
COMMIT = b"COMMIT"

__all__ = ["handlers"]


def record(path: Path) -> None:
    """Record the statements of this thread; `path` has them once the process has ended."""
    import atexit

    from billhook.inbox.postgres import driver

    statements: list[Statement] = []
    thread = threading.get_ident()
    execute, commit = driver._Cursor.execute, driver.DeadlineConnection.commit

    def recorded_execute(self, query, params=None, **more):
        if threading.get_ident() == thread and isinstance(query, str | bytes):  # not LISTEN
            statements.append((query.encode() if isinstance(query, str) else query, params))
        return execute(self, query, params, **more)

    def recorded_commit(self):
        if threading.get_ident() == thread:
            statements.append((COMMIT, None))
        return commit(self)

    driver._Cursor.execute, driver.DeadlineConnection.commit = recorded_execute, recorded_commit
    atexit.register(lambda: path.write_bytes(pickle.dumps(statements)))


def main() -> None:
    """Measure and print."""
    import engines
    from load import process_seconds
    from measuring import SERVER, count_succeeded, inbox_at, options, places, process, save, spread

    given = options(__doc__, rounds=3, count=20_000)
    if SERVER is None:
        sys.exit("set BILLHOOK_TEST_POSTGRES_URL to a PostgreSQL")
    place = places()["postgresql"]
    measured: dict[str, list[float]] = {"server": [], "worker CPU": [], "worker": []}
    for number in range(given.rounds):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "statements"
            with inbox_at(place) as (inbox, url):
                engines.fill(inbox, given.count)
                command = [sys.executable, "-m", "billhook", "worker", __file__, "--threads", "8"]
                environ = {"BILLHOOK_INBOX_URL": url, "BILLHOOK_SECRETS": engines.SECRET}
                environ |= {"BILLHOOK_ENGINE": "worker", "BENCH_STATEMENTS": str(path)}
                with process(command, Path(folder) / "worker.log", **environ) as worker:
                    while not (begun := count_succeeded(inbox)):
                        time.sleep(0.01)
                    started, cpu = time.perf_counter(), process_seconds(worker.pid)
                    while count_succeeded(inbox) < given.count:
                        time.sleep(0.05)
                    seconds = time.perf_counter() - started
                    cpu = process_seconds(worker.pid) - cpu
                measured["worker"].append(seconds / (given.count - begun) * 1e6)
                measured["worker CPU"].append(cpu / (given.count - begun) * 1e6)
            with inbox_at(place) as (inbox, url):
                engines.fill(inbox, given.count)
                measured["server"].append(replay(url, pickle.loads(path.read_bytes())) / given.count * 1e6)
        print(
            f"round {number + 1}: {', '.join(f'{k} {v[-1]:.0f} us' for k, v in measured.items())}", flush=True
        )
        save(given, measured)
    for name, figures in measured.items():
        print(f"{name:12} {spread(figures, 0)} us a run")


def replay(url: str, statements: list[Statement]) -> float:
    """Execute the statements one after another, as the worker's connections do; return the seconds."""
    from billhook.inbox.postgres.driver import connect
    from support.postgres import libpq

    connection = connect(
        libpq(url), None, url.rpartition("search_path%3D")[2].partition("&")[0], is_session=True
    )
    by_statement: dict[str, float] = {}
    total = 0.0
    for query, params in statements:
        started = time.perf_counter()
        if query is COMMIT or query == COMMIT:
            connection.commit()
        else:
            connection.cursor().execute(query, params)
        took = time.perf_counter() - started
        total += took
        name = " ".join(query.decode().split())[:100]
        by_statement[name] = by_statement.get(name, 0.0) + took
    connection.close()
    if os.environ.get("BENCH_VERBOSE"):
        for name, seconds in sorted(by_statement.items(), key=lambda each: -each[1])[:12]:
            print(f"  {seconds * 1e6 / 20_000:6.1f} us a run: {name}")
    return total


if RECORD:
    record(Path(RECORD))
if __name__ == "__main__":
    main()
