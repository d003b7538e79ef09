"""gunicorn's asgi worker with our limits: slow heads, too many connections, half-closed connections."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from billhook.servers.connection_limits import HEAD_SECONDS, MIN_WAIT_SECONDS
from support.processes import children, until
from support.server import Server, gunicorn, head, read_reply, request
from support.signing import signed
from support.timeouts import scaled

CONNECTIONS = 20
PLAIN = ["--worker-class", "asgi"]
"""gunicorn's own worker, which has none of these limits: the control of each test."""


pytestmark = pytest.mark.slow


def crowded(folder, *flags, **settings):
    """Serve one process with few connections; `flags` come last and win."""
    few = ["--worker-connections", str(CONNECTIONS)]
    return gunicorn(folder, *few, *flags, door="asgi", **settings)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A process for all tests that only open connections."""
    with crowded(tmp_path_factory.mktemp("crowded")) as running:
        yield running


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The same, of gunicorn's own worker."""
    with crowded(tmp_path_factory.mktemp("plain"), *PLAIN) as running:
        yield running


def closed(connection: socket.socket) -> bool:
    """Whether the server has closed the connection."""
    connection.setblocking(False)
    try:
        return connection.recv(1000, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_a_new_delivery_is_accepted_when_idle_connections_have_reached_the_limit(server):
    with contextlib.ExitStack() as held:
        idle = [held.enter_context(server.connect()) for _ in range(2 * CONNECTIONS)]

        statuses = [server.post(b"{}", signed()).status for _ in range(3)]

        assert statuses == [200] * 3
        until(lambda: sum(closed(one) for one in idle) > CONNECTIONS, 10)
        assert [closed(one) for one in idle[-10:]] == [False] * 10  # the oldest were closed


def test_control_gunicorns_own_worker_keeps_every_idle_connection(plain):
    with contextlib.ExitStack() as held:
        idle = [held.enter_context(plain.connect()) for _ in range(2 * CONNECTIONS)]

        assert plain.post(b"{}", signed()).status == 200
        assert not any(closed(one) for one in idle)


def test_each_head_on_a_connection_has_ten_seconds_and_delays_no_delivery(tmp_path):
    """Two seconds here, by a configuration that divides the ten."""
    assert HEAD_SECONDS == 10
    (tmp_path / "soon.py").write_text(
        "from billhook.servers import connection_limits\nconnection_limits.HEAD_SECONDS /= 5\n"
    )
    with (
        crowded(tmp_path, "--config", str(tmp_path / "soon.py")) as server,
        contextlib.ExitStack() as held,
    ):
        started = time.monotonic()
        silent, known, *slow = (held.enter_context(server.connect()) for _ in range(CONNECTIONS - 5))
        known.sendall(request(b"{}", signed(), close=False))
        assert read_reply(known).status == 200
        for connection in (known, *slow):
            connection.sendall(b"POST /webhooks/billing HTTP/1.1\r\nHost: receiver\r\n")

        reply = server.post(b"{}", signed())
        statuses = {read_reply(connection).status for connection in (known, *slow)}
        seconds = time.monotonic() - started

        assert (reply.status, reply.seconds < scaled(1)) == (200, True)
        assert statuses == {408}
        assert 1.8 < seconds < scaled(4)
        # Whoever opens connections in advance would take an answer for that of the next request.
        assert silent.recv(1_000) == b""


def test_a_head_without_end_is_refused(server):
    with server.connect() as connection:
        lines = [b"X-%d: %s\r\n" % (number, b"a" * 4_000) for number in range(17)]
        connection.sendall(b"POST /webhooks/billing HTTP/1.1\r\nHost: receiver\r\n" + b"".join(lines))

        assert read_reply(connection).status == 431


def test_control_gunicorns_own_worker_takes_such_a_head(plain):
    headers = {f"X-{number}": "a" * 4_000 for number in range(20)}

    assert plain.post(b"{}", {**signed(b"{}"), **headers}).status == 200


@pytest.mark.parametrize("loop", [pytest.param("asyncio", marks=pytest.mark.long), "uvloop"])
def test_a_client_that_reads_no_response_does_not_keep_its_connection(tmp_path, loop):
    """Its connection cannot be closed in order, because what was written to it never leaves."""
    many = request(b"", {}, method="PUT", close=False) * 200
    flags = ["--asgi-loop", loop, "--worker-connections", "1"]
    with crowded(tmp_path, *flags) as server, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.connect(("127.0.0.1", server.port))
        deaf.settimeout(1.0)
        with pytest.raises(TimeoutError):  # the server keeps no more of what we send until we read
            flood(deaf, many)

        until(lambda: accepted(server), 10)

        assert hung_up(deaf)


def flood(connection: socket.socket, message: bytes) -> None:
    """Send a message again and again; raises TimeoutError when no more goes in for a while."""
    while True:
        connection.sendall(message)


def accepted(server: Server) -> bool:
    """Whether a delivery is accepted now."""
    try:
        return server.post(b"{}", signed()).status == 200
    except OSError:
        return False


def hung_up(connection: socket.socket) -> bool:
    """Whether the server has reset the connection, which it sees when it sends."""
    try:
        connection.send(b"x")
    except BlockingIOError:
        return False
    except OSError:
        return True
    return False


def test_a_connection_that_made_a_delivery_is_kept_when_others_make_room(server):
    refused = request(b"{}", {**signed(b"{}"), "webhook-signature": "v1,AAAA"}, close=False)
    with contextlib.ExitStack() as held:
        known, unknown = (held.enter_context(server.connect()) for _ in range(2))
        known.sendall(request(b"{}", signed(b"{}"), close=False))
        unknown.sendall(refused)
        assert (read_reply(known).status, read_reply(unknown).status) == (200, 401)
        time.sleep(MIN_WAIT_SECONDS)  # both may make room for others now

        for _ in range(2 * CONNECTIONS):
            held.enter_context(server.connect())
        until(lambda: closed(unknown), 10)

        assert not closed(known)


def test_bodies_that_do_not_come_make_room_for_a_delivery(tmp_path):
    unfinished = head({"Content-Length": "100"}, close=False)
    with crowded(tmp_path, BILLHOOK_DEADLINE_SECONDS="60") as server, contextlib.ExitStack() as held:
        for _ in range(2 * CONNECTIONS):
            held.enter_context(server.connect()).sendall(unfinished)

        assert [server.post(b"{}", signed()).status for _ in range(3)] == [200] * 3


def test_a_client_that_closes_its_side_after_the_request_gets_its_response(server):
    headers = signed(b"{}")

    reply = server.ask(request(b"{}", headers, close=False), half_close=True)

    assert reply.status == 200
    assert server.stored(headers["webhook-id"]) == ("PingTest", b"{}")


def test_control_gunicorns_own_worker_gives_no_response_to_a_half_closed_connection(plain):
    def is_answered() -> bool:
        try:
            plain.ask(request(b"{}", signed(), close=False), half_close=True)
        except OSError:  # reset or closed
            return False
        return True

    # On a busy machine it may have answered before it sees the end.
    assert not all(is_answered() for _ in range(20))


def test_a_request_that_is_no_http_is_refused_without_its_text(server):
    reply = server.ask(b"POST /webhooks/billing HTTP/1.1\r\nHost: a\r\nbad header echo-me-7391: 1\r\n\r\n")

    assert reply.status == 400
    assert b"7391" not in reply.body


def test_neither_idle_connections_nor_clients_that_left_delay_the_end_of_a_process(tmp_path):
    flags = ["--worker-connections", "100"]  # more than are in use at one time
    with crowded(tmp_path, *flags) as server, contextlib.ExitStack() as held:
        for _ in range(50):
            with server.connect() as connection:
                connection.sendall(request(b"{}", signed(), close=False))
        for _ in range(5):
            held.enter_context(server.connect())
        kept = held.enter_context(server.connect())
        kept.sendall(request(b"{}", signed(), close=False))
        assert read_reply(kept).status == 200
        started = time.monotonic()

        os.kill(server.pid, signal.SIGTERM)
        until(lambda: not children(server.pid), 20)

        assert time.monotonic() - started < scaled(5)
        # What gunicorn does after the connections: requests end, and the application is told of the end.
        assert "Worker exception" not in server.log.read_text()


@pytest.mark.parametrize("loop", [pytest.param("asyncio", marks=pytest.mark.long), "uvloop"])
def test_a_signal_while_the_application_loads_ends_the_process_at_once(tmp_path, loop):
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\npathlib.Path('loading').touch()\ntime.sleep(2)\napplication = None\n"
    )
    flags = ["--asgi-loop", loop, "--graceful-timeout", "30", "--pythonpath", str(tmp_path)]
    with gunicorn(tmp_path, *flags, door="asgi", app="slow:application", wait_for="") as server:
        until(lambda: (tmp_path / "loading").exists(), 20)
        started = time.monotonic()

        os.kill(server.pid, signal.SIGTERM)
        until(lambda: not children(server.pid), 40)

    assert time.monotonic() - started < scaled(15)


