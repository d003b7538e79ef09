"""`billhook serve` as systemd starts it: it takes the sockets of a socket unit, and says when it serves."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.examples import free_port
from support.processes import alive, descendants, until
from support.server import read_reply, request
from support.signing import signed
from support.systemd import NotifySocket
from support.timeouts import scaled
from support.worker_group import WorkerGroup

pytestmark = pytest.mark.slow

# What systemd does: the sockets from descriptor 3 on, and the process's own id in the environment.
AS_SYSTEMD = """
import os, sys
sockets, command = sys.argv[1].split(), sys.argv[2:]
copies = [os.dup2(int(each), 100 + number) for number, each in enumerate(sockets)]
for number, copy in enumerate(copies):
    os.dup2(copy, 3 + number)
    os.close(copy)
os.environ.setdefault("LISTEN_PID", str(os.getpid()))
os.environ["LISTEN_FDS"], os.environ["LISTEN_FDNAMES"] = str(len(sockets)), ":".join(sockets)
os.execv(command[0], command)
"""
TAKE = (
    "import os; from billhook.cli.params import take_passed_sockets; print(take_passed_sockets(os.environ))"
)


def command_of(sockets: Sequence[socket.socket], *arguments: str) -> list[str]:
    descriptors = " ".join(str(each.fileno()) for each in sockets)
    return [sys.executable, "-c", AS_SYSTEMD, descriptors, sys.executable, *arguments]


class Unit(NotifySocket):
    """A unit of systemd with its sockets, and with a socket that hears what the unit's processes tell."""

    def __init__(self, group: WorkerGroup) -> None:
        super().__init__()
        self.group = group
        self.path = Path(self._folder.name) / "web"
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(self.path))
        self.unix.listen()
        group.environ |= self.environ

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        passed = (self.tcp, self.unix)
        command = command_of(passed, "-m", "billhook", "serve", "worst.py", "--workers", "1", *arguments)
        return self.group.run(command, pass_fds=[each.fileno() for each in passed])

    def close(self) -> None:
        self.tcp.close()
        self.unix.close()
        super().close()


@pytest.fixture
def unit(group) -> Iterator[Unit]:
    with contextlib.closing(Unit(group)) as made:
        yield made


def deliver(address: str | tuple[str, int], key: str) -> int:
    """Send a delivery; returns the status, with one attempt and a time limit."""
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as client:
        client.settimeout(scaled(5))
        client.connect(address)
        client.sendall(request(b"{}", signed(message_id=key)))
        return read_reply(client).status


def open_sockets(process_id: int) -> set[str]:
    """The sockets of a process, as the system names them."""
    return {str(path.readlink()) for path in Path(f"/proc/{process_id}/fd").iterdir() if path.exists()}


def test_serve_takes_the_sockets_of_a_socket_unit_and_its_main_process_tells_systemd(unit):
    addresses = (unit.tcp.getsockname(), str(unit.path))
    with socket.create_server(("127.0.0.1", 0)) as taken:  # a port of its own could not be bound
        server = unit.start("--bind", f"127.0.0.1:{taken.getsockname()[1]}")
        ready = unit.told()
    by_ready = [deliver(address, f"first-{number}") for number, address in enumerate(addresses)]
    until(lambda: len(unit.group.notes("ended")) == 2, 30)
    before = _workers(server.pid)
    server.send_signal(signal.SIGHUP)
    until(lambda: len(_workers(server.pid) - before) == 1 and not _workers(server.pid) & before, 30)
    after_reload = [deliver(address, f"second-{number}") for number, address in enumerate(addresses)]
    (worker,) = _workers(server.pid)
    inodes = {f"socket:[{os.fstat(each.fileno()).st_ino}]" for each in (unit.tcp, unit.unix)}
    held = {each: open_sockets(each) & inodes for each in (server.pid, worker)}
    environments = [_file(each, "environ") for each in (worker, server.pid)]
    server.send_signal(signal.SIGTERM)
    told = []
    while not told or told[-1] != ("STOPPING=1", server.pid):
        told.append(unit.told())

    assert server.wait(scaled(30)) == 0
    assert ready == ("READY=1\nWATCHDOG=1", server.pid)  # with NotifyAccess=main no other is heard
    assert {sender for _, sender in told} == {server.pid}
    assert by_ready + after_reload == [200] * 4
    assert held == {server.pid: inodes, worker: set()}
    assert b"LISTEN_FDS" not in environments[0]  # a handler's own children would take them for theirs
    assert b"LISTEN_FDS" in environments[1]
    assert f"POST http://127.0.0.1:{addresses[0][1]}/webhooks/billing" in unit.group.log()
    assert "is not used: systemd passes the sockets" in unit.group.log()
    assert unit.path.is_socket()  # it is systemd's, and the next start takes it again


def _workers(process_id: int) -> set[int]:
    return {each for each in alive(descendants(process_id)) if b"worker\0" in _file(each, "cmdline")}


def _file(process_id: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{process_id}/{name}").read_bytes()
    except FileNotFoundError:  # it has ended meanwhile
        return b""


@pytest.mark.parametrize("worker_class", ["asgi", pytest.param("gthread", marks=pytest.mark.long)])
def test_systemd_is_told_of_the_start_when_the_first_connection_is_accepted(unit, worker_class):
    address = ("127.0.0.1", free_port())
    arguments = ("--bind", f"127.0.0.1:{address[1]}", "--workers", "1", "--worker-class", worker_class)
    unit.group.start("serve", "worst.py", *arguments)

    assert unit.told()[0] == "READY=1\nWATCHDOG=1"
    assert deliver(address, "first") == 200


def take(*passed: socket.socket, code: str = TAKE, **environ: str) -> str:
    done = subprocess.run(
        command_of(passed, "-c", code),
        env={**os.environ, **environ}, pass_fds=[each.fileno() for each in passed],
        capture_output=True, text=True, timeout=scaled(60), check=False,
    )  # fmt: skip
    return (done.stdout or done.stderr).strip().splitlines()[-1]


def test_what_is_no_socket_to_accept_connections_from_is_refused():
    connected, peer = socket.socketpair()
    with connected, peer, socket.socket(type=socket.SOCK_DGRAM) as datagrams, Path(os.devnull).open() as file:
        refused = [take(connected), take(datagrams), take(file)]

    assert all("accepts no connections for HTTP: use ListenStream= with" in text for text in refused[:2])
    assert "is no socket (Socket operation on non-socket): use ListenStream=" in refused[2]


def test_sockets_for_a_process_in_between_are_named_and_a_forgotten_variable_is_not_used():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listening:
        address = f"[::1]:{listening.getsockname()[1]}"
        own, lost = take(listening), take(listening, LISTEN_PID="1")
        closing = "import os; os.close(3)\n" + TAKE
        forgotten = take(listening, code=closing, LISTEN_PID="1")

    assert own == str({3: address})
    assert f"systemd passes {address} to the process 1, which has started this one as another" in lost
    assert forgotten == "{}"
