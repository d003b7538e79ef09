"""Clients that hold connections: silent ones, and ones whose head or body comes at one byte a second.

Run as a program it opens them and opens each again that the server closes, until its input ends:
`python slow_clients.py PORT '{"idle": 300, "head": 300, "body": 300}'`. Once a second it prints what it has.
"""

from __future__ import annotations

import contextlib
import json
import random
import select
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

HEAD = b"POST /webhooks/billing HTTP/1.1\r\nHost: receiver\r\nX-Padding: "
BODY = b"POST /webhooks/billing HTTP/1.1\r\nHost: receiver\r\nContent-Length: 10000\r\n\r\n"
KINDS = ("idle", "head", "body")

TICKS_PER_SECOND = 20
"""Bytes are sent in so many batches a second, because a timer for each connection would cost more."""
CONNECTS_PER_TICK = 150
_CONNECTS_AT_ONCE = 15
_PAUSE_SECONDS = 0.005
_SOURCES = 50
"""Source addresses: one has too few ports for the connections that are closed in a minute."""


class SlowClients:
    """Connections of each kind; every one has a batch in which its byte of each second is sent."""

    def __init__(self, port: int, counts: Mapping[str, int]) -> None:
        self._server = ("127.0.0.1", port)
        self._poll = select.epoll()
        self._open: dict[int, tuple[socket.socket, str]] = {}
        self._batches: list[set[int]] = [set() for _ in range(TICKS_PER_SECOND)]
        self._sent: dict[int, int] = {}
        # Of all kinds from the beginning, however many are opened in a tick.
        waiting = [kind for kind, count in counts.items() for _ in range(count)]
        random.shuffle(waiting)
        self._waiting = deque(waiting)
        self._ticks = 0
        self.counts: Counter[str] = Counter()

    def tick(self, until: float) -> None:
        """Send one batch, open what is missing, and notice what was closed, until the next tick is due."""
        self._ticks += 1
        for descriptor in list(self._batches[self._ticks % TICKS_PER_SECOND]):
            self._send_byte(descriptor)
        left = CONNECTS_PER_TICK
        while True:
            for _ in range(min(left, len(self._waiting), _CONNECTS_AT_ONCE)):
                self._connect(self._waiting.popleft())
                left -= 1
            rest = until - time.monotonic()
            if rest <= 0:
                return
            for descriptor, _ in self._poll.poll(min(rest, _PAUSE_SECONDS)):
                self._read(descriptor)

    def report(self) -> dict[str, int]:
        """Return how many are open of each kind, how many were opened, closed and answered so far."""
        return {**Counter(kind for _, kind in self._open.values()), **self.counts}

    def _connect(self, kind: str) -> None:
        connection = socket.socket()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        connection.bind((f"127.0.1.{self.counts['opened'] % _SOURCES + 1}", 0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.connect_ex(self._server)
        descriptor = connection.fileno()
        self._open[descriptor] = connection, kind
        self._sent[descriptor] = -1
        self._poll.register(descriptor, select.EPOLLIN | select.EPOLLRDHUP)
        if kind != "idle":
            self._batches[random.randrange(TICKS_PER_SECOND)].add(descriptor)
        self.counts["opened"] += 1

    def _send_byte(self, descriptor: int) -> None:
        connection, kind = self._open[descriptor]
        sent = self._sent[descriptor] = self._sent[descriptor] + 1
        data = BODY if kind == "body" and sent == 0 else HEAD[sent : sent + 1] or b"x"
        try:
            connection.send(data)
        except BlockingIOError:  # not connected yet
            self._sent[descriptor] -= 1
        except OSError:
            self._close(descriptor)

    def _read(self, descriptor: int) -> None:
        connection, _ = self._open[descriptor]
        try:
            data = connection.recv(4_096)
        except BlockingIOError:
            return
        except OSError as error:
            self.counts[type(error).__name__] += 1
            data = b""
        if data:
            self.counts[f"answered {data.split(b' ', 2)[1].decode()}"] += 1
        else:
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        connection, kind = self._open.pop(descriptor)
        connection.close()
        for batch in self._batches:
            batch.discard(descriptor)
        self.counts["closed"] += 1
        self._waiting.append(kind)


class SlowCrowd:
    """Slow clients in another process, by their reports."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.reports: list[dict[str, int]] = []
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()

    def _read(self, lines: Iterable[str]) -> None:
        self.reports.extend(json.loads(line) for line in lines)

    @property
    def report(self) -> dict[str, int]:
        """The latest."""
        return self.reports[-1] if self.reports else {}

    @property
    def open(self) -> int:
        return open_in(self.report)


def open_in(report: Mapping[str, int]) -> int:
    """How many connections are open, by a report."""
    return sum(report.get(kind, 0) for kind in KINDS)


@contextlib.contextmanager
def slow_clients(port: int, **counts: int) -> Iterator[SlowCrowd]:
    """A process with so many connections of each kind, until the block ends."""
    command = [sys.executable, str(Path(__file__).resolve()), str(port), json.dumps(counts)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield SlowCrowd(process.stdout)
        finally:
            process.kill()


def main() -> None:
    """Open the connections that the arguments name, until the input ends."""
    clients = SlowClients(int(sys.argv[1]), json.loads(sys.argv[2]))
    started = time.monotonic()
    ticks = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        ticks += 1
        due = started + ticks / TICKS_PER_SECOND
        clients.tick(due)
        late = time.monotonic() - due
        if late > 1 / TICKS_PER_SECOND:  # it cannot keep up, and would send bursts
            clients.counts["late ticks"] += 1
            started += late
        if ticks % TICKS_PER_SECOND == 0:
            sys.stdout.write(json.dumps(clients.report()) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