def test_the_limit_of_open_files_is_raised_above_that_of_connections(tmp_path):
    soft = ["sh", "-c", 'ulimit -S -n 256 && exec "$@"', "sh"]
    with gunicorn(tmp_path, "--worker-connections", "400", door="asgi", prefix=soft) as server:
        (worker,) = children(server.pid)
        limits = Path(f"/proc/{worker}/limits").read_text()
        with contextlib.ExitStack() as held:
            for _ in range(350):
                held.enter_context(server.connect())

            assert server.post(b"{}", signed()).status == 200

    assert re.search(r"Max open files +2960 ", limits)


def test_a_process_that_may_open_few_files_allows_fewer_connections(tmp_path):
    hard = ["sh", "-c", 'ulimit -n 1024 && exec "$@"', "sh"]
    with gunicorn(tmp_path, "--worker-connections", "5000", door="asgi", prefix=hard) as server:
        server.logged("The limit of 1024 open files allows 256 connections.")
        with contextlib.ExitStack() as held:
            for _ in range(1_200):
                held.enter_context(server.connect())

            assert [server.post(b"{}", signed()).status for _ in range(3)] == [200] * 3
    assert "out of system resource" not in server.log.read_text()


def test_a_connection_is_closed_whose_application_failed_before_the_body_was_complete(tmp_path):
    with (
        gunicorn(tmp_path, door="asgi", app="support.mounted:create_failing_app()") as server,
        server.connect() as connection,
    ):
        connection.sendall(b"POST /fail HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        until(lambda: closed(connection), 20)
        assert server.post(b"{}", signed()).status == 200
