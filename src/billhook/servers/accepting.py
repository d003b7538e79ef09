"""Accept the connections of a listening socket, on an event loop or in a thread.

Strangers may use up the descriptors of the process: it pauses then, and goes on.

On an event loop some tens are accepted in each of its turns. uvloop accepts one connection in a turn, so that
under load new connections wait for seconds behind those that are open; asyncio's own loop accepts a hundred,
so that one of several processes takes nearly all.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from collections.abc import Callable, Iterator

ACCEPTED_IN_A_TURN = 64
PAUSE_SECONDS = 1.0
"""How long nothing is accepted after the system had no descriptor or memory for a connection."""
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def accept_connections(
    listener: socket.socket, is_over: Callable[[], bool], exhausted: Callable[[OSError], None]
) -> Iterator[socket.socket]:
    """Yield the connections of a blocking listener until `is_over`, which is asked after each and each error.

    `exhausted` is called with the error each time that the system has no descriptor or memory for one. A
    listener with a time limit asks `is_over` that often; else shut it down to have it asked.
    """
    while not is_over():
        try:
            connection, _address = listener.accept()
        except OSError as error:  # of one connection, if it is another one
            if error.errno in _EXHAUSTED:
                exhausted(error)
                time.sleep(PAUSE_SECONDS)
            continue
        yield connection


class AcceptingServer:
    """Accepts connections of `listener`, with a protocol of `make_protocol` for each."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: socket.socket,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._make_protocol = make_protocol
        self._tls = tls
        self.opening: set[asyncio.Task[object]] = set()
        """What opens the connections that were accepted last: each takes some turns, or a TLS handshake."""
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._start()

    def close(self) -> None:
        """Accept no more connections; those that are open stay. A second call changes nothing."""
        if self._listener.fileno() == -1:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    async def wait_closed(self) -> None:
        """Wait for the connections that were accepted last."""
        if self.opening:
            await asyncio.wait(self.opening)

    def _start(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_IN_A_TURN):
            try:
                connection, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                # Another error is that of one connection, which its client has closed already.
                if error.errno in _EXHAUSTED:
                    self._loop.remove_reader(self._listener)
                    self._pause = self._loop.call_later(PAUSE_SECONDS, self._start)
                    return
                continue
            connection.setblocking(False)
            opening = self._loop.create_task(self._open(connection))
            self.opening.add(opening)
            opening.add_done_callback(self.opening.discard)

    async def _open(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, connection, ssl=self._tls)
        except Exception as error:  # noqa: BLE001 - of this connection alone, such as a failed handshake
            connection.close()
            if isinstance(error, MemoryError):
                self._loop.call_exception_handler({"message": "no memory to open", "exception": error})
