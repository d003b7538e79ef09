"""The queues that tests/bench/engines.py compares with, each with a task that does nothing.

Celery on RabbitMQ, huey on SQLite; pgqueuer and procrastinate on the PostgreSQL that billhook is measured on.
`python other_queues.py` runs the worker of the last two, which have none of their own with these options.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from pathlib import Path

_numbers = itertools.count(1)  # its next() is one step, whichever thread


def count_one() -> None:
    """Write the time when the first and when the last of BENCH_COUNT tasks has run."""
    number = next(_numbers)
    for place, which in ((1, "FIRST"), (int(os.environ["BENCH_COUNT"]), "LAST")):
        if number == place:
            Path(os.environ[f"BENCH_{which}"]).write_text(str(time.time()))


def make_celery():
    """Celery as its documentation says for work that must not be lost, without any result."""
    import celery

    app = celery.Celery("bench", broker=os.environ["BENCH_BROKER"])
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        broker_transport_options={"confirm_publish": True},
        task_default_queue=os.environ["BENCH_QUEUE"],
        worker_hijack_root_logger=False,
    )
    return app


def celery_app():
    """Celery with a no-op task."""
    app = make_celery()

    @app.task(name="bench.noop")
    def noop(number: int) -> None:
        count_one()

    return app


def huey_app():
    """huey on SQLite, with its defaults."""
    import huey

    queue = huey.SqliteHuey(
        "bench", filename=str(Path(os.environ["BENCH_FOLDER"]) / "huey.db"), results=False
    )

    @queue.task(name="noop")
    def noop(number: int) -> None:
        count_one()

    queue.noop = noop
    return queue


async def pgqueuer_app():
    """pgqueuer over asyncpg, on a connection of its own: it picks and finishes jobs in batches."""
    import asyncpg
    from pgqueuer import PgQueuer

    queue = PgQueuer.from_asyncpg_connection(await asyncpg.connect(os.environ["BENCH_DATABASE"]))

    @queue.entrypoint("noop")
    async def noop(job) -> None:
        count_one()

    return queue


async def fill_pgqueuer(count: int, payload: bytes) -> None:
    """Create its tables and its jobs."""
    queue = await pgqueuer_app()
    await queue.qm.queries.install()
    for start in range(0, count, 5_000):
        size = min(5_000, count - start)
        await queue.qm.queries.enqueue(["noop"] * size, [payload] * size, [0] * size)
    await queue.connection._connection.close()


async def run_pgqueuer(batch_size: int) -> None:
    """Run its worker."""
    queue = await pgqueuer_app()
    await queue.run(batch_size=batch_size)


def procrastinate_app():
    """procrastinate with a task that is no coroutine, as billhook's handler: it runs in a thread."""
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=os.environ["BENCH_DATABASE"]))

    @app.task(name="noop")
    def noop(payload: str) -> None:
        count_one()

    return app


async def fill_procrastinate(count: int, payload: str) -> None:
    """Create its tables and its jobs."""
    async with procrastinate_app().open_async() as app:
        await app.schema_manager.apply_schema_async()
        for start in range(0, count, 5_000):
            jobs = [{"payload": payload}] * min(5_000, count - start)
            await app.tasks["noop"].batch_defer_async(*jobs)


async def run_procrastinate(threads: int) -> None:
    """Run its worker."""
    async with procrastinate_app().open_async() as app:
        await app.run_worker_async(concurrency=threads)


if os.environ.get("BENCH_APP") == "counting":
    celery = celery_app()
if os.environ.get("BENCH_APP") == "huey":
    queue = huey_app()
if __name__ == "__main__":
    size = int(os.environ["BENCH_SIZE"])
    asyncio.run({"pgqueuer": run_pgqueuer, "procrastinate": run_procrastinate}[os.environ["BENCH_APP"]](size))
