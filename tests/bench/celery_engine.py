"""What one no-op task costs on RabbitMQ: Celery's own, the same with two commits, and billhook's.

    python tests/bench/celery_engine.py [--rounds 12] [--count 400]

On SQLite and, where BILLHOOK_TEST_POSTGRES_URL is set, on PostgreSQL. Each has a worker with two prefork
processes, late acknowledgement, JSON, no results, and messages confirmed by the broker; in each round each
does COUNT tasks, in turn. The time is from the first message sent to the last task done; for billhook from
rows that are stored to rows that are settled. Printed are medians with their quartiles, and ratios within a
round: read those. Needs BILLHOOK_TEST_AMQP_URL.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from load import cpu_seconds, process_seconds
from measuring import DATABASES, count_succeeded, made, options, places, process, ratios, save

WARM_UP = 200
Figures = dict[str, float]


def main() -> None:
    """Measure and print."""
    given = options(__doc__, rounds=12, count=400, only=DATABASES)
    if "BILLHOOK_TEST_AMQP_URL" not in os.environ:
        sys.exit("set BILLHOOK_TEST_AMQP_URL to a RabbitMQ: amqp://guest:guest@127.0.0.1:5672//")
    with contextlib.ExitStack() as stack:
        running = {
            name: stack.enter_context(variant(app, database, WARM_UP + given.rounds * given.count))
            for name, app, database in variants(given.only)
        }
        results: dict[str, list[Figures]] = {name: [] for name in running}
        for jobs, _ in running.values():
            _run(jobs, WARM_UP)
        for number in range(given.rounds):
            for name, (jobs, pid) in running.items():
                before = _cpu_seconds(pid)
                seconds = _run(jobs, given.count)
                cpu = _cpu_seconds(pid) - before
                figures = {"us": seconds / given.count * 1e6, "cpu_us": cpu / given.count * 1e6}
                results[name].append(figures)
                print(f"round {number + 1}: {name:24} {line(figures)}", flush=True)
    save(given, results)
    report(results)


def variants(only: list[str]) -> Iterator[tuple[str, str, str]]:
    """Name, app in celery_apps, database."""
    yield "celery", "noop", ""
    for database in places(only):
        yield f"two commits, {database}", "commits", database
        yield f"billhook, {database}", "billhook", database


@contextlib.contextmanager
def variant(app: str, database: str, total: int) -> Iterator[tuple[Tasks | Deliveries, int]]:
    """What sends the jobs of one variant, and the pid of the worker that does them."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(places()[database](folder)) if database else ""
        if database == "postgresql":
            made(url).close()
        environ = {
            "BENCH_APP": app,
            "BENCH_FOLDER": str(folder),
            "BENCH_QUEUE": f"bench-{secrets.token_hex(4)}",
            "BENCH_BROKER": os.environ["BILLHOOK_TEST_AMQP_URL"],
            "BENCH_DATABASE": url,
        }
        os.environ.update(environ)
        apps = importlib.reload(importlib.import_module("celery_apps"))
        jobs = Deliveries(apps.celery, folder) if app == "billhook" else Tasks(apps, folder, total)
        command = [sys.executable, "-m", "celery", "-A", "celery_apps:celery", "worker", "--concurrency", "2"]
        command += ["--loglevel", "ERROR", "--without-gossip", "--without-mingle"]
        command += ["--hostname", f"{environ['BENCH_QUEUE']}@%h"]
        try:
            with process(command, folder / "worker.log", **environ) as worker:
                yield jobs, worker.pid
        finally:
            jobs.close()
            with apps.celery.connection_for_write() as connection:
                connection.default_channel.queue_delete(environ["BENCH_QUEUE"])
                connection.default_channel.exchange_delete(environ["BENCH_QUEUE"])


class Tasks:
    """Celery's own: sent over one connection, counted by what they write."""

    def __init__(self, apps: Any, folder: Path, total: int) -> None:
        self._app = apps.celery
        self._task = apps.celery.tasks["bench.task"]
        self._sent = 0
        self._ran = folder / "ran"
        self._ran.touch()
        if apps.DATABASE:
            with contextlib.closing(apps.connect_jobs()) as jobs:
                jobs.execute("CREATE TABLE job (id INTEGER PRIMARY KEY, state TEXT)")
                numbers = ",".join(f"({number}, 'waiting')" for number in range(total))
                jobs.execute(f"INSERT INTO job VALUES {numbers}")

    def store(self, count: int) -> None:
        """The rows are there."""

    def send(self, count: int) -> None:
        with self._app.connection_for_write() as connection:
            producer = self._app.amqp.Producer(connection, auto_declare=False)
            for number in range(self._sent, self._sent + count):
                self._task.apply_async((number,), producer=producer)
        self._sent += count

    def done(self) -> int:
        return self._ran.stat().st_size

    def close(self) -> None:
        """Nothing is open."""


class Deliveries:
    """billhook's: stored first, then rung for as the receiver does it, counted when they are settled."""

    def __init__(self, celery: Any, folder: Path) -> None:
        from billhook.extension import get_state

        self._assembly = get_state(celery.flask)
        self._ids: list[int] = []
        self._ran = folder / "ran"
        self._ran.touch()
        self._stored = 0

    def store(self, count: int) -> None:
        from billhook.inbox import NewDelivery

        self._ids = []
        self._stored += count
        for first in range(0, count, 100):
            now = datetime.now(UTC)
            keys = [secrets.token_hex(8) for _ in range(min(100, count - first))]
            rows = [NewDelivery("default", key, "PingTest", b"{}", "{}", now, now) for key in keys]
            self._ids += self._assembly.inbox.database.insert_new(rows)

    def send(self, count: int) -> None:
        for delivery_id in self._ids[:count]:
            self._assembly.engine.wake(delivery_id)

    def done(self) -> int:
        ran = self._ran.stat().st_size
        return ran if ran < self._stored else count_succeeded(self._assembly.inbox)

    def close(self) -> None:
        self._assembly.close()


def _run(jobs: Tasks | Deliveries, count: int, patience: float = 120) -> float:
    """Seconds from the first message to the last task done."""
    target = jobs.done() + count
    jobs.store(count)
    started = time.perf_counter()
    jobs.send(count)
    while jobs.done() < target:
        if time.perf_counter() - started > patience:
            sys.exit(f"{target - jobs.done()} of {count} were not done within {patience} s")
        time.sleep(0.005)
    return time.perf_counter() - started


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process and its children so far."""
    return process_seconds(pid) + cpu_seconds(pid)


def line(figures: Figures) -> str:
    """One measurement."""
    return f"{figures['us']:6.0f} us a task   {figures['cpu_us']:6.0f} us of CPU in the worker"


def report(results: dict[str, list[Figures]]) -> None:
    """The table, and the ratio that billhook promises."""
    print()
    for name, figures in results.items():
        us = [one["us"] for one in figures]
        cpu = [one["cpu_us"] for one in figures]
        print(f"{name:24} {quartiles(us, 0)} us a task   CPU of the worker {quartiles(cpu, 0)} us")
    for name in (name for name in results if name.startswith("billhook, ")):
        for other in ("celery", name.replace("billhook", "two commits")):
            for key, label in (("us", "time"), ("cpu_us", "CPU of the worker")):
                pair = ([one[key] for one in results[each]] for each in (name, other))
                print(f"{name} / {other}: {label} {quartiles(ratios(*pair), 2)}")


def quartiles(values: list[float], digits: int) -> str:
    """The median, and the middle half."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


if __name__ == "__main__":
    main()
