"""Where the demo plays: a folder, a port, gunicorn and a worker, all of them gone afterwards."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, TracebackType

from billhook.cli.demo_handlers import NOTES
from billhook.cli.demo_rows import Note, Verdict, judge, plan
from billhook.cli.faults import Fault
from billhook.cli.output import printable
from billhook.cli.post import Poster
from billhook.cli.processes import spawn, stop, web_command, worker_command
from billhook.errors import InboxUnavailable

__all__ = ["HANDLERS", "Stage"]

HANDLERS = "billhook.cli.demo_handlers"
_URL_PATH = "/webhooks/billing"
_PATIENCE_SECONDS = 12.0
_TAIL_LINES = 40
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stage:
    """A context manager, in the main thread; `play` sends and judges."""

    def __init__(self, handlers: str) -> None:
        self._handlers = handlers
        secret, forged = (f"whsec_{b64encode(secrets.token_bytes(32)).decode()}" for _ in range(2))
        self._secret = secret
        self.rows = plan(secret, forged, datetime.now(UTC))
        self._children: list[subprocess.Popen[bytes]] = []
        self._begun = False
        self._interrupted_by: int | None = None

    def __enter__(self) -> Stage:
        self._before = [(number, signal.signal(number, self._on_signal)) for number in _SIGNALS]
        self._folder = Path(tempfile.mkdtemp(prefix="billhook-demo-"))  # readable by its owner only
        try:
            self._begin()
            self._begun = True
            if self._interrupted_by is not None:
                sys.exit(128 + self._interrupted_by)
        except BaseException:
            self._clear()
            raise
        return self

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """End, but not in the middle of starting a child, which would then be nobody's."""
        self._interrupted_by = number
        if self._begun:
            sys.exit(128 + number)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def play(self, advance: Callable[[], None]) -> list[Verdict]:
        """Send every row in order, wait for the handlers, and judge. Raises Fault if the server ends."""
        with Poster(f"http://127.0.0.1:{self._port}{_URL_PATH}", _PATIENCE_SECONDS) as poster:
            answers = []
            for row in self.rows:
                answers.append(poster.post(row.body, row.headers))
                self._check_alive()
                advance()
        states = self._settled()
        notes = self._folder / NOTES
        lines = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
        return judge(self.rows, answers, [Note.read(line) for line in lines], states)

    def log_tail(self) -> str:
        """The last that gunicorn and the worker said."""
        with suppress(OSError):
            lines = (self._folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()
            return "\n".join(lines[-_TAIL_LINES:])
        return ""

    def _begin(self) -> None:
        secret_file = self._folder / "secret"
        secret_file.touch(mode=0o600)
        secret_file.write_text(self._secret + "\n", encoding="ascii")
        environ = self._environ(secret_file)
        # The socket is ours before anybody else can take the port, and holds who comes before gunicorn is up.
        with socket.create_server(("127.0.0.1", 0)) as listener, (self._folder / "log").open("wb") as log:
            self._port = listener.getsockname()[1]
            for command, descriptors in (
                (web_command(f"fd://{listener.fileno()}", 1, 8), (listener.fileno(),)),
                (worker_command(4, 5), ()),
            ):
                self._children.append(
                    spawn(command, environ, output=log, cwd=self._folder, pass_fds=descriptors)
                )

    def _environ(self, secret_file: Path) -> dict[str, str]:
        ours = ("BILLHOOK_", "FLASK_", "GUNICORN_", "WEB_CONCURRENCY")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        if "PYTHONPATH" in environ:  # the children work in another folder
            parts = environ["PYTHONPATH"].split(os.pathsep)
            environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in parts)  # noqa: PTH100
        return environ | {
            "BILLHOOK_SECRETS_FILE": str(secret_file),
            "BILLHOOK_INBOX_URL": f"sqlite:///{self._folder / 'billhook.db'}",
            "BILLHOOK_HANDLERS": self._handlers,
            "BILLHOOK_ENGINE": "worker",
        }

    def _settled(self) -> dict[str, str]:
        """{key: state} once nothing waits any more, or when patience is over."""
        from billhook.inbox import Inbox
        from billhook.inbox.admin import Selection, page

        inbox = Inbox(f"sqlite:///{self._folder / 'billhook.db'}")
        until = time.monotonic() + _PATIENCE_SECONDS
        try:
            while True:
                over = time.monotonic() >= until
                try:
                    states = {one.key: one.state for one in page(inbox, Selection(), 1_000)}
                except InboxUnavailable:  # the server that makes it is not up, or is about to end
                    if over:
                        raise
                else:
                    if over or not any(state in ("received", "planned") for state in states.values()):
                        return states
                self._check_alive()
                time.sleep(0.02)
        finally:
            inbox.close()

    def _check_alive(self) -> None:
        for child, name in zip(self._children, ("the web server", "the worker"), strict=True):
            if child.poll() is not None:
                tail = printable(self.log_tail(), "\n")
                raise Fault(f"{name} ended by itself; the end of its log:\n{tail}")

    def _clear(self) -> None:
        for number in _SIGNALS:  # an impatient second Ctrl-C would leave things behind
            signal.signal(number, signal.SIG_IGN)
        for child in self._children:
            child.terminate()
        for child in self._children:
            stop(child, 10.0)
        shutil.rmtree(self._folder, ignore_errors=True)
        for number, handler in self._before:
            signal.signal(number, handler)
