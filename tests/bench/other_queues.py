"""The queues that tests/bench/engines.py compares with: a Celery app and a huey, each with a no-op task."""

from __future__ import annotations

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


if os.environ.get("BENCH_APP") == "counting":
    celery = celery_app()
if os.environ.get("BENCH_APP") == "huey":
    queue = huey_app()
