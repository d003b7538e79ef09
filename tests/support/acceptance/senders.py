"""Senders as the service is one: keep-alive connections, and again until the answer is 200."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPException

from support.processes import until
from support.server import Reply, read_reply, request
from support.signing import signed


class Line:
    """One keep-alive connection, opened when it is needed. Raises OSError when it broke.

    By default it waits longer than a receiver takes to start on a machine with much else to do: a delivery
    that waits for the next receiver is not one that was refused.
    """

    def __init__(self, port: int, timeout_seconds: float = 60.0) -> None:
        self._port = port
        self._timeout_seconds = timeout_seconds
        self._socket: socket.socket | None = None

    def post(self, key: str, body: bytes, event_type: str = "InvoiceApproved") -> Reply:
        """Send one delivery, signed now, and wait for its answer."""
        return self.send(request(body, signed(body, event_type, message_id=key), close=False))

    def send(self, message: bytes) -> Reply:
        """Send one whole request."""
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self._port), self._timeout_seconds)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(message)
            reply = read_reply(self._socket)
        except HTTPException as error:  # the end came within an answer
            self.close()
            raise ConnectionResetError from error
        except OSError:
            self.close()
            raise
        if reply.headers.get("Connection", "").lower() == "close":
            self.close()
        return reply

    @property
    def own_port(self) -> int | None:
        """This end's port, by which a trace of the server knows the connection; None while closed."""
        return None if self._socket is None else self._socket.getsockname()[1]

    def close(self) -> None:
        """Close this end; the next `send` opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def body_of(number: int, most_bytes: int = 1_200) -> bytes:
    """A readable body that no other number has, of some size."""
    chance = random.Random(number)
    padding = chance.randbytes(chance.randrange(most_bytes // 2)).hex()
    return b'{"date":"2026-01-15T09:30:00Z","invoiceId":"inv_%d","padding":"%s"}' % (number, padding.encode())


def digest(body: bytes) -> str:
    """What two equal bodies have in common."""
    return hashlib.sha256(body).hexdigest()


class Load:
    """Threads that send deliveries one after another, each until it is answered 200, until `stop`."""

    def __init__(self, port: int, threads: int, pause_seconds: float = 0.0) -> None:
        """`pause_seconds` lie between two deliveries of one thread."""
        self.answered: dict[str, str] = {}
        """The key of each delivery that was answered 200, and the digest of its body."""
        self.statuses: Counter[str] = Counter()
        self.slowest_seconds = 0.0
        self._counting = threading.Lock()
        self._port = port
        self._pause_seconds = pause_seconds
        self._numbers = itertools.count()
        self._stopping = threading.Event()
        self._given_up = threading.Event()
        self._threads = [threading.Thread(target=self._send, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        return len(self.answered)

    def _send(self) -> None:
        line = Line(self._port)
        while not self._stopping.is_set():
            number = next(self._numbers)
            key, body = f"msg_{number}", body_of(number)
            while not self._accepted(line, key, body):
                if self._given_up.wait(0.01 + 0.04 * random.random()):
                    return
            self.answered[key] = digest(body)
            if self._pause_seconds:
                time.sleep(self._pause_seconds)
        line.close()

    def _accepted(self, line: Line, key: str, body: bytes) -> bool:
        try:
            answer = line.post(key, body)
        except OSError as error:
            self.count(type(error).__name__)
            return False
        self.slowest_seconds = max(self.slowest_seconds, answer.seconds)
        self.count(f"{answer.status} {answer.body.decode() if answer.status == 200 else ''}")
        return answer.status == 200

    def count(self, status: str) -> None:
        """Count an answer, or what came instead of one; a Counter loses what two threads add at once."""
        with self._counting:
            self.statuses[status] += 1

    def more(self, count: int) -> None:
        """Wait until so many more are answered 200."""
        enough = len(self) + count
        until(lambda: len(self) >= enough, 60)

    def stop(self, seconds: float = 120.0) -> None:
        """Begin no further delivery, and wait until those under way are answered 200."""
        self._stopping.set()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        assert not any(thread.is_alive() for thread in self._threads), "a delivery was never answered 200"

    def give_up(self) -> None:
        """Send nothing more, answered or not."""
        self._stopping.set()
        self._given_up.set()


@contextlib.contextmanager
def load_on(port: int, threads: int, pause_seconds: float = 0.0) -> Iterator[Load]:
    """A Load that is stopped when the block ends."""
    load = Load(port, threads, pause_seconds)
    try:
        yield load
        load.stop()
    finally:
        load.give_up()
