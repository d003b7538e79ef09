"""Runs the projects of examples/ as their READMEs say."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from billhook.events import Event, UnknownEvent
from support.processes import clean_environment, logged, run_command, until
from support.signing import SECRET, signed

EXAMPLES = Path(__file__).parents[2] / "examples"
DEPLOY = EXAMPLES.parent / "deploy"
STANDALONE = "/webhooks/billing"


@dataclass(frozen=True)
class Server:
    """A running example: its port, the copy of its folder that it runs in, and where it takes deliveries."""

    port: int
    folder: Path
    path: str

    def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Any:
        """Status and decoded JSON of one request."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def deliver(self, event: Event | UnknownEvent, key: str | None = None, secret: str = SECRET) -> Any:
        """Sign and send an event as the service does."""
        body = event.to_json()
        headers = signed(body, event.type, message_id=key, secret=secret)
        return self.request("POST", self.path, body, headers)

    def rows(self, database: str, query: str) -> list[tuple[Any, ...]]:
        """What the example's own SQLite file says; nothing while it is not there."""
        with contextlib.closing(sqlite3.connect(self.folder / database, timeout=5)) as connection:
            with contextlib.suppress(sqlite3.OperationalError):
                return connection.execute(query).fetchall()
            return []


def environment() -> dict[str, str]:
    """This process's, without what would configure an example from outside; our commands come first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return clean_environment(PATH=path, BILLHOOK_SECRETS=SECRET)


@contextlib.contextmanager
def running(name: str, command: str, tmp_path: Path, path: str = STANDALONE) -> Iterator[Server]:
    """Run a command of an example's README in a copy of its folder, on a free port."""
    readme = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
    assert f"$ {command}\n" in readme, f"the README of {name} does not name the command {command!r}"
    folder = tmp_path / "examples" / name
    shutil.copytree(
        EXAMPLES / name, folder, ignore=shutil.ignore_patterns("instance", "*.db*", "__pycache__")
    )
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    port = free_port()
    if "8000" in command:
        command = command.replace("8000", str(port))
    else:
        command = command.replace("gunicorn ", f"gunicorn --bind 127.0.0.1:{port} ")
    # Not SIGINT: sent to a whole group it can lock up gunicorn 27's threads until graceful_timeout.
    shell = {"cwd": folder, "env": environment(), "start_new_session": True}
    with logged(["sh", "-c", command], tmp_path / "log", ready=lambda: answers(port), **shell) as process:
        yield Server(port, folder, path)
        os.killpg(process.pid, signal.SIGTERM)


def replay(server: Server) -> None:
    """Do what the README has a reader do in a second terminal, and see what it says they see."""
    readme = (server.folder / "README.md").read_text(encoding="utf-8")
    console = next(block for block in readme.split("```") if re.match(r"console\n\$ .*billhook send", block))
    for step in console.replace("8000", str(server.port)).split("\n$ ")[1:]:
        command, expected = step.rstrip("\n").split("\n", 1)
        if command.startswith("curl") and shutil.which("curl") is None:
            continue
        if "billhook send" in command:
            assert without_times(output(server, command)) == without_times(expected)
        else:  # looks at what a handler did, which may take a moment
            until(lambda command=command, expected=expected: output(server, command) == expected, 15)


def output(server: Server, command: str) -> str:
    done = run_command(["sh", "-c", command], cwd=server.folder, env=environment())
    return done.stdout.strip()


def without_times(text: str) -> str:
    return re.sub(r"\(\d+ ms\)$", "", text)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """A port below those that the system gives to connections: none takes it meanwhile."""
    while True:
        port = random.randrange(20_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
