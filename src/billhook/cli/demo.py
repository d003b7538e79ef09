"""`billhook demo`: the whole path with real processes and sockets, and every delivery's result checked."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from billhook.cli.demo_expectations import (
    DemoDelivery,
    HandlerCall,
    bad_deliveries,
    compare,
    expect_handled,
    group_by_type,
    samples,
)
from billhook.cli.demo_handlers import NOTES
from billhook.cli.output import CliError, print_json, print_table, printable, progress, say
from billhook.cli.params import as_json, flag
from billhook.cli.serve import web_command, worker_command
from billhook.errors import InboxUnavailable, MissingExtra, SandboxError
from billhook.errors.program import install_command
from billhook.fields import strict_json
from billhook.inbox import DeliveryFilter, Inbox
from billhook.inbox.reading.deliveries import page
from billhook.posting import HttpPoster, HttpReply
from billhook.supervising.processes import Process, spawn, stop_all

if TYPE_CHECKING:
    from billhook.sandbox import Sandbox

_SAMPLES_ONLY = "Note: sending samples; to see the events of a billing service: {}"
_NEXT = "Next: README.md shows how to write your own handlers and try them with a sandbox"


@click.command()
@flag("--stay", "Keep everything running until Ctrl-C, and print the addresses.")
@as_json
def demo(stay: bool, as_json: bool) -> None:
    """See it work: a sandbox of the billing service, gunicorn, a worker, an inbox, and 5 bad deliveries.

    The demo subscribes to every event, sends usage and moves the sandbox's clock forward until all events
    have fired; all must be received and handled. Without the extra `sandbox`, it sends samples.

    It takes a few seconds and needs no network, set-up or secret: only a free loopback port and a temporary
    folder, which it removes. Exit code 0 if every delivery had the expected result.

    With --stay, raise an event on the sandbox's pages afterwards: it arrives in the receiver's dashboard.

    \b
    Examples:
      billhook demo && echo all is well
      billhook demo --stay
    """
    started = time.monotonic()
    with DemoEnvironment(stays=stay) as environment:
        if environment.sandbox is None:
            if stay:
                raise MissingExtra("a demo that stays", "sandbox")
            say(_SAMPLES_ONLY.format(install_command("sandbox")))
        with progress("running the demo", None) as steps:
            rows = environment.play(steps)
        if not as_json:
            click.echo("gunicorn received the deliveries and a worker handled them. They were caused by:")
            for step in environment.steps or ["signed a sample of each event type and posted it"]:
                click.echo(f"- {step}")
            click.echo("- posted 5 bad deliveries\n")
        if not report(rows, time.monotonic() - started, as_json, environment.addresses if stay else None):
            log = environment.log_tail()
            raise CliError(f"not every delivery had the expected result; the end of the servers' log:\n{log}")
        if stay:
            environment.stay(as_json=as_json)
    if not as_json:
        click.echo(_NEXT)


def report(
    rows: Sequence[DemoDelivery], seconds: float, as_json: bool, addresses: Mapping[str, object] | None = None
) -> bool:
    """Print the results; return True if every one is as expected. JSON has the addresses of what stays."""
    good = sum(not row.wrong for row in rows)
    if as_json:
        shown = [
            {"sent": row.label, "type": row.event_type, "expected": row.status, "got": row.reply.status,
             "answer": row.reply.body, "handler": row.handled, "state": row.stored, "ok": not row.wrong,
             "wrong": row.wrong}
            for row in rows
        ]  # fmt: skip
        found = {"ok": good == len(rows), "seconds": round(seconds, 2), "rows": shown}
        print_json({**found, "addresses": addresses} if addresses else found)
        return good == len(rows)
    columns = ("sent", "answer", "handler got", "inbox", "result")
    print_table(columns, [_cells(row) for row in rows], whole=columns)
    for row in rows:
        if row.wrong:
            click.echo(f"{row.label}: {printable('; '.join(row.wrong))}")
    click.echo(f"{good} of {len(rows)} as expected, in {seconds:.1f} s")
    return good == len(rows)


def _cells(row: DemoDelivery) -> tuple[str, ...]:
    status = row.reply.status
    answer = "no answer" if status is None else str(status)
    if status == 200:
        answer += " duplicate" if "duplicate" in row.reply.body else " accepted"
    is_same = row.handled == row.event_type and not row.wrong
    handled = "same" if is_same else row.handled or "-"
    return row.label, answer, handled, row.stored or "-", "WRONG" if row.wrong else "ok"


HANDLERS = "billhook.cli.demo_handlers"
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
        self._children: dict[str, Process] = {}
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
            web, own = web_command(f"fd://{listener.fileno()}", 1), [listener.fileno()]
            self._children = {"the web server": start(web, pass_fds=own)}
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
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        with closing(Inbox(f"sqlite:///{self._folder / 'billhook.db'}")) as inbox:
            while True:
                is_late = time.monotonic() >= deadline
                try:
                    states = {one.key: one.state for one in page(inbox, DeliveryFilter(), _MOST_DELIVERIES)}
                    if is_late or not {"received", "planned"} & {*states.values()}:
                        return states
                except InboxUnavailable:  # a process makes or leaves the file at this moment
                    if is_late:
                        raise
                self._check_alive()
                time.sleep(0.02)

    def stay(self, *, as_json: bool) -> None:
        """Keep everything running until a signal ends this process. Raises CliError if a server exits.

        Prints where everything is and how to log in, unless the results were printed as JSON, with that.
        """
        if not as_json:
            click.echo("Everything stays up until Ctrl-C:")
            for name, one in self.addresses.items():
                click.echo(f"  {name:10} {one['url']}")
                for key, value in one["login"].items():
                    click.echo(f"  {'':10} {key}: {value}")
            click.echo("Raise an event on the sandbox's page Trigger: it arrives in the dashboard.")
        # A reader at the other end of a pipe waits for this, and the process does not end.
        sys.stdout.flush()
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
