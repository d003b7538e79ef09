"""What the tests of the core share: a sender, an app, a real server, and an independent look at the inbox."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import psycopg
from databases import libpq
from flask import Flask
from patience import within

from billhook import Billhook
from billhook.extension import assembly_of
from billhook.inbox import Inbox, Incoming
from billhook.signing import StandardWebhooks

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"
PATH = "/webhooks/billing"
PING = "PingTest"
APPROVED = b'{"date":"2026-01-15T09:30:00Z","invoiceId":"inv_1"}'
NOON = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)

#: The deadline of commits in tests that are not about it: a busy machine misses the shipped one now and then.
PATIENT_SECONDS = 8.0


# --- the sender -----------------------------------------------------------------------------------


def signed(
    body: bytes = b"{}",
    event_type: str = PING,
    *,
    message_id: str | None = None,
    at: datetime | None = None,
    secret: str = SECRET,
) -> dict[str, str]:
    """The headers of one good delivery."""
    headers = StandardWebhooks().sign(
        body, secret, event_type=event_type, now=at or datetime.now(UTC), message_id=message_id
    )
    return {"X-Webhook-Type": event_type, "Content-Type": "application/json", **headers}


# --- the app --------------------------------------------------------------------------------------


def make_app(folder: Path, *, prefix: str = PATH, name: str = "shop", **arguments: Any) -> Flask:
    """A Flask app with one Billhook on an inbox in `folder`; BILLHOOK_ keys are configuration."""
    app = bare_app(folder, name=name, **{k: v for k, v in arguments.items() if k.isupper()})
    Billhook(**{k: v for k, v in arguments.items() if not k.isupper()}).init_app(app, url_prefix=prefix)
    return app


def bare_app(folder: Path, *, name: str = "shop", **config: Any) -> Flask:
    """A configured Flask app without any Billhook yet."""
    app = Flask(name, instance_path=str(folder))
    app.config.update(BILLHOOK_SECRETS=[SECRET], BILLHOOK_ENGINE="worker", TESTING=False)
    app.config["BILLHOOK_DEADLINE_SECONDS"] = PATIENT_SECONDS
    app.config.update(config)
    return app


def inbox_file(app: Flask) -> Path:
    return assembly_of(app).inbox.database.path


def inbox_at(app: Flask) -> Path | str:
    """Where the app's inbox is, as `rows` takes it."""
    return place_of(app.config.get("BILLHOOK_INBOX_URL") or str(inbox_file(app)))


def deliver(app: Flask, body: bytes = b"{}", event_type: str = PING, **more: Any) -> Any:
    """One good delivery through the app's test client."""
    path = more.pop("path", PATH)
    extra = more.pop("headers", {})
    return app.test_client().post(path, data=body, headers={**signed(body, event_type, **more), **extra})


def not_called_again(attempts: int) -> str:
    """The last error of a run that is dead because its worker died each time."""
    return (
        f"RuntimeError: the worker died at the last of {attempts} attempts, "
        "or was silent for longer than its lease: not called again"
    )


# --- the inbox, seen from outside -----------------------------------------------------------------


def rows(where: Path | str, query: str, *arguments: object) -> list[tuple[Any, ...]]:
    """What a connection of our own, not billhook's, reads at a path or a PostgreSQL URL.

    The same values from both: bytes, numbers, and moments as SQLite keeps them, text in UTC.
    """
    if _is_postgres(where):
        return [tuple(map(_as_sqlite, row)) for row in _ask(where, query, arguments).fetchall()]
    with contextlib.closing(sqlite3.connect(f"file:{where}?mode=ro", uri=True)) as connection:
        return connection.execute(query, arguments).fetchall()


def change(where: Path | str, statement: str, *arguments: object) -> None:
    """Execute and commit a statement in a connection of our own."""
    if _is_postgres(where):
        _ask(where, statement, arguments)
        return
    with contextlib.closing(sqlite3.connect(where)) as connection, connection:
        connection.execute(statement, arguments)


def place_of(url: str) -> Path | str:
    """What `rows` takes, of an inbox's URL."""
    return Path(url.removeprefix("sqlite:///")) if url.startswith(("sqlite:///", "/")) else url


def _is_postgres(where: Path | str) -> bool:
    return str(where).startswith("postgresql")


_asking: dict[tuple[int, str], psycopg.Connection[Any]] = {}


def _ask(where: Path | str, query: str, arguments: tuple[object, ...]) -> psycopg.Cursor[Any]:
    text = query.replace("%", "%%").replace("?", "%s") if arguments else query
    try:
        return _kept(where).execute(text, arguments or None)
    except psycopg.OperationalError:
        if not _kept(where).closed:
            raise
        hang_up(where)  # the server was restarted meanwhile
        return _kept(where).execute(text, arguments or None)


