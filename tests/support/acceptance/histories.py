"""A history of real processes, from a seed: senders, receivers, workers, commands, and what disturbs them.

What clients were answered and handlers were called with is judged afterwards: see support.acceptance.judge.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict

from billhook.events import EVENT_TYPES, sample
from support.acceptance.history_handlers import AT_MOST, HANDLERS, ORDERED
from support.acceptance.judge import Attempt, Disturbance, History, Pause, Replay, Sent
from support.acceptance.senders import Line
from support.acceptance.stack import UP_SECONDS, Process, Stack
from support.processes import descendants, run_command, until

LEASE_SECONDS = 8.0
SENDERS = 6
PAUSED_SECONDS = 2.0
COMMAND_SECONDS = 120


class Actors:
    """What acts in a history. Each action is noted with its times."""

    def __init__(
        self, stack: Stack, history: History, seed: int, restart_database: Callable[[], None] | None
    ) -> None:
        self._stack, self.history = stack, history
        self._chance = random.Random(seed)
        self._restart_database = restart_database
        self._numbers = itertools.count()
        self._noting = threading.Lock()
        self._over = threading.Event()
        self.webs = [stack.start_web(door=door, workers=2) for door in ("gthread", "asgi")]
        self.workers = [self._start_worker() for _ in range(2)]
        self.did: list[str] = []
        self._senders = [
            threading.Thread(target=self._send, args=(random.Random(f"{seed}/{number}"),), daemon=True)
            for number in range(SENDERS)
        ]

    def _start_worker(self, *, wait: bool = True) -> Process:
        if self._stack.environment["BILLHOOK_ENGINE"] == "celery":
            return self._stack.start_celery_worker(wait=wait)
        return self._stack.start_worker(threads=4, wait=wait)

    # --- senders

    def _send(self, chance: random.Random) -> None:
        line = Line(self._stack.port)
        while not self._over.is_set():
            key = f"msg_{next(self._numbers)}"
            event_type = chance.choice(sorted(HANDLERS))
            event = sample(EVENT_TYPES[event_type])
            value = f"inv_{chance.randrange(8)}"
            if event_type == "InvoicePaymentStatusChanged":
                event = sample(EVENT_TYPES[event_type], invoice_id=value)
            body = event.to_json()
            while (answer := self._post(line, key, event_type, value, body)) != "accepted":
                if self._over.is_set():
                    break
                # By 503 it is told to wait: too many deliveries do already.
                time.sleep((0.2 if answer == "503" else 0.02) + 0.05 * chance.random())
            if chance.random() < 0.1:  # a sender whose answer was lost sends it again
                self._post(line, key, event_type, value, body)
            time.sleep(0.15 * chance.random())
        line.close()

    def _post(self, line: Line, key: str, event_type: str, value: str, body: bytes) -> str:
        began = time.monotonic()
        try:
            reply = line.post(key, body, event_type)
            answer = str(reply.status)
            if reply.status == 200:
                answer = "duplicate" if b"duplicate" in reply.body else "accepted"
        except OSError as error:
            answer = type(error).__name__
        with self._noting:
            self.history.sent.append(Sent(key, event_type, value, began, time.monotonic(), answer))
        return "accepted" if answer == "duplicate" else answer

    # --- what disturbs them

    def _processes(self, process: Process) -> frozenset[int]:
        return frozenset({process.pid, *descendants(process.pid)})

    def kill_worker(self) -> None:
        """SIGKILL, and another one in its place."""
        number = self._chance.randrange(len(self.workers))
        worker = self.workers[number]
        pids, began = self._processes(worker), time.monotonic()
        worker.kill()
        self.history.disturbances.append(Disturbance(pids, began))
        self.workers[number] = self._start_worker(wait=False)

    def restart_worker(self) -> None:
        """SIGTERM, by which nothing is called twice; and another one in its place."""
        number = self._chance.randrange(len(self.workers))
        worker = self.workers[number]
        pids = self._processes(worker)
        until(lambda: self._is_up(worker), UP_SECONDS)  # earlier a signal would end it at once
        worker.stop()
        if worker.ended() == -signal.SIGKILL:  # it had not ended in time
            self.history.disturbances.append(Disturbance(pids, time.monotonic()))
        self.workers[number] = self._start_worker(wait=False)

    def _is_up(self, worker: Process) -> bool:
        return worker.says("worker started with") or worker.says(" ready.")

    def suspend_worker(self) -> None:
        """SIGSTOP for a moment, or for longer than a lease."""
        worker = self._chance.choice(self.workers)
        seconds = self._chance.choice([0.5, 1.5 * LEASE_SECONDS])
        pids, began = self._processes(worker), time.monotonic()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self._over.wait(seconds)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        self.history.disturbances.append(Disturbance(pids, began, time.monotonic()))

    def kill_web_process(self) -> None:
        """A process of a web server, which starts another."""
        web = self._chance.choice(self.webs)
        children = until(web.children, 60)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._chance.choice(children), signal.SIGKILL)

    def kill_web(self) -> None:
        """A web server with all its processes, and another one in its place."""
        number = self._chance.randrange(len(self.webs))
        self.webs[number].kill()
        door = ("gthread", "asgi")[number]
        self.webs[number] = self._stack.start_web(door=door, workers=2, wait=False)

    def pause_handler(self) -> None:
        """Pause a handler by command, and resume it."""
        handler = self._chance.choice(sorted(HANDLERS.values()))
        self._command("handlers", "pause", handler, "--reason", "a history")
        began = time.monotonic()
        self._over.wait(PAUSED_SECONDS)
        ended = time.monotonic()
        self._command("handlers", "resume", handler)
        self.history.pauses.append(Pause(handler, began, ended))

    def replay(self) -> None:
        """Replay a delivery of the last ones that were stored, whatever became of it."""
        with self._noting:
            stored = [each for each in self.history.sent[-400:] if each.answer in ("accepted", "duplicate")]
            sent = self._chance.choice(stored or [None])
        if sent is None or HANDLERS[sent.event_type] in ORDERED:
            return
        handler, began = HANDLERS[sent.event_type], time.monotonic()
        self._command("deliveries", "replay", "--key", sent.key, "--handler", handler, "--yes")
        self.history.replayed.append(Replay(sent.key, began, time.monotonic()))

    def restart_database(self) -> None:
        """The database server goes away and comes back."""
        if self._restart_database is not None:
            began = time.monotonic()
            self._restart_database()
            self.history.database_away.append((began, time.monotonic()))

    def _command(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "billhook", *arguments]
        done = run_command(
            command, env=self._stack.environment, cwd=self._stack.folder, timeout=COMMAND_SECONDS
        )
        assert done.returncode == 0, done.stderr

    # --- all together

    def act(self, seconds: float) -> None:
        """Disturb for so long, each in its turn."""
        for sender in self._senders:
            sender.start()
        end, left = time.monotonic() + seconds, []
        while time.monotonic() < end:
            time.sleep(0.5 + self._chance.random())
            if not left:
                left = [
                    self.kill_worker,
                    self.kill_worker,
                    self.restart_worker,
                    self.suspend_worker,
                    self.kill_web_process,
                    self.kill_web,
                    self.pause_handler,
                    self.replay,
                    self.restart_database,
                ]
                self._chance.shuffle(left)
            action = left.pop()
            self.did.append(action.__name__)
            action()
        self._over.set()
        for sender in self._senders:
            sender.join(120)

    def keep(self) -> None:
        """Write what was sent and disturbed beside the notes of the handlers, to be judged later."""
        text = json.dumps(asdict(self.history), default=sorted)
        (self._stack.folder / "history.json").write_text(text)

    def read_attempts(self) -> None:
        """Read what the handlers wrote down."""
        values = {sent.key: sent.value for sent in self.history.sent}
        open_attempts: dict[tuple[str, str, str, str], Attempt] = {}
        for word, handler, key, number, process, at in self._stack.noted():
            name = (handler, key, number, process)
            if word == "began":
                attempt = Attempt(handler, key, values[key], int(number), int(process), float(at))
                open_attempts[name] = attempt
                self.history.attempts.append(attempt)
            else:
                attempt = open_attempts.pop(name)
                attempt.ended, attempt.failed = float(at), word == "failed"


def record(
    stack: Stack, seed: int, seconds: float, restart_database: Callable[[], None] | None = None
) -> Actors:
    """Run a history of so many seconds on a stack, until all that was stored is handled."""
    history = History(HANDLERS, frozenset(ORDERED), AT_MOST, LEASE_SECONDS)
    actors = Actors(stack, history, seed, restart_database)
    actors.act(seconds)
    actors.keep()
    stack.drain(300)
    actors.read_attempts()
    return actors
