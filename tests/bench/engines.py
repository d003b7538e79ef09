"""No-op handler runs per second of one worker process, beside Celery's own tasks and huey's.

    python tests/bench/engines.py [--rounds 3] [--count 20000] [--latency 200] [--json FILE]

Each round fills every queue with COUNT jobs and then starts one worker process with 8 threads (Celery also
with one prefork child), in turn. The rate is COUNT by the time from the first job to the last; for billhook
until the last run is settled in the database. Needs BILLHOOK_TEST_AMQP_URL for Celery and
BILLHOOK_TEST_POSTGRES_URL for PostgreSQL; `pip install 'billhook[bench]'` installs the other queues.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from measuring import (
    BODY,
    HERE,
    SERVER,
    Place,
    count_succeeded,
    inbox_at,
    options,
    places,
    process,
    ratios,
    save,
    spread,
)
from sqlalchemy import insert

from billhook.inbox import Inbox, NewDelivery
from billhook.inbox.tables.schema import delivery
from support.postgres import fresh_schema
from support.processes import until
from support.signing import SECRET

THREADS = 8
PAYLOAD = b"x" * 200
"""Of a job of a queue on PostgreSQL, whose jobs are no deliveries."""


def main() -> None:
    """Measure and print."""
    measures = _measures()
    given = options(__doc__, rounds=3, count=20_000, latency=200, only=list(measures))
    measured: dict[str, list[float]] = {}
    for number in range(given.rounds):
        for name in given.only:
            with tempfile.TemporaryDirectory() as folder:
                rate = measures[name](Path(folder), given.count)
            measured.setdefault(name, []).append(rate)
            print(f"round {number + 1}: {name:24} {rate:7.0f} runs/s", flush=True)
            save(given, measured)
    report(measured)
    for name, place in places().items():
        print(f"billhook {name:15} {latency(place, given.latency)}")


def report(measured: dict[str, list[float]]) -> None:
    """Medians with their spread, and ratios taken within a round."""
    print()
    for name, rates in measured.items():
        print(f"{name:24} {spread(rates, 0)}/s")
    ours = [name for name in measured if name.startswith("billhook")]
    for name in ours:
        for other in (name for name in measured if name not in ours):
            print(f"{name} / {other:16} {spread(ratios(measured[name], measured[other]))}")


def _measures() -> dict[str, Callable[[Path, int], float]]:
    found: dict[str, Callable[[Path, int], float]] = {}
    for name, place in places().items():
        found[f"billhook {name}"] = partial(_billhook, place)
    if "BILLHOOK_TEST_AMQP_URL" in os.environ:
        found["celery threads"] = partial(_celery, "threads", THREADS)
        found["celery prefork"] = partial(_celery, "prefork", 1)
    if find_spec("huey"):
        found["huey sqlite"] = _huey
    if SERVER and find_spec("pgqueuer"):
        found["pgqueuer, batches of 200"] = partial(_on_postgresql, "pgqueuer", PAYLOAD, 200)
        found["pgqueuer, its default"] = partial(_on_postgresql, "pgqueuer", PAYLOAD, 10)
    if SERVER and find_spec("procrastinate"):
        found["procrastinate"] = partial(_on_postgresql, "procrastinate", PAYLOAD.decode(), THREADS)
    return found


def fill(inbox: Inbox, count: int) -> None:
    """Deliveries that wait to be handled."""
    now = datetime.now(UTC)
    facts = {"source": "default", "event_type": "InvoiceApproved", "body": BODY, "headers": "{}"}
    facts |= {"state": "received", "signed_at": now, "received_at": now}
    rows = [{**facts, "key": f"key-{number}"} for number in range(count)]
    with inbox.database.write() as connection:
        for start in range(0, count, 5_000):
            connection.execute(insert(delivery), rows[start : start + 5_000])


def worker_beside(folder: Path, url: str, **more: str) -> contextlib.AbstractContextManager[object]:
    """Run `billhook worker` with a handler that does nothing."""
    command = [sys.executable, "-m", "billhook", "worker", HERE / "noop.py", "--threads", str(THREADS)]
    settings = {"BILLHOOK_INBOX_URL": url, "BILLHOOK_SECRETS": SECRET, "BILLHOOK_ENGINE": "worker", **more}
    return process(command, folder / "worker.log", **settings)


def _billhook(place: Place, folder: Path, count: int) -> float:
    """From the first claim to the last settled run, by the database."""
    with inbox_at(place) as (inbox, url):
        fill(inbox, count)
        with worker_beside(folder, url):
            first = last = None
            while last is None:
                done = count_succeeded(inbox)
                if done and first is None:
                    first, before = time.time(), done
                if done == count:
                    last = time.time()
                time.sleep(0.02 if first is None or done > count * 0.95 else 0.2)
    return (count - before) / (last - first)


def _celery(pool: str, concurrency: int, folder: Path, count: int) -> float:
    queue = f"billhook-bench-{os.getpid()}"
    broker = os.environ["BILLHOOK_TEST_AMQP_URL"]
    environ = {"BENCH_APP": "counting", "BENCH_QUEUE": queue, "BENCH_BROKER": broker}
    os.environ.update(environ)
    from other_queues import celery_app

    app = celery_app()
    with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
        for number in range(count):
            app.send_task("bench.noop", [number], producer=producer, queue=queue)
    command = [sys.executable, "-m", "celery", "-A", "other_queues:celery", "worker", "-P", pool]
    command += ["-c", str(concurrency), "-l", "error", "-Q", queue]
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    rate = _rate(command, folder, count, **environ)
    with app.connection_for_write() as connection:
        connection.default_channel.queue_delete(queue)
    return rate


def _huey(folder: Path, count: int) -> float:
    os.environ["BENCH_FOLDER"] = str(folder)
    from other_queues import huey_app

    queue = huey_app()
    for number in range(count):
        queue.noop(number)
    command = [sys.executable, "-m", "huey.bin.huey_consumer", "other_queues.queue", "-q"]
    command += ["-w", str(THREADS), "-k", "thread"]
    return _rate(command, folder, count, BENCH_APP="huey")


def _on_postgresql(app: str, payload: bytes | str, size: int, folder: Path, count: int) -> float:
    """Measure a queue on a schema of its own; `size` is its batch or its number of jobs at a time."""
    with fresh_schema(SERVER) as url:
        environ = {"BENCH_APP": app, "BENCH_DATABASE": url.replace("+psycopg", ""), "BENCH_SIZE": str(size)}
        os.environ.update(environ)
        import other_queues

        asyncio.run(getattr(other_queues, f"fill_{app}")(count, payload))
        return _rate([sys.executable, str(HERE / "other_queues.py")], folder, count, **environ)


def _rate(command: list[str], folder: Path, count: int, **environ: str) -> float:
    """Tasks a second that another queue's worker has run, by the times that `count_one` writes."""
    times = [folder / "first", folder / "last"]
    environ |= {"BENCH_COUNT": str(count), "BENCH_FIRST": str(times[0]), "BENCH_LAST": str(times[1])}
    with process(command, folder / "worker.log", **environ):
        until(times[1].exists, 300, 0.02)
        time.sleep(0.05)
    first, last = (float(each.read_text()) for each in times)
    return count / (last - first)


def latency(place: Place, count: int) -> str:
    """From put to handler, one delivery every 30 ms, on a worker that has nothing else to do."""
    with inbox_at(place) as (inbox, url), tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "latencies"
        with worker_beside(Path(folder), url, BENCH_LATENCIES=str(out)):
            for number in range(count + 1):
                now = datetime.now(UTC)
                inbox.put(NewDelivery("default", f"late-{number}", "InvoiceApproved", BODY, "{}", now, now))
                if number == 0:
                    until(out.exists, 300)  # the worker is up
                time.sleep(0.03)
            time.sleep(0.5)
        figures = sorted(float(line) * 1000 for line in out.read_text().split()[1:])
    p50, p99 = figures[len(figures) // 2], figures[int(len(figures) * 0.99)]
    return f"latency put to handler: p50 {p50:.1f} ms, p99 {p99:.1f} ms over {len(figures)}"


if __name__ == "__main__":
    main()
