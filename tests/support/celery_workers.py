"""What the tests of the celery engine need: a worker, a broker that can be taken away, and a look at both."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flask import Flask

from support import celery_shop
from support.inbox_view import place_of, rows
from support.processes import until
from support.timeouts import scaled

TESTS = Path(__file__).parents[1]


@dataclass
class Shop:
    """A queue of its own on a broker, an inbox, and the app that joins them; see support.celery_shop."""

    folder: Path
    inbox_url: str
    broker: str
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queue = f"billhook-test-{secrets.token_hex(4)}"
        if self.broker.startswith("redis"):
            self.options.setdefault("transport", {})["global_keyprefix"] = f"{self.queue}:"

    @property
    def facts(self) -> dict[str, Any]:
        own = {"folder": str(self.folder), "inbox_url": self.inbox_url, "broker": self.broker}
        return {**own, "queue": self.queue, **self.options}

    def app(self, **more: Any) -> Flask:
        """The app in this process: what a web process has."""
        return celery_shop.create_app({**self.facts, **more})

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        return {"SHOP": json.dumps(self.facts), "PYTHONPATH": path}

    def calls(self) -> list[tuple[str, str, int, int]]:
        """What handlers did so far: name, key, attempt, process."""
        return self._lines("calls")

    def observed(self) -> list[tuple[str, str, int, int]]:
        """What observers of handler_succeeded were told: name, key, attempt, process."""
        return self._lines("observed")

    def _lines(self, name: str) -> list[tuple[str, str, int, int]]:
        path = self.folder / name
        whole, _, _ = path.read_text().rpartition("\n") if path.exists() else ("", "", "")
        lines = whole.splitlines()  # and not the one that is just being written
        return [
            (name, key, int(attempt), int(pid))
            for name, key, attempt, pid in (line.split() for line in lines)
        ]

    def runs(self, columns: str = "handler, state, attempts") -> list[tuple[Any, ...]]:
        order = "ORDER BY delivery_id, handler"
        return rows(place_of(self.inbox_url), f"SELECT {columns} FROM run {order}")

    def finished(self, count: int, seconds: float = 60.0) -> None:
        """Wait until so many deliveries are done or dead."""
        started = time.monotonic()
        query = "SELECT count(*) FROM delivery WHERE state IN ('done', 'dead')"
        while rows(place_of(self.inbox_url), query) != [(count,)]:
            waited = time.monotonic() - started
            assert waited < seconds or waited < scaled(seconds), f"not {count} finished within {seconds} s"
            time.sleep(0.05)  # as many as there may be, looking must not be what they wait for


@dataclass
class Worker:
    """A Celery worker's main process."""

    process: subprocess.Popen[bytes]
    log: Path

    def says(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")


@contextlib.contextmanager
def worker(
    shop: Shop,
    *flags: str,
    app: str = "support.celery_shop:celery",
    pool: str = "prefork",
    **environment: str,
) -> Iterator[Worker]:
    """A Celery worker with two processes or threads, until the block ends."""
    log = shop.folder / f"worker-{secrets.token_hex(3)}.log"
    command = [sys.executable, "-m", "celery", "-A", app, "worker", "--pool", pool, "--concurrency", "2"]
    command += ["--hostname", f"{shop.queue}-{secrets.token_hex(2)}@%h", "--loglevel", "INFO"]
    command += ["--without-gossip", "--without-mingle", *flags]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **shop.environment, **environment},
            cwd=shop.folder,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    running = Worker(process, log)
    try:
        until(lambda: running.says(" ready.") or process.poll() is not None, 60)
        yield running
    except AssertionError as error:
        error.add_note(log.read_text(errors="replace")[-8_000:])
        raise
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)  # more than the 30 s that a process of the pool may wait for its results
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def clean_up(shop: Shop) -> None:
    """Take the shop's names off the broker again."""
    if shop.broker.startswith("redis"):
        import redis

        with contextlib.closing(redis.Redis.from_url(shop.broker)) as server:
            for key in server.scan_iter(f"{shop.queue}:*"):
                server.delete(key)
        return
    import kombu

    with kombu.Connection(shop.broker) as connection:
        connection.default_channel.queue_delete(shop.queue)
        connection.default_channel.exchange_delete(shop.queue)


class Proxy:
    """Between a shop and its broker: can be cut, and can go on taking connections and say nothing."""

    def __init__(self, broker: str) -> None:
        at = urlsplit(broker)
        self._target = (at.hostname or "127.0.0.1", at.port or 5672)
        self._server = socket.create_server(("127.0.0.1", 0))
        self._port = self._server.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._mode = "pass"
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()
        own = f"{at.username}:{at.password}@" if at.username else ""
        self.broker = f"{at.scheme}://{own}127.0.0.1:{self._port}{at.path}"

    def pass_on(self) -> None:
        """As if there were no proxy; connections that hung are closed."""
        self._change("pass")

    def cut(self) -> None:
        """Close all connections, and every new one at once."""
        self._change("cut")

    def hang(self) -> None:
        """Take whatever comes and answer nothing, on old connections and new."""
        self._mode = "hang"

    def close(self) -> None:
        self._change("cut")
        self._server.close()

    def _change(self, mode: str) -> None:
        with self._lock:
            self._mode = mode
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for one in pair:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if self._mode == "cut":
                client.close()
                continue
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._pairs.append((client, server))
            threading.Thread(target=self._relay, args=(client, server), daemon=True).start()

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        with client, server, contextlib.suppress(OSError):
            while True:
                ready, _, _ = select.select([client, server], [], [], 0.2)
                if self._mode == "hang":
                    time.sleep(0.05)
                    continue
                for one in ready:
                    data = one.recv(65_536)
                    if not data:
                        return
                    (server if one is client else client).sendall(data)


@dataclass
class Load:
    """What came back of many POSTs: their statuses and how long each took, in seconds."""

    statuses: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(share * len(self.seconds)))]


@contextlib.contextmanager
def posting(post: Callable[[], tuple[int, float]], threads: int = 4) -> Iterator[list[Load]]:
    """POST without a pause in some threads; the last of the yielded is what is filled now."""
    loads, stopping, lock = [Load()], threading.Event(), threading.Lock()

    def work() -> None:
        while not stopping.is_set():
            status, seconds = post()
            with lock:
                loads[-1].statuses.append(status)
                loads[-1].seconds.append(seconds)
            time.sleep(0.01)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for one in workers:
        one.start()
    try:
        yield loads
    finally:
        stopping.set()
        for one in workers:
            one.join()
