"""What gunicorn does more in these tests: each process says in the log when it has loaded the app."""

from __future__ import annotations

from typing import Any

HAS_APP = "has loaded the app"


def post_worker_init(worker: Any) -> None:
    """Say so; gunicorn calls this by its name."""
    worker.log.info("worker %d %s", worker.pid, HAS_APP)
