"""What the tests of the celery engine need: an app, its workers, and a look at what they did."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flask import Flask

from support import celery_shop
from support.inbox_view import place_of, rows
from support.processes import logged, until

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
        query = "SELECT count(*) FROM delivery WHERE state IN ('done', 'dead')"
        # As many as there may be, looking must not be what they wait for.
        until(lambda: rows(place_of(self.inbox_url), query) == [(count,)], seconds, 0.05)


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
    environ = {**os.environ, **shop.environment, **environment}
    options = {"cwd": shop.folder, "env": environ, "start_new_session": True}
    options["ready"] = lambda: " ready." in log.read_text(errors="replace")
    with logged(command, log, grace=60, **options) as process:  # one of the pool may wait 30 s for results
        yield Worker(process, log)


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
        for queue in (shop.queue, f"{shop.queue}-billing"):
            connection.default_channel.queue_delete(queue)
        connection.default_channel.exchange_delete(shop.queue)
