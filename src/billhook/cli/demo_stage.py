"""Where the demo plays: a folder, a port, gunicorn, a worker and a sandbox, all of them gone afterwards."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from billhook.cli.demo_handlers import NOTES
from billhook.cli.demo_inbox import settled
from billhook.cli.demo_rows import Note, Row, Verdict, folded, hostile, judge, samples
from billhook.cli.faults import Fault
from billhook.cli.output import printable
from billhook.cli.post import Answer, Poster
from billhook.cli.processes import spawn, stop_all, web_command, worker_command
from billhook.errors import MissingExtra

if TYPE_CHECKING:
    from billhook.cli.demo_service import Service

__all__ = ["HANDLERS", "Stage"]

HANDLERS = "billhook.cli.demo_handlers"
_URL_PATH = "/webhooks/billing"
_PATIENCE_SECONDS = 60.0
"""For an answer and for handlers: what is sent first waits until the servers are up."""
_TAIL_LINES = 40
_SANDBOX = "sandbox.db"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stage:
    """A context manager, in the main thread; `play` sends and judges, `steps` tells what the sandbox did."""

    def __init__(self, handlers: str) -> None:
        self._handlers = handlers
        secret, forged = (f"whsec_{b64encode(secrets.token_bytes(32)).decode()}" for _ in range(2))
        self._secret = secret
        self._forged_secret = forged
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._service: Service | None = None
        self._serving = ExitStack()
        self.steps: list[str] = []
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

    @property
    def has_sandbox(self) -> bool:
        """Do events happen by themselves? Else samples are sent, for the sandbox is not installed."""
        return self._service is not None

    def play(self, advance: Callable[[], None]) -> list[Verdict]:
        """Have everything sent, wait for the handlers, and judge. Raises Fault if a server ends."""
        url = f"http://127.0.0.1:{self._port}{_URL_PATH}"
        sent = self._happen(self._service, url, advance) if self._service else []
        with Poster(url, _PATIENCE_SECONDS) as poster:

            def post(row: Row) -> tuple[Row, Answer]:
                answer = poster.post(row.body, row.headers)
                self._check_alive()
                advance()
                return row, answer

            sent = sent or [post(row) for row in samples(self._secret, datetime.now(UTC))]
            good = [row for row, _ in sent]
            bad = [post(row) for row in hostile(good, self._secret, self._forged_secret, datetime.now(UTC))]
        states = settled(self._folder / "billhook.db", _PATIENCE_SECONDS, self._check_alive)
        notes = self._folder / NOTES
        lines = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
        called = [Note.read(line) for line in lines]
        return [*folded(judge(sent, called, states)), *judge(bad, called, states)]

    def _happen(self, service: Service, url: str, advance: Callable[[], None]) -> list[tuple[Row, Answer]]:
        try:
            self.steps += service.play(url, advance)
            return service.sent(self._secret)
        except Fault:
            self._check_alive()  # tells more, if that is why
            raise

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
        # The socket is ours before anybody else can take its port, and holds who comes before a server is up.
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            (self._folder / "log").open("wb") as log,
        ):
            self._port = listener.getsockname()[1]

            def start(name: str, command: list[str], *sockets: socket.socket) -> None:
                self._children[name] = spawn(
                    command, environ, output=log, cwd=self._folder,
                    pass_fds=[one.fileno() for one in sockets],
                )  # fmt: skip

            start("the web server", web_command(f"fd://{listener.fileno()}", 1, 8), listener)
            start("the worker", worker_command(4, 5))
        self._service = self._sandbox()  # last: it begins threads, and children are made by forking

    def _sandbox(self) -> Service | None:
        """In this process: one of its own would be the last to come up. None if it is not installed."""
        try:
            from billhook.cli.demo_service import Service
            from billhook.sandbox import Sandbox, SandboxOptions
            from billhook.sandbox.serving import serving
        except MissingExtra:
            return None
        database_url = f"sqlite:///{self._folder / _SANDBOX}"
        options = SandboxOptions(
            database_url=database_url,
            secrets=(self._secret,),
            allow_private=True,
            delivery_timeout_seconds=_PATIENCE_SECONDS,
        )
        made = Sandbox(options)
        url = self._serving.enter_context(serving(made))
        return Service(url, made.client_id, made.api_token or "", _PATIENCE_SECONDS)

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

    def _check_alive(self) -> None:
        for name, child in self._children.items():
            if child.poll() is not None:
                tail = printable(self.log_tail(), "\n")
                raise Fault(f"{name} ended by itself; the end of its log:\n{tail}")

    def _clear(self) -> None:
        for number in _SIGNALS:  # an impatient second Ctrl-C would leave things behind
            signal.signal(number, signal.SIG_IGN)
        stop_all(tuple(self._children.values()), 10.0)
        self._serving.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        for number, handler in self._before:
            signal.signal(number, handler)
