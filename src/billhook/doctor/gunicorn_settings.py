"""Findings about gunicorn's settings file."""

from __future__ import annotations

import os
import runpy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from billhook.doctor.finding import Finding
from billhook.file_modes import access_by_others

__all__ = ["foreign_file", "gunicorn_findings", "is_own", "read_gunicorn_file"]

_OWN_CLASS = "billhook.gunicorn_worker.AsgiWorker"
_REFERENCE = "take deploy/gunicorn.conf.py, which says why each setting is as it is"


def read_gunicorn_file(path: Path) -> dict[str, Any] | Finding:
    """Execute a settings file, as gunicorn does, and return its names; a finding if it raises."""
    try:
        return runpy.run_path(str(path))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a settings file is Python, and may raise anything
        return Finding(
            "error", "gunicorn-file", f"{path} cannot be read: {type(error).__name__}: {error}",
            "gunicorn does not start with it", "correct the file",
        )  # fmt: skip


def is_own(path: Path) -> bool:
    """Return whether a file is this user's or root's, and other users may not write it."""
    return path.stat().st_uid in (os.geteuid(), 0) and access_by_others(path) != "write"


def foreign_file(path: Path) -> Finding:
    """Return the finding about a settings file that is not executed."""
    return Finding(
        "warning", "gunicorn-file", f"{path} is not read: it belongs to another user, or others may write it",
        "it is Python, which gunicorn executes with the rights of its user",
        "make it your own and run `chmod go-w` on it, or name it with --gunicorn",
    )  # fmt: skip


def gunicorn_findings(settings: Mapping[str, Any], deadline_seconds: float) -> Iterator[Finding]:
    """Judge gunicorn's settings; what they leave out is gunicorn's default."""
    yield from _about_the_class(settings)
    timeout = settings.get("timeout", 30)
    if not timeout or timeout <= deadline_seconds:
        hangs = (
            "a process that hangs is never replaced"
            if not timeout
            else "processes are killed while they work"
        )
        yield Finding(
            "warning", "gunicorn-timeout", f"timeout is {timeout}", hangs,
            "set timeout = 30: single requests are bounded by BILLHOOK_DEADLINE_SECONDS",
        )  # fmt: skip
    graceful = settings.get("graceful_timeout", 30)
    if graceful < deadline_seconds + 5:
        yield Finding(
            "warning", "gunicorn-graceful-timeout", f"graceful_timeout is {graceful}",
            "requests and handlers under way are cut off at each restart", "set graceful_timeout = 20",
        )  # fmt: skip
    keepalive = settings.get("keepalive", 2)
    if keepalive < 60:
        yield Finding(
            "note", "gunicorn-keepalive", f"keepalive is {keepalive}",
            "nginx keeps a connection for 60 s, and a delivery may meet one that is just being closed",
            "set keepalive = 75",
        )  # fmt: skip
    if settings.get("preload_app", False):
        yield Finding(
            "warning", "gunicorn-preload", "preload_app is on",
            "what the app opened before the fork is shared by all processes, and a reload brings no new code",
            "set preload_app = False",
        )  # fmt: skip
    if "*" in str(settings.get("forwarded_allow_ips", "")):
        yield Finding(
            "warning", "gunicorn-forwarded", "forwarded_allow_ips is *",
            "any client can say that it came by TLS, or from another address",
            "name the proxy's address, or leave it out where the proxy is on this machine",
        )  # fmt: skip


def _about_the_class(settings: Mapping[str, Any]) -> Iterator[Finding]:
    kind = str(settings.get("worker_class", "sync"))
    threads = settings.get("threads", 1)
    if kind == "sync" and threads == 1:
        yield Finding(
            "error", "gunicorn-worker-class", "worker_class is sync",
            "one slow client occupies a whole process, and deliveries wait behind it",
            f'set worker_class = "{_OWN_CLASS}", or "gthread" for a Flask app; or {_REFERENCE}',
        )  # fmt: skip
    elif kind == "asgi":
        yield Finding(
            "warning", "gunicorn-worker-class", "worker_class is gunicorn's own asgi",
            "it has no limits for slow and idle clients", f'set worker_class = "{_OWN_CLASS}"',
        )  # fmt: skip
    elif (kind == "gthread" or kind == "sync") and threads < 8:
        yield Finding(
            "warning", "gunicorn-threads", f"gthread has {threads} threads",
            "as many clients as there are threads are served at a time, and slow ones count",
            "set threads = 16, and let nginx wait for whole requests",
        )  # fmt: skip
