"""The queues that tests/bench/engines.py compares with: a Celery app and a huey, each with a no-op task."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

COUNT = int(os.environ.get("BENCH_COUNT", "0"))
RESULT = os.environ.get("BENCH_RESULT", "")
FIRST = os.environ.get("BENCH_FIRST", "")
_numbers = itertools.count(1)  # its next() is one step, whichever thread


def count_one() -> None:
    """Write the time when the first and when the last of COUNT tasks has run."""
    number = next(_numbers)
    if number == 1:
        Path(FIRST).write_text(str(time.time()))
    if number == COUNT:
        Path(RESULT).write_text(str(time.time()))


def celery_app():
    """Celery as its documentation says for work that must not be lost, without any result."""
    import celery

    app = celery.Celery("bench", broker=os.environ["BILLHOOK_TEST_AMQP_URL"])
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        broker_transport_options={"confirm_publish": True},
        task_default_queue=os.environ.get("BENCH_QUEUE", "billhook-bench"),
        worker_hijack_root_logger=False,
    )

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


if os.environ.get("BENCH_RIVAL") == "celery":
    celery = celery_app()
if os.environ.get("BENCH_RIVAL") == "huey":
    queue = huey_app()
