"""Senders that post deliveries without a pause, while a test does something to the receiver."""

from __future__ import annotations

import threading
from typing import Self

from support.processes import until
from support.server import Reply, Server
from support.signing import signed


def post(server: Server, key: str) -> Reply:
    return server.post(b"{}", signed(message_id=key))


class Senders:
    """Threads that send one delivery after the other; `answers` are (key, status)."""

    def __init__(self, server: Server, count: int = 4) -> None:
        self.answers: list[tuple[str, int]] = []
        self.slowest_seconds = 0.0
        self._server = server
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(n,)) for n in range(count)]

    def _send(self, sender: int) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            key = f"msg_{sender}_{number}"
            reply = post(self._server, key)
            self.slowest_seconds = max(self.slowest_seconds, reply.seconds)
            self.answers.append((key, reply.status))

    def good(self) -> int:
        return sum(status == 200 for _, status in self.answers)

    def more(self, count: int = 20) -> None:
        """Until so many more were accepted."""
        enough = self.good() + count
        until(lambda: self.good() >= enough, 40)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
