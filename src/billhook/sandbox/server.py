"""Serving a sandbox by itself: gunicorn, with one process, for a sandbox has one clock."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.workers.gthread import ThreadWorker

from billhook.sandbox.options import SandboxOptions
from billhook.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from flask import Flask

__all__ = ["serve"]

_THREADS = 16


class _Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Ends in order at Ctrl-C as well: an exception out of a signal's handler comes up anywhere."""

    early: SimpleQueue[int]
    """The signals that came before this process handled its own: until then it does as its master does."""

    def init_signals(self) -> None:
        """Handle signals from here on, with those that asked for the end before."""
        super().init_signals()
        signal.signal(signal.SIGHUP, self.handle_exit)
        while not self.early.empty():
            if self.early.get() in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
                self.alive = False

    def handle_quit(self, sig: int, frame: FrameType | None) -> None:
        """At SIGINT and SIGQUIT do as at SIGTERM."""
        self.handle_exit(sig, frame)


class _Master(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    """Ends when its terminal is closed: gunicorn would load itself anew, with nobody left to stop it."""

    def handle_hup(self) -> None:
        """At SIGHUP do as at SIGTERM."""
        self.handle_term()


class _Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    def __init__(self, options: SandboxOptions, bind: str, ready: Callable[[str], None]) -> None:
        self._options = options
        self._bind = bind
        self._ready = ready
        self._sandbox: Sandbox | None = None
        super().__init__()

    def load_config(self) -> None:
        settings: dict[str, Any] = {
            "bind": self._bind,
            "workers": 1,
            "worker_class": _Worker,
            "threads": _THREADS,
            "keepalive": 75,
            "graceful_timeout": 5,
            "control_socket_disable": True,
            "errorlog": "-",
            "loglevel": "error",  # a warning repeats a request's broken line, which may hold a token
            "proc_name": "billhook-sandbox",
            "when_ready": lambda arbiter: self._ready(_address(arbiter.LISTENERS)),
            "post_fork": lambda arbiter, worker: setattr(worker, "early", arbiter.SIG_QUEUE),
            "post_worker_init": lambda worker: self._begin(_address(worker.sockets)),
            "worker_exit": lambda arbiter, worker: self._end(),
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def run(self) -> None:
        """Serve until the end."""
        _Master(self).run()

    def load(self) -> Flask:
        """In the process that answers: no connection or thread survives a fork."""
        self._sandbox = Sandbox(self._options)
        return self._sandbox.app()

    def _begin(self, url: str) -> None:
        if self._sandbox is not None:
            self._sandbox.is_served_at(url)
            self._sandbox.start()

    def _end(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()


def _address(listeners: Sequence[Any]) -> str:
    host, port = listeners[0].sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(options: SandboxOptions, bind: str, ready: Callable[[str], None]) -> None:
    """Answer at `bind` (HOST:PORT) until SIGTERM, SIGINT or SIGHUP; `ready` is told the URL once it listens.

    `ready` is also who tells the API token: none is made here, and the one of the options is not looked at.
    """
    _Server(replace(options, api_token=None), bind, ready).run()
