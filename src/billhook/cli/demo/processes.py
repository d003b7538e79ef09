"""The demo's processes: a folder, a port, gunicorn, a worker and a sandbox, all removed at the end."""

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
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from billhook.cli.demo.expectations import (
    DemoResult,
    Expectation,
    HandlerCall,
    bad_deliveries,
    compare,
    group_by_type,
    samples,
)
from billhook.cli.demo.handlers import NOTES
from billhook.cli.output import CliError, printable
from billhook.cli.posting import HttpPoster, HttpReply
from billhook.cli.processes import spawn, stop_all
from billhook.cli.serve import web_command
from billhook.cli.worker import worker_command
from billhook.errors import ApiError, InboxUnavailable, MissingExtra

if TYPE_CHECKING:
    from billhook.cli.demo.sender import SandboxSender

__all__ = ["HANDLERS", "DemoAddress", "DemoEnvironment"]


HANDLERS = "billhook.cli.demo.handlers"
_URL_PATH = "/webhooks/billing"
_TIMEOUT_SECONDS = 60.0
"""For an answer and for the handlers: the first delivery waits until the servers are up."""
_TAIL_LINES = 40
_POLL_SECONDS = 0.5
_SANDBOX = "sandbox.db"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class DemoAddress:
    """Where a part of the demo is reached, with what it takes to log in."""

    name: str
    url: str
    login: Mapping[str, str] = field(default_factory=dict, repr=False)


