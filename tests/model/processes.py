"""The processes of a history: they start, are stopped or killed, and give way to those of other releases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from billhook import Source
from billhook.extension import get_state
from billhook.inbox import Lease
from model.catalogue import PROCESS_WAITS, registered
from model.meetings import Meetings
from model.own_types import know
from model.records import Claim, Handler, Process, Result, Shared
from model.stepped import Monotonic, SteppedWorker, Storage
from support.apps import make_app
from support.signing import SECRET

LEASE = 30.0
THREADS = 2


@dataclass(eq=False)
class Running:
    """A worker that runs, of an app on the inbox: mostly the only one of its process."""

    app: Any
    handlers: Sequence[Handler]
    worker: SteppedWorker
    storage: Storage
    process: Process
    release: int
    claims: dict[Lease, Claim] = field(default_factory=dict)
    results: dict[Lease, Result] = field(default_factory=dict)

    @property
    def inbox(self) -> Any:
        return get_state(self.app).inbox


class Processes(Meetings):
    """The steps of deployments, and what starts and ends processes."""

    folder: Path
    monotonic: Monotonic
    config: dict[str, Any]
    closing: list[Any]
    release: int
    handle: Callable[..., None]
    _collected: Callable[..., Any]
    _follow: Callable[..., int]

    def _app(self, handlers: Sequence[Handler]) -> Any:
        return make_app(
            self.folder,
            handlers=[registered(handlers, self.handle)],
            sources=[Source("eu", secrets=[SECRET])],
            clock=self.clock,
            BILLHOOK_ENGINE="worker",
            BILLHOOK_LEASE_SECONDS=LEASE,
            BILLHOOK_RETRY_SCHEDULE_SECONDS=list(PROCESS_WAITS),
            **self.config,
        )

    def start(self, which: int, beside: Running | None = None) -> None:
        """Start a process with a worker of a release; or one more worker, `beside` that of a process."""
        handlers = self.sets[which % len(self.sets)]
        know(handlers[0].knows)
        app = self._app(handlers) if beside is None else beside.app
        state = get_state(app)
        state.inbox.now = self.clock.now  # type: ignore[method-assign] # by which commands go
        worker = SteppedWorker(
            *(state.inbox, state.dispatcher, self.monotonic, handlers[0].knows),
            threads=THREADS,
            lease_seconds=LEASE,
        )
        shared = Shared() if beside is None else beside.process.shared
        process = Process(worker._owner, handlers, PROCESS_WAITS, shared=shared)
        shared.workers.append(process)
        self.rules.processes.append(process)
        storage = Storage(state.inbox) if beside is None else beside.storage
        self.running.append(Running(app, handlers, worker, storage, process, which))

    def start_beside(self, number: int) -> None:
        """Start a second worker in a process."""
        alone = [each for each in self.running if len(each.process.shared.workers) == 1]
        if alone:
            one = alone[number % len(alone)]
            self.start(one.release, one)

    def kill(self, one: Running) -> None:
        """End a process at once: what its workers held is held until the leases end."""
        for each in [each for each in self.running if each.app is one.app]:
            self._end_worker(each)

    def _end_worker(self, one: Running) -> None:
        self.running.remove(one)
        self.after = None
        one.process.holds.clear()
        one.process.shared.workers.remove(one.process)
        if not one.process.shared.workers:
            self.closing.append(one.app)
        one.worker.close()

    def stop(self, number: int) -> None:
        """Stop a worker in order, while handlers run that outlast its grace."""
        if len(self.running) < 2:
            return
        self._stop(self.running[number % len(self.running)])

    def _stop(self, one: Running) -> None:
        settling = self._collected(one)
        one.worker.stop_in_order()
        if one.process.seen is None:
            self.rules.register(one.process, self.clock.now())  # it is polled once, to stop
        one.process.stopped = True
        self._follow(one, settling, known=True, stopped=True)
        self._end_worker(one)

    def restart(self, number: int) -> None:
        """Kill a process, and start one with the same handlers."""
        release = self.release
        if len(self.running) >= 2:
            one = self.running[number % len(self.running)]
            release = one.release
            self.kill(one)
        self.start(release)

    def roll(self, number: int, which: int) -> None:
        """Replace a process by one of another release, while the others go on; some do not stop in order."""
        if len(self.running) >= 2:
            one = self.running[number % len(self.running)]
            (self.kill if which % 5 == 0 else self._stop)(one)
        self.release = which
        self.start(which)

    def deploy(self, which: int) -> None:
        """Stop all processes, and start some of another release: with other handlers, names and options."""
        while self.running:
            self._stop(self.running[0])
        while any(each.is_alive(self.clock.now()) for each in self.rules.processes):
            self.tick(61.0)  # the list of one that was killed may be the newest
        self.release = which
        self.start(which)
        self.start(which)
