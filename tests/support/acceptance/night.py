"""A night on call with real processes: what is sent to people, and what `status`, page and metrics show.

A web process without addresses and without a way out, a worker that is started again 2 s after it has died,
and `billhook notify send --every 20`, as the shipped units have them; a mail server, and an HTTP endpoint.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

from aiosmtpd.controller import Controller

from support.acceptance.senders import Line, body_of
from support.acceptance.small_disk import SmallDisk
from support.acceptance.stack import HERE, UP_SECONDS, Process, Stack
from support.examples import free_port
from support.inbox_view import incoming, open_inbox
from support.processes import run_command, until
from support.proxy import Proxy
from support.server import request
from support.signing import PATH, signed

RESTART_SECONDS = 2.0
"""As RestartSec= of the shipped units."""
_PASSWORD = "a-password-of-the-night"


class Told(NamedTuple):
    """A message as it came."""

    at: float
    way: str
    title: str
    body: str


class People:
    """Who is told: by a mail server that can be stopped and started again, and by an HTTP endpoint."""

    def __init__(self, folder: Path) -> None:
        self.told: list[Told] = []
        self._mail_port = free_port()
        self._mail: Controller | None = None
        self._hook = _hook(self)
        threading.Thread(target=self._hook.serve_forever, args=(0.05,), daemon=True).start()
        self.file = folder / "addresses.txt"
        self.file.touch(0o600)
        mail = f"mailto://127.0.0.1:{self._mail_port}/?from=billhook@example.com&to=ops@example.com"
        self.file.write_text(f"{mail}&mode=insecure\njson://127.0.0.1:{self._hook.server_port}/told\n")
        self.start_mail()

    def start_mail(self) -> None:
        """Start the mail server."""
        self._mail = Controller(_Mailbox(self), hostname="127.0.0.1", port=self._mail_port)
        self._mail.start()

    def stop_mail(self) -> None:
        """Stop it: connections are refused."""
        if self._mail is not None:
            self._mail.stop()
            self._mail = None

    def took(self, way: str, title: str, body: str) -> None:
        """Keep a message, without the origin in its subject."""
        self.told.append(Told(time.monotonic(), way, title.partition("] ")[2], body))

    def by(self, way: str) -> list[Told]:
        """What came by one way."""
        return [one for one in self.told if one.way == way]

    def close(self) -> None:
        """Take nothing more."""
        self.stop_mail()
        self._hook.shutdown()
        self._hook.server_close()


class _Mailbox:
    def __init__(self, people: People) -> None:
        self._people = people

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        mail = message_from_bytes(envelope.content, policy=policy.default)
        self._people.took("mail", str(mail["Subject"]), mail.get_content().replace("\r\n", "\n"))
        return "250 OK"


def _hook(people: People) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            people.took("hook", message["title"], message["message"])
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


class Unit:
    """A process that is started again 2 s after it has ended, as systemd does, until `stop`.

    With `lives_seconds` it is killed so long after each start, as for want of memory.
    """

    def __init__(self, night: Night, lives_seconds: float | None = None, **environment: str) -> None:
        self._night = night
        self._lives_seconds = lives_seconds
        self.environment = environment
        self._stopping = threading.Event()
        self.process = night.start_worker(wait=False, wrap=night.wrap, **environment)
        self._thread = threading.Thread(target=self._keep_up, daemon=True)
        self._thread.start()

    def _keep_up(self) -> None:
        while not self._stopping.wait(0.1):
            if self._lives_seconds is not None and self.process.says("worker started with"):
                self._stopping.wait(self._lives_seconds)
                self.process.kill()
            if self.process.ended() is not None and not self._stopping.wait(RESTART_SECONDS):
                start = self._night.start_worker
                self.process = start(wait=False, wrap=self._night.wrap, **self.environment)

    def stop(self, *, in_order: bool = False) -> None:
        """Start it no more; it ends in order, or stays for whoever kills it."""
        self._stopping.set()
        self._thread.join(30)
        if in_order:
            self.process.stop()


class Night(Stack):
    """The stack, with those who are told and what they can look at."""

    def __init__(self, folder: Path, inbox_url: str, **settings: str) -> None:
        secrets = {"dashboard": f"ops:{_PASSWORD}", "metrics": _PASSWORD}
        for name, text in secrets.items():
            (folder / name).touch(0o600)
            (folder / name).write_text(text + "\n")
        self.people = People(folder)
        self.units: list[Unit] = []
        self.wrap: Sequence[str] = ()
        """What stands before the command of each process."""
        self.disk: SmallDisk | None = None
        self.proxy: Proxy | None = None
        usual = {
            "BILLHOOK_HANDLERS": str(HERE / "night_handlers.py"),
            "BILLHOOK_LEASE_SECONDS": "30",
            "BILLHOOK_RETRY_SCHEDULE_SECONDS": "10,60,300,1800,7200,18000,36000",
            "BILLHOOK_DASHBOARD": str(folder / "dashboard"),
            "BILLHOOK_METRICS_TOKEN_FILE": str(folder / "metrics"),
        }
        super().__init__(folder, inbox_url, **usual | settings)
        self._notified = {"BILLHOOK_NOTIFY_FILE": str(self.people.file)}
        self._line = Line(self.port)
        self.web: Process | None = None
        self._is_over = threading.Event()
        self._storing: threading.Thread | None = None

    def begin(self) -> None:
        """Start the web process; on a small disk, the others enter its file system."""
        self.web = self.start_web(workers=1, wrap=self.wrap if self.disk is None else self.disk.wrap)
        if self.disk is not None:
            self.wrap = self.disk.enter(self.web)

    def start_unit(self, **environment: Any) -> Unit:
        """Start a worker that is started again when it dies."""
        self.units.append(Unit(self, **self._notified | environment))
        return self.units[-1]

    def start_all(self, by: str, **environment: str) -> None:
        """Start one program that receives and handles: `serve`, or gunicorn with the engine `thread`."""
        told = self._notified | environment
        if by == "thread":
            self.web = self.start_web(workers=2, BILLHOOK_ENGINE="thread", **told)
            return
        bind = ("--bind", f"fd://{self._listener.fileno()}", "--workers", "1")
        self.web = self._start("web", [sys.executable, "-m", "billhook", "serve", *bind], told)
        until(lambda: self.web.says("server listening on"), UP_SECONDS)

    def keep_storing(self, word: str, event_type: str, body: bytes, number: int = 60) -> None:
        """Store so many deliveries with keys of this word, one a second, until the night is over.

        Over HTTP where there is a web process: with the engine `thread` a request starts it.
        """

        def store() -> None:
            with contextlib.closing(open_inbox(self.where)) as inbox:
                for key in (f"{word}-{each}" for each in range(number)):
                    if self.web is None:
                        at = datetime.now(UTC)
                        inbox.put(incoming(key, event_type=event_type, body=body, at=at))
                    else:
                        with contextlib.suppress(Exception):  # who answers may die
                            self.send(key, event_type=event_type, body=body)
                    if self._is_over.wait(1):
                        return

        self._storing = threading.Thread(target=store, daemon=True)
        self._storing.start()

    def start_notifier(self) -> Process:
        """Start what the timer unit does."""
        command = [sys.executable, "-m", "billhook", "notify", "send", "--every", "20"]
        return self._start("notify", [*self.wrap, *command], self._notified)

    def send(self, *keys: str, event_type: str = "InvoiceApproved", body: bytes | None = None) -> list[int]:
        """Send signed deliveries of these keys, one after another; what they were answered."""
        self._line.close()  # the server may have closed it meanwhile
        bodies = (body_of(hash(key) % 10**9) if body is None else body for key in keys)
        return [self._line.post(key, each, event_type).status for key, each in zip(keys, bodies, strict=True)]

    def refused(self, number: int, secret: str) -> list[int]:
        """Send deliveries that are signed with another secret; what they were answered."""
        bodies = (body_of(10**9 + one) for one in range(number))
        messages = (
            request(each, signed(each, "InvoiceApproved", secret=secret), path=PATH) for each in bodies
        )
        return [self._line.send(message).status for message in messages]

    def command(self, *arguments: str) -> Any:
        """What a command of billhook's says, as an operator calls it; decoded with --json."""
        command = [*self.wrap, sys.executable, "-m", "billhook", *arguments]
        ran = run_command(command, env={**self.environment, **self._notified}, cwd=self.folder)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout) if "--json" in arguments else ran.stdout

    def page(self) -> str:
        """The dashboard's first page."""
        basic = base64.b64encode(f"ops:{_PASSWORD}".encode()).decode()
        return self._get("/billhook/", f"Basic {basic}")

    def metrics(self) -> str:
        """What Prometheus reads."""
        return self._get("/metrics", f"Bearer {_PASSWORD}")

    def _get(self, path: str, authorization: str) -> str:
        asked = Request(f"http://127.0.0.1:{self.port}{path}", headers={"Authorization": authorization})
        with urlopen(asked, timeout=60) as answer:
            return str(answer.read().decode())

    def close(self) -> None:
        """Nothing of it stays."""
        self._is_over.set()
        if self._storing is not None:
            self._storing.join(30)
        for unit in self.units:
            unit.stop()
        super().close()
        self._line.close()
        self.people.close()


@contextlib.contextmanager
def night_on(folder: Path, inbox_url: str, **settings: str) -> Iterator[Night]:
    """A Night, ended with the block."""
    night = Night(folder, inbox_url, **settings)
    try:
        yield night
    finally:
        night.close()
