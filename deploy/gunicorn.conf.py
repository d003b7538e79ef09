"""How gunicorn runs the receiver; `billhook serve` uses the same file.

Use it as `gunicorn -c gunicorn.conf.py 'billhook.standalone:create_asgi_app()'`. A Flask app of your own with
billhook in it is served with `-k gthread --worker-connections 1000` before its name, or as
`hooks.asgi_app(app)` without. deploy/SETTINGS.md says why each setting is as it is.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import Any

from billhook.logs import replace_stream_handlers
from billhook.servers.gunicorn_refusals import refuse_plainly

bind = "127.0.0.1:8000"
worker_class = "billhook.gunicorn_worker.AsgiWorker"
workers = int(os.environ.get("WEB_CONCURRENCY", "2"))
worker_connections = 10_000
threads = 16  # with gthread
preload_app = False

timeout = 30
graceful_timeout = 20
keepalive = 75

control_socket_disable = True
worker_tmp_dir = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - memory, not a shared folder
# A client of a local proxy must not choose path or scheme: only X-Forwarded-Proto, set by nginx, counts.
forwarder_headers = ""
secure_scheme_headers = {"X-FORWARDED-PROTO": "https"}

accesslog = None
errorlog = "-"
# With JSON, gunicorn's records are JSON objects too. A standalone app keeps the logging that is set up here.
logconfig_dict = {
    "version": 1,
    "root": {"level": "INFO", "handlers": ["error_console"]},
    "loggers": {
        "alembic": {"level": "WARNING"},
        "gunicorn.error": {"level": "INFO", "handlers": ["error_console"], "propagate": False},
    },
    "formatters": {"generic": {"()": "billhook.logs.JsonFormatter"}},
    "disable_existing_loggers": False,
}
if os.environ.get("BILLHOOK_LOG_FORMAT") != "json":
    logconfig_dict = {}


def on_starting(server: Any) -> None:
    """Keep gunicorn's log lines from waiting for a reader that has stopped reading."""
    replace_stream_handlers("gunicorn.error", "")
    if "LISTEN_FDS" in os.environ:  # of `billhook serve`, which cannot know the process that it starts
        os.environ.setdefault("LISTEN_PID", str(os.getpid()))


on_reload = on_starting  # gunicorn sets its log up anew


def when_ready(server: Any) -> None:
    """Tell `billhook serve`, if this is its child, that connections are accepted: it tells systemd."""
    descriptor = os.environ.pop("SERVE_READY_FD", None)
    if descriptor is not None and not server.master_pid:  # a gunicorn that replaces another has it no more
        os.pwrite(int(descriptor), struct.pack("d", time.monotonic()), 0)
        os.close(int(descriptor))


def post_worker_init(worker: Any) -> None:
    """Start the process's threads and its engine before the first delivery; needed with gthread.

    What strangers send is answered without its text, and does not fill gunicorn's log: with gthread each
    request that is no HTTP is a line.
    """
    app = getattr(worker, "wsgi", None)
    if app is None:  # an ASGI application is started by its lifespan, and AsgiWorker refuses by itself
        return
    state = getattr(app, "extensions", {}).get("billhook")
    refuse_plainly(worker, (lambda status: None) if state is None else state.rules.refused_by_server)
    if state is not None:
        state.start()