def _kept(where: Path | str) -> psycopg.Connection[Any]:
    """A connection that is kept until `hang_up`, for a test may ask a hundred times."""
    place = os.getpid(), str(where)
    if place not in _asking:
        _asking[place] = postgres(where)
    return _asking[place]


def postgres(where: Path | str) -> psycopg.Connection[Any]:
    """A connection of our own to the database of a URL, with autocommit."""
    return psycopg.connect(**{**libpq(str(where)), "autocommit": True, "application_name": "tests"})


def hang_up(where: Path | str) -> None:
    """Close what `rows` and `change` keep open."""
    kept = _asking.pop((os.getpid(), str(where)), None)
    if kept is not None:
        kept.close()


def _as_sqlite(found: object) -> object:
    if isinstance(found, datetime):
        return found.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return bytes(found) if isinstance(found, memoryview) else found


def value(where: Path | str, query: str, *arguments: object) -> Any:
    """The first column of the only row."""
    ((found,),) = rows(where, query, *arguments)
    return found


def incoming(
    key: str, *, event_type: str = PING, body: bytes = b"{}", source: str = "default", at: datetime = NOON
) -> Incoming:
    return Incoming(source, key, event_type, body, "{}", at, at)


def open_inbox(where: Path | str, **options: Any) -> Inbox:
    """A prepared inbox, as the app makes it."""
    options.setdefault("deadline_seconds", PATIENT_SECONDS)
    inbox = Inbox(str(where) if _is_postgres(where) else f"sqlite:///{where}", **options)
    inbox.prepare()
    return inbox


def upgraded(url: str) -> str:
    """The URL of an inbox whose schema was made, or brought up to date, as users do it."""
    inbox = Inbox(url)
    inbox.upgrade()
    inbox.close()
    return url


class Foreigner:
    """Somebody else who lets nobody write until told to let go; reading goes on."""

    def __init__(self, where: Path | str) -> None:
        self._held = contextlib.ExitStack()
        self._held.enter_context(_locked_tables(where) if _is_postgres(where) else _locked_file(where))

    def let_go(self) -> None:
        self._held.close()

    def __enter__(self) -> Foreigner:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()


@contextlib.contextmanager
def _locked_tables(url: Path | str) -> Iterator[None]:
    with postgres(url) as connection, connection.transaction():
        connection.execute(
            "LOCK TABLE delivery, run, failure, billhook_version, billhook_worker IN EXCLUSIVE MODE"
        )
        yield


