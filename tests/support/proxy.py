"""A line to PostgreSQL or a broker that does as it is told: it holds back, cuts, alters, or refuses."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

from sqlalchemy.engine import make_url

from support.postgres import libpq


class Proxy:
    """Listens on a loopback port and passes all on, until told otherwise. `connections` counts them."""

    def __init__(self, url: str) -> None:
        self.lead_to(url)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._flowing = threading.Event()
        self._flowing.set()
        self._ends: list[socket.socket] = []
        self.connections = 0
        self.refuses = False
        """Whether new lines are closed at once."""
        self.altered: tuple[bytes, bytes] | None = None
        self.fatal: bytes | None = None
        """What may not be said: who says it is cut off when the server has answered, or before it heard."""
        self.marker: tuple[bytes, bytes] | None = None
        """Once the first is said, the second is fatal."""
        self.heard = True
        """Whether the server hears what is fatal."""
        self.client_is_answered = False
        """Whether its answer is passed on before the line is cut."""
        self.port: int = self._listener.getsockname()[1]
        self.url = _at(url, self.port)
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, url: str) -> None:
        """Have new lines lead to another server; those that are open go on."""
        if url.startswith("postgresql"):
            facts = libpq(url)
            self._server = str(facts.get("host", "localhost")), int(str(facts.get("port", 5432)))
        else:
            broker = urlsplit(url)
            self._server = broker.hostname or "127.0.0.1", broker.port or 5672

    def hold(self) -> None:
        """Pass nothing on, in either direction, and do not say so."""
        self._flowing.clear()

    def release(self) -> None:
        """Pass on what was held, and what comes."""
        self._flowing.set()

    def cut(self) -> None:
        """Close every line; new ones are taken."""
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close every line, and take no new ones."""
        self._listener.close()
        self.release()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                if self.refuses:
                    client.close()
                    continue
                threading.Thread(target=self._line, args=(client,), daemon=True).start()

    def _line(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), self._reach() as server:
            self._ends += [client, server]
            doomed = threading.Event()
            back = threading.Thread(target=self._to_client, args=(server, client, doomed), daemon=True)
            back.start()
            self._to_server(client, server, doomed)
            back.join()

    def _reach(self) -> socket.socket:
        host, port = self._server
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server

    def _to_server(self, client: socket.socket, server: socket.socket, doomed: threading.Event) -> None:
        with _both_end(client, server):
            while data := client.recv(65_536):
                self._flowing.wait()
                if self.altered is not None:
                    data = data.replace(*self.altered)
                if self.marker is not None and self.marker[0] in data:
                    self.fatal = self.marker[1]
                if self.fatal is not None and self.fatal in data:
                    doomed.set()
                    if not self.heard:
                        return
                server.sendall(data)

    def _to_client(self, server: socket.socket, client: socket.socket, doomed: threading.Event) -> None:
        with _both_end(client, server):
            while data := server.recv(65_536):
                self._flowing.wait()
                if not doomed.is_set() or self.client_is_answered:
                    client.sendall(data)
                if doomed.is_set():
                    return


@contextlib.contextmanager
def _both_end(*ends: socket.socket) -> Iterator[None]:
    """Whichever side is done first, however it ends, the line is over."""
    with contextlib.suppress(OSError):
        yield
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _at(url: str, port: int) -> str:
    """The URL with the proxy in the server's place, and nothing encrypted that it must read."""
    if not url.startswith("postgresql"):
        broker = urlsplit(url)
        user, at, _ = broker.netloc.rpartition("@")
        return broker._replace(netloc=f"{user}{at}127.0.0.1:{port}").geturl()
    parsed = make_url(url).set(drivername="postgresql+psycopg", host="127.0.0.1", port=port)
    query = {name: text for name, text in parsed.query.items() if name not in ("host", "port")}
    query.update(sslmode="disable", gssencmode="disable")
    return parsed.set(query=query).render_as_string(hide_password=False)


def proxied(url: str) -> contextlib.closing[Proxy]:
    """A proxy before the server of a URL, as long as the block lasts."""
    return contextlib.closing(Proxy(url))