class DemoEnvironment:
    """Everything that the demo runs. A context manager, in the main thread.

    `play` sends and compares; `steps` lists what the sandbox did.
    """

    def __init__(self, handlers: str, *, stays: bool = False) -> None:
        """`stays`: with a dashboard, and a signal ends it with the exit code 0."""
        self._handlers = handlers
        self._stays = stays
        # New ones for each run: nothing of the user's own is used, or could be used against it.
        secret, forged = (f"whsec_{b64encode(secrets.token_bytes(32)).decode()}" for _ in range(2))
        self._secret = secret
        self._forged_secret = forged
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._service: SandboxSender | None = None
        self._serving = ExitStack()
        self.steps: list[str] = []
        self._begun = False
        self._interrupted_by: int | None = None
        self.addresses: list[DemoAddress] = []

    def __enter__(self) -> DemoEnvironment:
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
        """Exit, but not while a child is being started: nothing would stop that child."""
        self._interrupted_by = number
        if self._begun:
            # A demo that stays ends so; one that does not is interrupted.
            sys.exit(0 if self._stays else 128 + number)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    @property
    def has_sandbox(self) -> bool:
        """Return whether the sandbox is installed; without it, samples are sent."""
        return self._service is not None

    def play(self, advance: Callable[[], None]) -> list[DemoResult]:
        """Send everything, wait for the handlers and compare. Raises CliError if a server exits."""
        url = f"http://127.0.0.1:{self._port}{_URL_PATH}"
        sent = self._play_sandbox(self._service, url, advance) if self._service else []
        with HttpPoster(url, _TIMEOUT_SECONDS) as poster:

            def post(row: Expectation) -> tuple[Expectation, HttpReply]:
                answer = poster.post(row.body, row.headers)
                self._check_alive()
                advance()
                return row, answer

            sent = sent or [post(row) for row in samples(self._secret, datetime.now(UTC))]
            good = [row for row, _ in sent]
            bad = [
                post(row)
                for row in bad_deliveries(good, self._secret, self._forged_secret, datetime.now(UTC))
            ]
        # The inbox shows the end of each run, and the handler's file what it was called with.
        states = _wait_until_settled(self._folder / "billhook.db", _TIMEOUT_SECONDS, self._check_alive)
        notes = self._folder / NOTES
        lines = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
        called = [HandlerCall.read(line) for line in lines]
        return [*group_by_type(compare(sent, called, states)), *compare(bad, called, states)]

    def _play_sandbox(
        self, service: SandboxSender, url: str, advance: Callable[[], None]
    ) -> list[tuple[Expectation, HttpReply]]:
        try:
            self.steps += service.play(url, advance)
            return service.sent(self._secret)
        except ApiError:
            self._check_alive()  # a server that exited is the better explanation
            raise

    def stay(self) -> None:
        """Keep everything running until a signal ends this process. Raises CliError if a server exits."""
        while True:
            self._check_alive()
            time.sleep(_POLL_SECONDS)

    def log_tail(self) -> str:
        """Return the last lines that gunicorn and the worker logged."""
        with suppress(OSError):
            lines = (self._folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()
            return "\n".join(lines[-_TAIL_LINES:])
        return ""

    def _begin(self) -> None:
        secret_file = _private(self._folder / "secret", self._secret + "\n")
        environ = self._environ(secret_file)
        password = secrets.token_urlsafe(18)
        if self._stays:
            environ["BILLHOOK_DASHBOARD"] = str(_private(self._folder / "dashboard", f"demo:{password}\n"))
        # Bound here, so no other process can take the port; requests wait in its queue until a server is up.
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            (self._folder / "log").open("wb") as log,
        ):
            self._port = listener.getsockname()[1]
            url = f"http://127.0.0.1:{self._port}"
            self.addresses.append(DemoAddress("receiver", f"{url}{_URL_PATH}"))
            if self._stays:
                login = {"user": "demo", "password": password}
                self.addresses.append(DemoAddress("dashboard", f"{url}/billhook/", login))

            def start(name: str, command: list[str], *sockets: socket.socket) -> None:
                self._children[name] = spawn(
                    command, environ, stdout=log, stderr=log, cwd=self._folder,
                    pass_fds=[one.fileno() for one in sockets],
                )  # fmt: skip

            start("the web server", web_command(f"fd://{listener.fileno()}", 1), listener)
            start("the worker", worker_command(4, 5))
        self._service = self._sandbox()  # last: it starts threads, and a fork must not happen beside them

    def _sandbox(self) -> SandboxSender | None:
        """Start the sandbox in this process: a child would be slower. None if it is not installed."""
        try:
            from billhook.cli.api.calls import sandbox_client
            from billhook.cli.demo.sender import SandboxSender
            from billhook.sandbox import Sandbox, SandboxOptions
            from billhook.sandbox.serving import serving
        except MissingExtra:
            return None
        database_url = f"sqlite:///{self._folder / _SANDBOX}"
        options = SandboxOptions(
            database_url=database_url,
            secrets=(self._secret,),
            allow_private=True,
            delivery_timeout_seconds=_TIMEOUT_SECONDS,
        )
        sandbox = Sandbox(options)
        url = self._serving.enter_context(serving(sandbox))
        login = {"client id": sandbox.client_id, "API token": sandbox.api_token or ""}
        self.addresses.insert(0, DemoAddress("sandbox", f"{url}/", login))
        client = sandbox_client(url, sandbox.client_id, sandbox.api_token or "", 2 * _TIMEOUT_SECONDS)
        return SandboxSender(self._serving.enter_context(client), _TIMEOUT_SECONDS)

    def _environ(self, secret_file: Path) -> dict[str, str]:
        # The user's own settings must not reach the demo: it would write to their inbox.
        ours = ("BILLHOOK_", "FLASK_", "GUNICORN_", "WEB_CONCURRENCY")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        if "PYTHONPATH" in environ:  # the children run in another folder
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
                raise CliError(f"{name} exited unexpectedly; the end of its log:\n{tail}")

    def _clear(self) -> None:
        for number in _SIGNALS:  # a second Ctrl-C would leave processes and files behind
            signal.signal(number, signal.SIG_IGN)
        # The servers before the sandbox: it may still be waiting for an answer of theirs.
        stop_all(tuple(self._children.values()), 10.0)
        self._serving.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        for number, handler in self._before:
            signal.signal(number, handler)


def _private(path: Path, text: str) -> Path:
    """Write a file that its owner alone may read."""
    path.touch(mode=0o600)
    path.write_text(text, encoding="ascii")
    return path


_MAX_DELIVERIES = 1_000


def _wait_until_settled(
    path: Path, timeout_seconds: float, check_alive: Callable[[], None]
) -> dict[str, str]:
    """Return {key: state} of the inbox at `path` once nothing is pending, or after the time-out."""
    from billhook.inbox import Inbox
    from billhook.inbox.admin import DeliveryFilter, page

    inbox = Inbox(f"sqlite:///{path}")
    deadline = time.monotonic() + timeout_seconds
    try:
        while True:
            over = time.monotonic() >= deadline
            try:
                states = {one.key: one.state for one in page(inbox, DeliveryFilter(), _MAX_DELIVERIES)}
            except InboxUnavailable:  # the server that creates it is not up yet, or is exiting
                if over:
                    raise
            else:
                if over or not any(state in ("received", "planned") for state in states.values()):
                    return states
            check_alive()
            time.sleep(0.02)
    finally:
        inbox.close()
