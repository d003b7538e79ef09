"""Connections that are accepted on an event loop: as many as wait, some tens in each of its turns."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import ClassVar

import pytest

from billhook.servers import accepting
from billhook.servers.accepting import ACCEPTED_IN_A_TURN, AcceptingServer
from support.certificates import certificate

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
with suppress(ImportError):  # it comes with the extra `fast`
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop
WAITING = 200


class Greeting(asyncio.Protocol):
    """Greets each connection with one byte, and whatever it sends with another one."""

    open: ClassVar[list[asyncio.Transport]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.open.append(transport)
        transport.write(b"!")

    def data_received(self, data: bytes) -> None:
        self.open[0].write(b"?")


@contextmanager
def runner_of(loop: str) -> Iterator[asyncio.Runner]:
    async def end() -> None:
        for transport in Greeting.open:
            transport.abort()
        Greeting.open.clear()
        await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        try:
            yield runner
        finally:
            runner.run(end())


@pytest.fixture(params=LOOPS)
def runner(request) -> Iterator[asyncio.Runner]:
    with runner_of(request.param) as runner:
        yield runner


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=WAITING) as listener:
        yield listener


def clients_of(listener: socket.socket, count: int, stack: ExitStack) -> list[socket.socket]:
    """Clients that wait to be accepted."""
    clients = [stack.enter_context(socket.socket(listener.family)) for _ in range(count)]
    for client in clients:
        client.connect(listener.getsockname())
    return clients


async def turns_until(count: int) -> int:
    """How many turns of the loop it takes until so many connections are made."""
    turns = 0
    while len(Greeting.open) < count:
        turns += 1
        await asyncio.sleep(0)
    return turns


@pytest.fixture
def accept(runner, listener):
    """Has a server accept clients that wait, and does `work` with it; its result, and the clients."""
    with ExitStack() as stack:

        def run(work, waiting=1, *, on=listener, make=Greeting):
            async def serve():
                server = AcceptingServer(asyncio.get_running_loop(), on, make)
                try:
                    async with asyncio.timeout(10):
                        return await work(server)
                finally:
                    server.close()
                    await server.wait_closed()

            clients = clients_of(on if isinstance(on, socket.socket) else listener, waiting, stack)
            return runner.run(serve()), clients

        yield run


def test_all_that_wait_are_accepted_within_a_few_turns(accept):
    turns, _ = accept(lambda _: turns_until(WAITING), WAITING)
    assert turns <= WAITING / ACCEPTED_IN_A_TURN + 5


@pytest.mark.skipif("uvloop" not in LOOPS, reason="uvloop is not installed")
def test_control_uvloop_itself_accepts_one_in_a_turn(listener):
    async def serve() -> int:
        server = await asyncio.get_running_loop().create_server(Greeting, sock=listener)
        turns = await asyncio.wait_for(turns_until(WAITING), 10)
        server.close()
        return turns

    with ExitStack() as stack, runner_of("uvloop") as runner:
        clients_of(listener, WAITING, stack)
        turns = runner.run(serve())

    assert turns >= WAITING / 2


def test_one_turn_accepts_no_more_than_its_share_so_that_another_process_has_some(accept):
    async def accept_once(server) -> None:
        server._accept()

    accept(accept_once, ACCEPTED_IN_A_TURN + 30)
    assert len(Greeting.open) == ACCEPTED_IN_A_TURN


def test_connections_to_a_unix_socket_are_accepted(accept, tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        _, clients = accept(lambda _: turns_until(3), 3, on=listener)
        assert [client.recv(1) for client in clients] == [b"!"] * 3


def test_tls_is_spoken_and_a_client_that_speaks_none_harms_no_other(runner, listener, tmp_path):
    tls = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    reported: list[object] = []

    async def serve() -> bytes:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        server = AcceptingServer(loop, listener, Greeting, tls)
        _, plain = await asyncio.open_connection(*address)
        plain.write(b"GET / HTTP/1.1\r\n\r\n")
        reader, writer = await asyncio.open_connection(*address, ssl=trusting, server_hostname="127.0.0.1")
        answer = await reader.read(1)
        for each in (plain, writer):
            each.close()
        server.close()
        await server.wait_closed()
        return answer

    address = listener.getsockname()
    assert runner.run(serve()) == b"!"
    assert reported == []


def test_a_closed_server_refuses_new_connections_and_keeps_those_that_are_open(runner, listener, accept):
    address = listener.getsockname()
    _, (client,) = accept(lambda _: turns_until(1))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    client.send(b"still there?")
    runner.run(asyncio.sleep(0.01))
    assert client.recv(2) == b"!?"


def test_closing_a_closed_server_does_nothing_as_gunicorn_closes_each_again(accept, listener):
    async def close(server) -> None:
        server.close()

    accept(close, 0)
    assert listener.fileno() == -1


class Failing:
    """A listening socket whose first accept fails."""

    def __init__(self, listener: socket.socket, error: int) -> None:
        self._listener, self._error, self.asked = listener, error, 0
        self.fileno, self.setblocking, self.close = listener.fileno, listener.setblocking, listener.close

    def accept(self) -> tuple[socket.socket, object]:
        self.asked += 1
        if self.asked == 1:
            raise OSError(self._error, "as it is")
        return self._listener.accept()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_without_descriptors_or_memory_it_pauses_and_then_goes_on(accept, listener, monkeypatch, error):
    monkeypatch.setattr(accepting, "PAUSE_SECONDS", 0.05)
    failing = Failing(listener, error)
    accept(lambda _: turns_until(1), on=failing)
    assert failing.asked <= 4  # not once in each turn: once, and after the pause until nothing waits


def test_a_server_that_is_closed_in_its_pause_accepts_nothing_more(accept, listener):
    async def close_in_its_pause(server) -> None:
        while server._pause is None:
            await asyncio.sleep(0)
        server.close()
        assert server._pause.cancelled()

    accept(close_in_its_pause, on=Failing(listener, errno.EMFILE))
    assert len(Greeting.open) == 0


def test_a_connection_that_its_client_has_closed_stops_no_other(accept, listener):
    accept(lambda _: turns_until(2), 2, on=Failing(listener, errno.ECONNABORTED))


def test_without_memory_for_a_connection_it_is_closed_and_the_loop_is_told(accept):
    reported: list[dict[str, object]] = []

    def make() -> asyncio.Protocol:
        raise MemoryError

    async def until_reported(_) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        while not reported:
            await asyncio.sleep(0)

    _, (client,) = accept(until_reported, make=make)
    assert client.recv(1) == b""
    assert [type(each["exception"]) for each in reported] == [MemoryError]