@contextlib.contextmanager
def _locked_file(path: Path | str) -> Iterator[None]:
    """By another process: the locks of one's own do not keep oneself out."""
    code = (
        "import sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('BEGIN EXCLUSIVE')\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    try:
        yield
    finally:
        process.communicate(b"")


@contextlib.contextmanager
def hung(where: Path | str) -> Iterator[None]:
    """Whoever writes hangs for as long as the block lasts, longer than any patience of the inbox's own."""
    with contextlib.ExitStack() as held:
        held.enter_context(Foreigner(where))
        if isinstance(where, Path):  # for a file others wait a while, for a process in its turn for ever
            turn = held.enter_context(where.with_name(where.name + "-lock").open("r+b"))
            fcntl.flock(turn, fcntl.LOCK_EX)
        yield


# --- a real server --------------------------------------------------------------------------------


@dataclass
class Reply:
    """An answer as it came over the wire."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Server:
    """gunicorn, serving a receiver on a free loopback port."""

    port: int
    inbox: Path | str
    pid: int
    log: Path

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def ask(self, *pieces: bytes, half_close: bool = False) -> Reply:
        """One connection, these bytes, one answer."""
        with self.connect() as connection:
            for piece in pieces:
                connection.sendall(piece)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            return read_reply(connection)

    def post(self, body: bytes = b"{}", headers: Mapping[str, str] | None = None, **more: Any) -> Reply:
        """One whole POST with a length."""
        return self.ask(request(body, signed(body) if headers is None else headers, **more))

    def keys(self) -> list[str]:
        return [key for (key,) in rows(self.inbox, "SELECT key FROM delivery ORDER BY id")]

    def stored(self, key: str) -> tuple[Any, ...] | None:
        """(event_type, body) as an independent connection reads it."""
        found = rows(self.inbox, "SELECT event_type, body FROM delivery WHERE key = ?", key)
        return found[0] if found else None


def assert_unavailable(server: Server, key: str, deadline_seconds: float):
    """A delivery is refused as one that cannot be stored now, in time, with nothing of ours in the answer."""
    started = time.monotonic()
    reply = server.post(b"{}", signed(message_id=key))
    seconds = time.monotonic() - started
    assert reply.status == 503
    assert reply.json["type"] == "api_error"
    assert sorted(reply.json) == ["code", "message", "type"]
    assert 5 <= int(reply.headers["Retry-After"]) <= 60
    assert str(server.inbox) not in reply.body.decode()
    assert seconds < within(deadline_seconds + 1)


def request(
    body: bytes, headers: Mapping[str, str], *, method: str = "POST", path: str = PATH, close: bool = True
) -> bytes:
    """A request with a Content-Length."""
    return head({**headers, "Content-Length": str(len(body))}, method=method, path=path, close=close) + body


def head(
    headers: Mapping[str, str],
    *,
    method: str = "POST",
    path: str = PATH,
    close: bool = True,
    raw: bytes = b"",
) -> bytes:
    """A request line and headers; `raw` is further header lines as they are."""
    lines = [f"{method} {path} HTTP/1.1", "Host: receiver", *(f"{n}: {v}" for n, v in headers.items())]
    if close:
        lines.append("Connection: close")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n" + raw + b"\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def read_reply(connection: socket.socket, method: str = "POST") -> Reply:
    """The next answer on a connection."""
    started = time.monotonic()
    response = HTTPResponse(connection, method=method)
    try:
        response.begin()
        body = response.read()
    finally:
        response.close()
    return Reply(response.status, dict(response.headers.items()), body, time.monotonic() - started)


@contextlib.contextmanager
def gunicorn(
    folder: Path,
    *flags: str,
    workers: int = 1,
    app: str = "billhook.standalone:create_app()",
    wait_for: str = "/healthz",
    **environment: str,
) -> Iterator[Server]:
    """The standalone app under gunicorn, until the block ends."""
    log = folder / "gunicorn.log"
    settings = {
        "BILLHOOK_SECRETS": SECRET,
        "BILLHOOK_ENGINE": "worker",
        "BILLHOOK_INBOX_URL": f"sqlite:///{folder / 'inbox' / 'billhook.db'}",
        **environment,
    }
    inbox = place_of(settings["BILLHOOK_INBOX_URL"])
    if isinstance(inbox, Path):
        inbox.parent.mkdir(exist_ok=True)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("BILLHOOK_")}
    with socket.socket() as listener, log.open("wb") as output:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        port = listener.getsockname()[1]
        command = [sys.executable, "-m", "gunicorn", "-k", "gthread", "-w", str(workers), "--threads", "8"]
        command += ["-b", f"fd://{listener.fileno()}", "--no-control-socket", *flags, app]
        process = subprocess.Popen(
            command,
            env={**kept, **settings},
            cwd=folder,
            stdout=output,
            stderr=output,
            pass_fds=[listener.fileno()],
        )
        try:
            server = Server(port, inbox, process.pid, log)
            _wait_until_up(server, process, wait_for)
            yield server
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_up(server: Server, process: subprocess.Popen[bytes], path: str) -> None:
    if not path:  # the backlog holds whoever connects before the workers are up
        return
    for _ in range(200):
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError):
            if server.ask(head({}, method="GET", path=path)).status:
                return
        time.sleep(0.05)
    raise AssertionError("gunicorn did not come up:\n" + server.log.read_text())


# --- time and threads -----------------------------------------------------------------------------


def until(condition: Callable[[], Any], seconds: float = 5.0) -> Any:
    """Wait for something that another thread or process brings about; returns it."""
    started = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - started
        assert waited < seconds or waited < within(seconds), f"not within {seconds} s"
        time.sleep(0.005)
    return found


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What `work(n)` gives in `count` threads that start at one moment; exceptions are results too."""
    results: list[Any] = [None] * count
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait()
        try:
            results[number] = work(number)
        except Exception as error:  # noqa: BLE001 - the caller asserts on it
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _keep_coverage() -> None:
    """What a forked child ran counts too, although it leaves without saying goodbye."""
    with contextlib.suppress(ImportError):
        import coverage

        measuring = coverage.Coverage.current()
        if measuring is not None:
            measuring.stop()
            measuring.save()


def in_children(count: int, work: Callable[[int], bytes]) -> list[bytes]:
    """What `work(n)` writes in `count` forked children that run at once; an exception is its text."""
    pipes = []
    for number in range(count):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reader)
                try:
                    result = work(number)
                except BaseException as error:  # noqa: BLE001 - the child must not return into pytest
                    result = b"raised " + repr(error).encode()
                os.write(writer, result)
                _keep_coverage()
            finally:
                os._exit(0)
        os.close(writer)
        pipes.append((pid, reader))
    results = []
    for pid, reader in pipes:
        with os.fdopen(reader, "rb") as stream:
            results.append(stream.read())
        os.waitpid(pid, 0)
    return results
