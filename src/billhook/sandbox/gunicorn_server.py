"""Serving a sandbox with gunicorn: one process, for a sandbox has one clock."""

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

# POST /_sandbox/flush and a move of the clock occupy a thread while they wait.
_THREADS = 16
_GRACE_SECONDS = 5
"""How long the worker waits for open requests when it stops."""
_KILL_AFTER_SECONDS = 25
"""How long the master waits for the worker, which may still be loading and has its own grace after that.

With gunicorn's one setting for both, the master would kill a worker at the moment at which it gives up its
requests: a temporary database would stay, and gunicorn would suspect that memory ran out.
"""


class _Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Shuts down gracefully at Ctrl-C as well: gunicorn would raise from the signal handler."""

    early: SimpleQueue[int]
    """Signals received before this process installed its own handlers: until then the master's apply."""

    def init_process(self) -> None:
        """Load the sandbox and serve, with the worker's own grace."""
        self.cfg.set("graceful_timeout", _GRACE_SECONDS)  # in this process: the master has another object
        super().init_process()

    def init_signals(self) -> None:
        """Install the handlers, and stop if a signal to stop came before."""
        super().init_signals()
        signal.signal(signal.SIGHUP, self.handle_exit)
        while not self.early.empty():
            if self.early.get() in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
                self.alive = False

    def handle_quit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down gracefully at SIGINT and SIGQUIT, as at SIGTERM."""
        self.handle_exit(sig, frame)


class _Master(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    """Stops when its terminal is closed: gunicorn would reload and keep running without one."""

    def handle_hup(self) -> None:
        """Shut down gracefully at SIGHUP, as at SIGTERM."""
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
            # Several processes would each have a clock of their own, and send every webhook.
            "workers": 1,
            "worker_class": _Worker,
            "threads": _THREADS,
            "keepalive": 75,
            "graceful_timeout": _KILL_AFTER_SECONDS,
            "control_socket_disable": True,
            "errorlog": "-",
            "loglevel": "error",  # warnings quote malformed request lines, which may hold a token
            "proc_name": "billhook-sandbox",
            "when_ready": lambda arbiter: self._ready(_address(arbiter.LISTENERS)),
            "post_fork": lambda arbiter, worker: setattr(worker, "early", arbiter.SIG_QUEUE),
            # Not in load(): the address is known only after the socket is bound, also for port 0.
            "post_worker_init": lambda worker: self._begin(_address(worker.sockets), worker),
            "worker_exit": lambda arbiter, worker: self._end(),
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def run(self) -> None:
        """Serve until a signal to stop."""
        _Master(self).run()

    def load(self) -> Flask:
        """Create the sandbox in the worker process, since connections and threads do not survive a fork."""
        self._sandbox = Sandbox(self._options)
        return self._sandbox.app()

    def _begin(self, url: str, worker: _Worker) -> None:
        if self._sandbox is not None and worker.alive:  # not if a signal to stop came while it loaded
            self._sandbox.set_base_url(url)
            self._sandbox.start()

    def _end(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()


def _address(listeners: Sequence[Any]) -> str:
    host, port = listeners[0].sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(options: SandboxOptions, bind: str, ready: Callable[[str], None]) -> None:
    """Serve at `bind` (HOST:PORT) until SIGTERM, SIGINT or SIGHUP; call `ready` with the URL once it listens.

    API tokens are up to `ready`: none is created here, and that of the options is ignored.
    """
    # The API token is created by `ready`, in the master; the worker must not activate another one.
    _Server(replace(options, api_token=None), bind, ready).run()
