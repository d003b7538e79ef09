"""Real processes over one inbox, for tests that kill, stop and starve them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from support.acceptance.gunicorn_settings import HAS_APP
from support.acceptance.senders import Load, digest
from support.inbox_view import place_of, rows, value
from support.processes import until
from support.server import DOORS, get, head, serve_command
from support.signing import SECRET

HERE = Path(__file__).parent
STANDALONE = "billhook.standalone:create_app()"
NO_FAULTS: dict[str, set[str]] = {"lost": set(), "twice": set(), "altered": set()}
UP_SECONDS = 60.0
"""How long a process may take to begin, on a machine that does much else."""


class Process:
    """A child in a process group of its own, and what it says."""

    def __init__(
        self, command: Sequence[str], environment: dict[str, str], log: Path, pass_fds: Sequence[int]
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command,
                env=environment,
                cwd=log.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=pass_fds,
                process_group=0,
            )
        self.pid = self._popen.pid
        self._group_lives = True

    def children(self) -> list[int]:
        """The processes that it started itself and that still live."""
        with contextlib.suppress(OSError):
            return [
                int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            ]
        return []

    def says(self, text: str) -> bool:
        """Whether the log has this text."""
        return text in self.log.read_text()

    def ended(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._popen.poll()

    def kill(self) -> None:
        """SIGKILL for it and all of its group, at one moment."""
        if self._group_lives:  # once only: later its number may be another's
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._group_lives = False
        self._popen.wait()

    def stop(self) -> None:
        """Ask it to end in order; what is left of its group after that is killed."""
        with contextlib.suppress(subprocess.TimeoutExpired, ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
            self._popen.wait(10)
        self.kill()


class Stack:
    """A receiver and its workers. The listening socket is the test's own, so a port outlives its servers."""

    def __init__(self, folder: Path, inbox_url: str, **settings: str) -> None:
        self.folder = folder
        self.inbox_url = inbox_url
        self.where = place_of(inbox_url)
        self.notes = folder / "notes.txt"
        self.notes.touch()
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(512)
        self.port: int = self._listener.getsockname()[1]
        kept = {name: text for name, text in os.environ.items() if not name.startswith("BILLHOOK_")}
        self.environment = {
            **kept,
            "BILLHOOK_SECRETS": SECRET,
            "BILLHOOK_ENGINE": "worker",
            "BILLHOOK_INBOX_URL": inbox_url,
            "BILLHOOK_HANDLERS": str(HERE / "recording_handler.py"),
            "BILLHOOK_LEASE_SECONDS": "1",
            # More attempts than any run is killed in.
            "BILLHOOK_RETRY_SCHEDULE_SECONDS": ",".join(["0.2"] * 30),
            "ACCEPTANCE_NOTES": str(self.notes),
            **settings,
        }
        self.processes: list[Process] = []

    def start_web(
        self,
        app: str | None = None,
        *,
        door: str = "gthread",
        workers: int = 2,
        threads: int = 8,
        wrap: Sequence[str] = (),
        flags: Sequence[str] = (),
        wait: bool = True,
        **environment: str,
    ) -> Process:
        """gunicorn with `workers` processes; `wrap` stands before its command (strace, unshare)."""
        own = ("--no-control-socket", "--threads", str(threads), "--pythonpath", str(HERE))
        own += ("-c", str(HERE / "gunicorn_settings.py"))
        # uvicorn's supervisor of several processes has neither gunicorn's signals nor its order.
        command = serve_command(door, self._listener.fileno(), workers, *own)
        command += [*flags, app or DOORS[door][1]]
        web = self._start("web", [*wrap, *command], environment)
        if wait:
            self._wait_for(web, workers if door != "uvicorn" else 0)
        return web

    def _wait_for(self, web: Process, workers: int) -> None:
        """Until it answers anything, and all its processes have the app.

        The test's socket takes connections before anybody is there.
        """
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(head({}, method="GET", path="/healthz"))
            answers = partial(select.select, [connection], [], [], 0)
            until(lambda: answers()[0] or web.ended() is not None, UP_SECONDS)
            until(
                lambda: web.log.read_text().count(HAS_APP) >= workers or web.ended() is not None, UP_SECONDS
            )
            assert web.ended() is None, web.log.read_text()

    def start_celery_worker(self, *, wait: bool = True) -> Process:
        """A Celery worker of the standalone receiver, with two processes."""
        command = [sys.executable, "-m", "celery", "-A", "billhook.standalone:celery", "worker"]
        command += ["--concurrency", "2", "--without-gossip", "--without-mingle", "--loglevel", "INFO"]
        worker = self._start("worker", [*command, "--hostname", f"history-{len(self.processes)}@%h"], {})
        if wait:
            until(lambda: worker.says(" ready.") or worker.ended() is not None, UP_SECONDS)
            assert worker.ended() is None, worker.log.read_text()
        return worker

    def start_worker(
        self, *, threads: int = 8, wait: bool = True, wrap: Sequence[str] = (), **environment: str
    ) -> Process:
        """`billhook worker`; `wrap` stands before its command (faketime)."""
        command = [sys.executable, "-m", "billhook", "worker", "--threads", str(threads), "--grace", "5"]
        worker = self._start("worker", [*wrap, *command], environment)
        if wait:
            until(lambda: worker.says("worker started with") or worker.ended() is not None, UP_SECONDS)
            assert worker.ended() is None, worker.log.read_text()
        return worker

    def _start(self, name: str, command: Sequence[str], environment: dict[str, str]) -> Process:
        log = self.folder / f"{name}-{len(self.processes)}.log"
        environment = {**self.environment, **environment}
        process = Process(command, environment, log, [self._listener.fileno()] if name == "web" else [])
        self.processes.append(process)
        return process

    def ask(self, path: str) -> int:
        """The status of a GET."""
        return get(self.port, path).status

    def rows(self, query: str, *arguments: object) -> list[tuple[Any, ...]]:
        """What a connection that is not billhook's reads in the inbox."""
        return rows(self.where, query, *arguments)

    def value(self, query: str, *arguments: object) -> Any:
        """The first column of the only row."""
        return value(self.where, query, *arguments)

    def faults(self, load: Load) -> dict[str, set[str]]:
        """The keys of deliveries that were answered 200 and are not there, or not once, or not as sent."""
        stored: dict[str, list[str]] = {}
        for key, body in self.rows("SELECT key, body FROM delivery"):
            stored.setdefault(key, []).append(digest(bytes(body)))
        return {
            "lost": load.answered.keys() - stored.keys(),
            "twice": {key for key, found in stored.items() if len(found) > 1},
            "altered": {key for key, found in stored.items() if load.answered.get(key, found[0]) != found[0]},
        }

    def drain(self, seconds: float = 60.0) -> None:
        """Wait until the workers have finished all that was stored."""
        waiting = "SELECT count(*) FROM delivery WHERE state IN ('received', 'planned')"
        until(lambda: self.value(waiting) == 0, seconds)

    def noted(self) -> list[list[str]]:
        """What the handlers wrote down: key, attempt, process id."""
        return [line.split() for line in self.notes.read_text().splitlines()]

    def logs(self) -> str:
        """All that the processes said."""
        return "".join(process.log.read_text() for process in self.processes)

    def close(self) -> None:
        """Nothing of it stays."""
        for process in self.processes:
            process.kill()
        self._listener.close()


def stack_on(folder: Path, inbox_url: str, **settings: str) -> contextlib.closing[Stack]:
    """A Stack, killed when the block ends."""
    return contextlib.closing(Stack(folder, inbox_url, **settings))
