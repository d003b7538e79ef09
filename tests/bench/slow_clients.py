"""What an honest sender sees while thousands of clients hold slow and idle connections to the same receiver.

    python tests/bench/slow_clients.py [--connections 2000] [--seconds 30] [--door asgi] [--kinds all]

The receiver is gunicorn as `billhook serve` runs it. The slow clients, in a process of their own, are idle,
send their head at one byte a second, or their body; those that the server closes connect again at once.
The sender makes RATE deliveries a second by the clock, each new and signed, every other one over a new
connection; a time runs from when the delivery was due. A refusal is anything but 200. Linux only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from measuring import BODY, options, save
from new_connections import CONFIGURATION

from support.processes import children, until
from support.server import gunicorn, request
from support.signing import signed
from support.slow_clients import KINDS, open_in, slow_clients

SCENARIOS = {"none": (), **{kind: (kind,) for kind in KINDS}, "all": KINDS}
DOORS = ["asgi", "asgi-fast", "gthread"]
TIMEOUT_SECONDS = 10.0
SETTLING_SECONDS = 3.0


def main() -> None:
    """Measure and print."""
    given = options(
        __doc__, connections=2_000, seconds=30.0, rate=100.0, workers=[1, 2], door=DOORS,
        kinds=list(SCENARIOS), worker_connections=0,
    )  # fmt: skip
    found = []
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the children inherit it
    print("door        workers kinds  sent refused   p50 ms   p99 ms   max ms KB/conn.   CPU waiting   held")
    for door in given.door:
        for workers in given.workers:
            for kinds in given.kinds:
                counts = dict.fromkeys(SCENARIOS[kinds], given.connections)
                figures = measure(door, workers, counts, given)
                print(f"{door:11} {workers:7} {kinds:5} {figures}", flush=True)
                found.append({"receiver": door, "workers": workers, "kinds": kinds, **asdict(figures)})
    save(given, found)


@dataclass
class Figures:
    """What the sender saw, and what it cost the receiver."""

    seconds: list[float] = field(default_factory=list)
    """The time of each delivery that was answered 200."""
    refusals: Counter[str] = field(default_factory=Counter)
    kilobytes: float = 0.0
    """Memory that the web processes gained, for each slow connection open at the time."""
    cpu: float = 0.0
    """Cores that the web processes used."""
    waiting: float = 0.0
    """Cores that they waited for because others used them: where this is much, times say little."""
    held: str = ""
    """The least number of slow connections that were open, and what became of those that were closed."""

    def __str__(self) -> str:
        times = sorted(self.seconds) or [float("nan")]
        p50, p99, largest = (times[int(len(times) * part) - (part == 1)] * 1000 for part in (0.5, 0.99, 1))
        refused = self.refusals.total()
        text = f"{len(self.seconds) + refused:5} {refused:7} {p50:8.1f} {p99:8.1f} {largest:8.1f} "
        text += f"{self.kilobytes:8.1f} {self.cpu:5.2f} {self.waiting:7.2f}   {self.held}"
        return f"{text} {dict(self.refusals)}" if refused else text


def measure(door: str, workers: int, counts: dict[str, int], given: Any) -> Figures:
    """One receiver with some slow clients for some seconds."""
    figures = Figures()
    flags = ["-c", str(CONFIGURATION), *(["--threads", "16"] if door == "gthread" else [])]
    if given.worker_connections:
        flags += ["--worker-connections", str(given.worker_connections)]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(gunicorn(folder, *flags, workers=workers, door=door))
        time.sleep(1.0)  # the second process
        port, pid = server.port, server.pid
        asyncio.run(_Sender(port, Figures()).run(given.rate, 1.0))  # warm
        before = _memory_kb(pid)
        if counts:
            crowd = stack.enter_context(slow_clients(port, **counts))
            until(lambda: crowd.open >= sum(counts.values()) * 0.95, 60, 0.1)
            time.sleep(SETTLING_SECONDS)
            del crowd.reports[:-1]
        cpu, waited = _cpu_seconds(pid)
        asyncio.run(_Sender(port, figures).run(given.rate, given.seconds))
        cpu_then, waited_then = _cpu_seconds(pid)
        figures.cpu = (cpu_then - cpu) / given.seconds
        figures.waiting = (waited_then - waited) / given.seconds
        if counts:
            held = list(map(open_in, crowd.reports))
            figures.kilobytes = (_memory_kb(pid) - before) / max(held)
            rest = {name: count for name, count in crowd.report.items() if name not in KINDS}
            figures.held = f"{min(held)} {rest}"
    return figures


class _Sender:
    """Sends deliveries by the clock, whether or not earlier ones have been answered."""

    def __init__(self, port: int, figures: Figures) -> None:
        self._port = port
        self._figures = figures
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def run(self, rate: float, seconds: float) -> None:
        """Send for some seconds, and wait for the answers."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with asyncio.TaskGroup() as group:
            for number in range(int(rate * seconds)):
                due = started + number / rate
                await asyncio.sleep(max(0.0, due - loop.time()))
                group.create_task(self._deliver(due, keep_alive=number % 2 == 0))
        for _, writer in self._idle:
            writer.close()

    async def _deliver(self, due: float, keep_alive: bool) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                status = await self._send(keep_alive)
        except (OSError, EOFError, TimeoutError) as error:
            self._figures.refusals[type(error).__name__] += 1
            return
        if status == 200:
            self._figures.seconds.append(asyncio.get_running_loop().time() - due)
        else:
            self._figures.refusals[str(status)] += 1

    async def _send(self, keep_alive: bool) -> int:
        if keep_alive and self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(request(BODY, signed(BODY, "InvoiceApproved"), close=not keep_alive))
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length or 0))
        except BaseException:
            writer.close()
            raise
        if keep_alive and b"connection: close" not in head:
            self._idle.append((reader, writer))
        else:
            writer.close()
        return int(head.split(b" ", 2)[1])


def _memory_kb(pid: int) -> float:
    """Resident memory of the web processes."""
    pages = sum(int(Path(f"/proc/{child}/statm").read_text().split()[1]) for child in children(pid))
    return pages * os.sysconf("SC_PAGESIZE") / 1024


def _cpu_seconds(pid: int) -> tuple[float, float]:
    """What the web processes' threads ran so far, and what they were ready to run and waited."""
    ran = waited = 0
    for child in children(pid):
        for thread in Path(f"/proc/{child}/task").iterdir():
            on_core, ready, _ = map(int, (thread / "schedstat").read_text().split())
            ran, waited = ran + on_core, waited + ready
    return ran / 1e9, waited / 1e9


if __name__ == "__main__":
    main()
