"""How gunicorn runs the receiver; `billhook serve` uses the same file.

Use it as `gunicorn -c gunicorn.conf.py 'billhook.standalone:create_app()'`, or with an app of your own that
has billhook in it. deploy/README.md says why each setting is as it is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

bind = "127.0.0.1:8000"
worker_class = "gthread"
workers = int(os.environ.get("WEB_CONCURRENCY", "2"))
threads = 16
preload_app = False

timeout = 30
graceful_timeout = 20
keepalive = 75

control_socket_disable = True
worker_tmp_dir = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - memory, not a shared folder
accesslog = None
errorlog = "-"


def post_worker_init(worker: Any) -> None:
    """Begin to handle what is stored as soon as the process is up, not with its first delivery."""
    state = getattr(worker.wsgi, "extensions", {}).get("billhook")
    if state is not None:
        state.engine.start()
