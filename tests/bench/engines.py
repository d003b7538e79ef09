"""No-op handler runs per second of one worker process, beside Celery's own tasks and huey's.

    python tests/bench/engines.py [--rounds 3] [--count 20000] [--latency 200] [--json FILE]

Each round fills every queue with COUNT jobs and then starts one worker process with 8 threads (Celery also
with one prefork child), in turn. The rate is COUNT by the time from the first job to the last; for billhook
until the last run is settled in the database. Needs BILLHOOK_TEST_AMQP_URL for Celery and
BILLHOOK_TEST_POSTGRES_URL for PostgreSQL; `pip install 'billhook[bench]'` installs the other queues.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import func, insert, select

from billhook.events import InvoiceApproved, sample
from billhook.inbox import Inbox, NewDelivery
from billhook.inbox.schema import delivery, run

HERE = Path(__file__).parent
THREADS = 8
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = sample(InvoiceApproved).to_json()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--latency", type=int, default=200, help="deliveries of the latency measurement")
    parser.add_argument("--only", action="append", help="measure these alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write each rate there")
    options = parser.parse_args()
    measured: dict[str, list[float]] = {}
    for number in range(options.rounds):
        for name, measure in _measures().items():
            if options.only and name not in options.only:
                continue
            with tempfile.TemporaryDirectory() as folder:
                rate = measure(Path(folder), options.count)
            measured.setdefault(name, []).append(rate)
            print(f"round {number + 1}: {name:24} {rate:7.0f} runs/s", flush=True)
            if options.json:
                options.json.write_text(json.dumps(measured, indent=1) + "\n")
    report(measured)
    for name, url in _inboxes():
        with tempfile.TemporaryDirectory() as folder, url(Path(folder)) as inbox_url:
            print(f"{name:24} {latency(Path(folder), inbox_url, options.latency)}")


def report(measured: dict[str, list[float]]) -> None:
    """Medians with their spread, and ratios taken within a round."""
    print()
    for name, rates in measured.items():
        print(f"{name:24} {statistics.median(rates):7.0f}/s ({min(rates):.0f} to {max(rates):.0f})")
    ours = [name for name in measured if name.startswith("billhook")]
    for name in ours:
        for other in (name for name in measured if name not in ours):
            ratios = [a / b for a, b in zip(measured[name], measured[other], strict=True)]
            spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
            print(f"{name} / {other:16} {statistics.median(ratios):5.2f} {spread}")


def _measures() -> dict[str, Callable[[Path, int], float]]:
    found: dict[str, Callable[[Path, int], float]] = {}
    for name, url in _inboxes():
        found[name] = lambda folder, count, url=url: _billhook(folder, count, url)
    if "BILLHOOK_TEST_AMQP_URL" in os.environ:
        for pool, concurrency in (("threads", THREADS), ("prefork", 1)):
            found[f"celery {pool}"] = lambda folder, count, pool=pool, concurrency=concurrency: _celery(
                folder, count, pool, concurrency
            )
    with contextlib.suppress(ImportError):
        import huey  # noqa: F401

        found["huey sqlite"] = _huey
    return found


def _inboxes() -> list[tuple[str, Callable[[Path], contextlib.AbstractContextManager[str]]]]:
    found = [("billhook sqlite", _sqlite)]
    if "BILLHOOK_TEST_POSTGRES_URL" in os.environ:
        found.append(("billhook postgresql", postgres))
    return found


@contextlib.contextmanager
def _sqlite(folder: Path) -> Iterator[str]:
    yield f"sqlite:///{folder / 'inbox.db'}"


def server_url() -> str:
    """Return the address of the PostgreSQL server, as psycopg takes it."""
    return os.environ["BILLHOOK_TEST_POSTGRES_URL"].replace("postgresql+psycopg://", "postgresql://")


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """An inbox in a schema of its own, gone afterwards."""
    import psycopg

    server = server_url()
    name = f"bench_{os.getpid()}_{folder.name.lower()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{name}"')
        try:
            joint = "&" if "?" in server else "?"
            yield f"{server.replace('postgresql://', 'postgresql+psycopg://')}{joint}options=-csearch_path%3D{name}"
        finally:
            connection.execute(f'DROP SCHEMA "{name}" CASCADE')


def fill(inbox: Inbox, count: int) -> None:
    """Deliveries that wait to be handled."""
    now = datetime.now(UTC)
    rows = [
        {
            "source": "default",
            "key": f"key-{number}",
            "event_type": "InvoiceApproved",
            "body": BODY,
            "headers": "{}",
            "state": "received",
            "signed_at": now,
            "received_at": now,
        }
        for number in range(count)
    ]
    with inbox.database.write() as connection:
        for start in range(0, count, 5_000):
            connection.execute(insert(delivery), rows[start : start + 5_000])


@contextlib.contextmanager
def _worker(folder: Path, command: list[str], **environment: str) -> Iterator[None]:
    environ = {**os.environ, "BENCH_FOLDER": str(folder), **environment}
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, cwd=HERE, stdout=log, stderr=log)
    try:
        yield
        if process.poll() is not None:
            sys.exit((folder / "worker.log").read_text())
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def worker_beside(folder: Path, url: str, **more: str) -> contextlib.AbstractContextManager[None]:
    """Run `billhook worker` with a handler that does nothing."""
    command = [sys.executable, "-m", "billhook", "worker", "noop.py", "--threads", str(THREADS)]
    settings = {"BILLHOOK_INBOX_URL": url, "BILLHOOK_SECRETS": SECRET, "BILLHOOK_ENGINE": "worker", **more}
    return _worker(folder, command, **settings)


def _billhook(
    folder: Path, count: int, url: Callable[[Path], contextlib.AbstractContextManager[str]]
) -> float:
    """From the first claim to the last settled run, by the database."""
    with url(folder) as inbox_url:
        inbox = Inbox(inbox_url)
        inbox.upgrade() if inbox_url.startswith("postgres") else inbox.prepare()
        fill(inbox, count)
        with worker_beside(folder, inbox_url):
            first = last = None
            while last is None:
                with inbox.database.read() as connection:
                    done = connection.execute(
                        select(func.count()).select_from(run).where(run.c.state == "succeeded")
                    ).scalar_one()
                if done and first is None:
                    first, before = time.time(), done
                if done == count:
                    last = time.time()
                time.sleep(0.02 if first is None or done > count * 0.95 else 0.2)
        inbox.close()
    return (count - before) / (last - first)


def _celery(folder: Path, count: int, pool: str, concurrency: int) -> float:
    queue = f"billhook-bench-{os.getpid()}"
    environ = {"BENCH_RIVAL": "celery", "BENCH_QUEUE": queue, "BENCH_COUNT": str(count)}
    os.environ.update(environ)
    from other_queues import celery_app

    app = celery_app()
    app.conf.task_default_queue = queue
    with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
        for number in range(count):
            app.send_task("bench.noop", [number], producer=producer, queue=queue)
    result = folder / "result"
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "other_queues:celery",
        "worker",
        "-P",
        pool,
        "-c",
        str(concurrency),
    ]
    command += ["-l", "error", "--without-gossip", "--without-mingle", "--without-heartbeat", "-Q", queue]
    first = folder / "first"
    with _worker(folder, command, BENCH_RESULT=str(result), BENCH_FIRST=str(first), **environ):
        _wait(result)
    with app.connection_for_write() as connection:
        connection.default_channel.queue_delete(queue)
    return count / (float(result.read_text()) - float(first.read_text()))


def _huey(folder: Path, count: int) -> float:
    os.environ.update(BENCH_FOLDER=str(folder), BENCH_COUNT=str(count))
    from other_queues import huey_app

    queue = huey_app()
    for number in range(count):
        queue.noop(number)
    result, first = folder / "result", folder / "first"
    command = [
        sys.executable,
        "-m",
        "huey.bin.huey_consumer",
        "other_queues.queue",
        "-w",
        str(THREADS),
        "-k",
        "thread",
        "-q",
    ]
    environ = {"BENCH_RIVAL": "huey", "BENCH_COUNT": str(count)}
    with _worker(folder, command, BENCH_RESULT=str(result), BENCH_FIRST=str(first), **environ):
        _wait(result)
    return count / (float(result.read_text()) - float(first.read_text()))


def _wait(path: Path) -> None:
    end = time.monotonic() + 300
    while not path.exists():
        if time.monotonic() > end:
            sys.exit(f"no end within 300 s: {(path.parent / 'worker.log').read_text()}")
        time.sleep(0.02)
    time.sleep(0.05)


def latency(folder: Path, url: str, count: int) -> str:
    """From put to handler, one delivery every 30 ms, on a worker that has nothing else to do."""
    inbox = Inbox(url)
    inbox.upgrade() if url.startswith("postgres") else inbox.prepare()
    out = folder / "latencies"
    with worker_beside(folder, url, BENCH_LATENCIES=str(out)):
        for number in range(count + 1):
            now = datetime.now(UTC)
            inbox.put(NewDelivery("default", f"late-{number}", "InvoiceApproved", BODY, "{}", now, now))
            if number == 0:
                _wait(out)  # the worker is up
            time.sleep(0.03)
        time.sleep(0.5)
    inbox.close()
    figures = sorted(float(line) * 1000 for line in out.read_text().split()[1:])
    p50, p99 = figures[len(figures) // 2], figures[int(len(figures) * 0.99)]
    return f"latency put to handler: p50 {p50:.1f} ms, p99 {p99:.1f} ms over {len(figures)}"


if __name__ == "__main__":
    main()
