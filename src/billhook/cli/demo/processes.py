"""The demo's processes: a folder, a port, gunicorn, a worker and a sandbox, all removed at the end."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from billhook.cli.demo.expectations import (
    DemoDelivery,
    HandlerCall,
    bad_deliveries,
    compare,
    expect_handled,
    group_by_type,
    samples,
)
from billhook.cli.demo.handlers import NOTES
from billhook.cli.output import CliError, printable
from billhook.cli.processes import spawn, stop_all
from billhook.cli.serve import web_command, worker_command
from billhook.errors import MissingExtra, SandboxError
from billhook.fields import strict_json
from billhook.posting import HttpPoster, HttpReply

if TYPE_CHECKING:
    from billhook.sandbox import Sandbox

HANDLERS = "billhook.cli.demo.handlers"
_TIMEOUT_SECONDS = 60.0
"""For an answer and for the handlers: the first delivery waits until the servers are up."""
_TAIL_LINES = 40
_MOST_DELIVERIES = 1_000
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DemoEnvironment:
    """Everything that the demo runs. A context manager, in the main thread.

    `play` sends and compares; `steps` lists what the sandbox did, and `addresses` where everything is, with
    what it takes to log in. Without the extra, `sandbox` is None, and samples are sent.
    """

    def __init__(self, *, stays: bool = False) -> None:
        """`stays`: with a dashboard, and a signal ends it with the exit code 0."""
        self._stays = stays
        # New ones for each run: nothing of the user's own is used, or could be used against it.
        self._secret, self._forged_secret = (
            f"whsec_{b64encode(secrets.token_bytes(32)).decode()}" for _ in range(2)
        )
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._has_started = False
        self._exit_code: int | None = None
        self.sandbox: Sandbox | None = None
        self.steps: list[str] = []
        self.addresses: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> DemoEnvironment:
        with ExitStack() as stack:
            for number in _SIGNALS:
                stack.callback(signal.signal, number, signal.signal(number, self._on_signal))
            folder = TemporaryDirectory(prefix="billhook-demo-", ignore_cleanup_errors=True)
            self._folder = Path(stack.enter_context(folder))  # readable by its owner only
            stack.callback(self._stop)
            self._start_servers()
            # After the servers: it starts threads, and a fork must not happen beside them.
            self._start_sandbox(stack)
            # Again, before the sandbox is closed: that may still be waiting for an answer of theirs.
            stack.callback(self._stop)
            self._has_started = True
            if self._exit_code is not None:
                sys.exit(self._exit_code)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Exit, but not while everything is being started: imports may swallow any exception."""
        # A demo that stays ends so; one that does not is interrupted.
        self._exit_code = 0 if self._stays else 128 + number
        if self._has_started:
            sys.exit(self._exit_code)

    def _stop(self) -> None:
        for number in _SIGNALS:  # a second Ctrl-C would leave processes and files behind
            signal.signal(number, signal.SIG_IGN)
        stop_all(tuple(self._children.values()), 10.0)

    def _start_servers(self) -> None:
        # The user's own settings must not reach the demo: it would write to their inbox.
        ours = ("BILLHOOK_", "FLASK_", "GUNICORN_", "WEB_CONCURRENCY")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        if "PYTHONPATH" in environ:  # the children run in another folder
            parts = environ["PYTHONPATH"].split(os.pathsep)
            environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in parts)  # noqa: PTH100
        environ |= {
            "BILLHOOK_SECRETS": self._secret,
            "BILLHOOK_INBOX_URL": f"sqlite:///{self._folder / 'billhook.db'}",
            "BILLHOOK_HANDLERS": HANDLERS,
            "BILLHOOK_ENGINE": "worker",
        }
        # Bound here, so no other process can take the port; requests wait in its queue until a server is up.
        with socket.create_server(("127.0.0.1", 0)) as listener, (self._folder / "log").open("wb") as log:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            self._url = f"{url}/webhooks/billing"
            self.addresses["receiver"] = {"url": self._url, "login": {}}
            if self._stays:
                login = {"user": "demo", "password": secrets.token_urlsafe(18)}
                password_file = self._folder / "dashboard"
                password_file.touch(mode=0o600)
                password_file.write_text(":".join(login.values()), encoding="ascii")
                environ["BILLHOOK_DASHBOARD"] = str(password_file)
                self.addresses["dashboard"] = {"url": f"{url}/billhook/", "login": login}
            start = partial(spawn, environ=environ, stdout=log, stderr=log, cwd=self._folder)
            web = web_command(f"fd://{listener.fileno()}", 1)
            self._children["the web server"] = start(web, pass_fds=[listener.fileno()])
            self._children["the worker"] = start(worker_command(4, 5))

    def _start_sandbox(self, stack: ExitStack) -> None:
        """Start the sandbox, if it is installed, in this process: a child would be slower."""
        try:
            from billhook.sandbox import Sandbox, SandboxOptions
        except MissingExtra:
            return
        options = SandboxOptions(
            database_url=f"sqlite:///{self._folder / 'sandbox.db'}",
            secrets=(self._secret,),
            allow_private=True,
            delivery_timeout_seconds=_TIMEOUT_SECONDS,
            dashboard_url=self.addresses.get("dashboard", {}).get("url"),
        )
        self.sandbox = Sandbox(options)
        login = {"client id": self.sandbox.client_id, "API token": self.sandbox.api_token or ""}
        url = stack.enter_context(self.sandbox.run())
        if self._stays:
            login = {"login address": self.sandbox.login_address(url), **login}
        self.addresses = {"sandbox": {"url": f"{url}/", "login": login}, **self.addresses}

    def play(self, advance: Callable[[], None]) -> list[DemoDelivery]:
        """Send everything, wait for the handlers and compare. Raises CliError if a server exits."""
        with HttpPoster(urlsplit(self._url), _TIMEOUT_SECONDS) as poster:

            def post(rows: list[DemoDelivery]) -> list[DemoDelivery]:
                for row in rows:
                    row.reply = poster.post(row.body, row.headers)
                    self._check_alive()
                    advance()
                return rows

            good = self._play_sandbox(advance) or post(samples(self._secret, datetime.now(UTC)))
            bad = post(bad_deliveries(good, self._secret, self._forged_secret, datetime.now(UTC)))
        # The inbox shows the end of each run, and the handler's file what it was called with.
        states = self._wait_until_settled()
        notes = self._folder / NOTES
        lines = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
        compare([*good, *bad], [HandlerCall(*json.loads(line)) for line in lines], states)
        return [*group_by_type(good), *bad]

    def _play_sandbox(self, advance: Callable[[], None]) -> list[DemoDelivery]:
        """Make every event happen; return each delivery and the last answer to it; none without a sandbox."""
        if self.sandbox is None:
            return []
        from billhook.sandbox.scenario import run_scenario

        call = self.sandbox.call
        try:
            for step in run_scenario(call, self._url, self.sandbox.clock.now()):
                self.steps.append(step)
                advance()
            # Deliveries are sent in the background: without it, the last ones would be missing from the log.
            call("POST", "/_sandbox/flush", {"timeoutSeconds": _TIMEOUT_SECONDS})
        except SandboxError:
            self._check_alive()  # a server that exited is the better explanation
            raise
        raised = call("GET", f"/_sandbox/raised?limit={_MOST_DELIVERIES}")["raised"]
        bodies = {one["id"]: strict_json.dumps(one["body"]) for one in raised}
        sent = []
        for one in call("GET", f"/_sandbox/deliveries?limit={_MOST_DELIVERIES}")["deliveries"]:
            body = bodies[one["raisedId"]]
            row = expect_handled(one["eventType"], body, one["id"], self._secret, datetime.now(UTC))
            last = one["attempts"][-1] if one["attempts"] else {}
            text = str(last.get("answer", last.get("error", "not sent")))
            row.reply = HttpReply(last.get("status"), text, last.get("milliseconds", 0) / 1000)
            sent.append(row)
        return sent

    def _wait_until_settled(self) -> dict[str, str]:
        """Return {key: state} of the inbox once nothing is pending, or after the time-out."""
        from billhook.inbox import DeliveryFilter, Inbox
        from billhook.inbox.deliveries import page

        deadline = time.monotonic() + _TIMEOUT_SECONDS
        with closing(Inbox(f"sqlite:///{self._folder / 'billhook.db'}")) as inbox:
            while True:
                states = {one.key: one.state for one in page(inbox, DeliveryFilter(), _MOST_DELIVERIES)}
                if time.monotonic() >= deadline or not {"received", "planned"} & {*states.values()}:
                    return states
                self._check_alive()
                time.sleep(0.02)

    def stay(self) -> None:
        """Keep everything running until a signal ends this process. Raises CliError if a server exits."""
        while True:
            self._check_alive()
            time.sleep(0.5)

    def log_tail(self) -> str:
        """Return the last lines that gunicorn and the worker logged."""
        lines = (self._folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()
        return printable("\n".join(lines[-_TAIL_LINES:]), "\n")

    def _check_alive(self) -> None:
        for name, child in self._children.items():
            if child.poll() is not None:
                raise CliError(f"{name} exited unexpectedly; the end of its log:\n{self.log_tail()}")
