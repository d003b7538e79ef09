"""What usage costs in the sandbox, beside the least that it could cost.

    python tests/bench/sandbox.py [--events 1000000] [--batches 50] [--rounds 5]

The sandbox runs in a process of its own, as `billhook sandbox` does, on a SQLite file with EVENTS events of
100 customers and two meters.
A batch: 1,000 events by POST /v2/events on one connection that is kept, beside parsing the same JSON and
writing the same rows with `executemany` on a copy of that file, in one transaction; in turn.
An aggregation: POST /v2/events/aggregation over all events by day, beside the same GROUP BY in SQL.
Printed are medians with their spread, and ratios taken within a round, so that a noisy machine spoils little.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import sqlite3
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from measuring import options, process, ratios, save, spread, timed

from billhook.sandbox import Sandbox, SandboxOptions
from support.examples import answers, free_port
from support.processes import until

BATCH = 1000
CUSTOMERS = 100
API_TOKEN = "api-token-of-the-benchmark"
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
STEP = timedelta(seconds=2.592)  # a million in a month, and a batch in less than an hour
PERIOD = {"startTime": "2026-01-01T00:00:00Z", "endTime": "2027-01-01T00:00:00Z"}
COLUMNS = ("ref", "name", "alias", "customer_id", "at", "meter_ids", "body")
INSERT = f"INSERT INTO event ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
GROUP_BY = """
SELECT at / 86400000000, {figure} FROM event
WHERE customer_id IN (SELECT customer_id FROM alias WHERE alias GLOB '*') AND name = 'api_call'
AND at >= ? AND at < ? GROUP BY 1
"""
FIGURES = {"count": "count(*)", "units": "sum(json_extract(body, '$.data.units'))"}

Row = tuple[str, str, str, str, int, str, str]


def main() -> None:
    """Measure and print."""
    given = options(__doc__, events=1_000_000, batches=50, rounds=5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = prepare(folder / "sandbox.db", given.events)
        shutil.copy(folder / "sandbox.db", folder / "raw.db")
        raw = opened(folder / "raw.db")
        with served(folder / "sandbox.db") as caller:
            results = [one_round(made, caller, raw, given.batches) for _ in range(given.rounds)]
        raw.close()
    save(given, results)
    report(results)


def one_round(made: Made, caller: Caller, raw: sqlite3.Connection, batches: int) -> dict[str, float]:
    """Milliseconds of each, the medians of one round."""
    ours, least = [], []
    for _ in range(batches):
        rows = made.rows(BATCH)
        body = b'{"events":[%b]}' % ",".join(row[-1] for row in rows).encode()
        ours.append(milliseconds(lambda body=body: caller.call("/v2/events", body)))
        least.append(milliseconds(lambda body=body, rows=rows: write(raw, body, rows)))
    found = {"batch": statistics.median(ours), "batch, raw": statistics.median(least)}
    for key, figure in FIGURES.items():
        request = json.dumps(made.aggregation(key)).encode()
        found[key] = milliseconds(lambda request=request: caller.call("/v2/events/aggregation", request))
        found[f"{key}, raw"] = milliseconds(lambda figure=figure: raw.execute(*grouped(figure)).fetchall())
    return found


def report(results: list[dict[str, float]]) -> None:
    """The table, and the ratios."""
    figures = {name: [one[name] for one in results] for name in results[0]}
    for name, times in figures.items():
        print(f"{name:12} {spread(times)} ms")
    for name in ("batch", *FIGURES):
        print(f"{name:12} / raw {spread(ratios(figures[name], figures[f'{name}, raw']))}")


# --- the least ------------------------------------------------------------------------------------


def write(connection: sqlite3.Connection, body: bytes, rows: list[Row]) -> None:
    """Parse a batch and write its rows, and nothing more."""
    json.loads(body)
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(INSERT, rows)
    connection.execute("COMMIT")


def grouped(figure: str) -> tuple[str, tuple[int, int]]:
    """The SQL of an aggregation, and its parameters."""
    start, end = (int(datetime.fromisoformat(PERIOD[key]).timestamp()) * 1_000_000 for key in PERIOD)
    return GROUP_BY.format(figure=figure), (start, end)


def opened(path: Path) -> sqlite3.Connection:
    """The file, with the settings that the sandbox gives it."""
    connection = sqlite3.connect(path, isolation_level=None)
    for setting in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def milliseconds(what: Callable[[], Any]) -> float:
    """How many milliseconds it takes."""
    return timed(what) * 1000


# --- the sandbox ----------------------------------------------------------------------------------


class Made:
    """What there is in the sandbox, and events that are new to it, one after another."""

    def __init__(self, customers: dict[str, str], meter_ids: str) -> None:
        self._customers = list(customers.items())
        self._meter_ids = meter_ids
        self._number = 0

    def rows(self, count: int) -> list[Row]:
        """The next events, as rows of the table; the last column is the event's JSON."""
        return [self._row() for _ in range(count)]

    def aggregation(self, key: str) -> dict[str, Any]:
        meters = [{"key": key, "eventName": "api_call"}]
        asked = {"customerId": self._customers[0][1], "customerIdPattern": "*", "period": PERIOD}
        return {**asked, "meters": meters, "groupBy": "day"}

    def _row(self) -> Row:
        self._number += 1
        alias, customer_id = self._customers[self._number * 7919 % len(self._customers)]
        moment = FIRST + self._number * STEP
        event = {
            "name": "api_call",
            "timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "customerAlias": alias,
            "ref": f"0b7a3c5e-6f1d-4e2a-9c48-{self._number:012d}",
            "data": {"region": "eu-central", "units": self._number % 1000 / 100, "host": "vm-17"},
        }
        text = json.dumps(event, separators=(",", ":"))
        at = int(moment.timestamp() * 1000) * 1000
        return event["ref"], "api_call", alias, customer_id, at, self._meter_ids, text


def prepare(path: Path, events: int) -> Made:
    """A sandbox's file with customers, meters and events."""
    sandbox = Sandbox(settings(path))
    with serving_once(sandbox) as caller:
        for key, method in (("count", "count"), ("units", "sum")):
            meter = {"name": key, "eventName": "api_call", "key": key, "aggregationMethod": method}
            more = {} if method == "count" else {"property": "units"}
            caller.call("/_sandbox/meters", json.dumps({**meter, **more}).encode())
        customers = {}
        for number in range(CUSTOMERS):
            customer = {"name": f"Customer {number}", "aliases": [f"customer-{number}"]}
            answer = caller.call("/_sandbox/customers", json.dumps(customer).encode())
            customers[f"customer-{number}"] = answer["customer"]["id"]
        meters = caller.call("/_sandbox/meters", None)["meters"]
    made = Made(customers, " ".join(sorted(each["id"] for each in meters)))
    connection = opened(path)
    for start in range(0, events, 50_000):
        connection.execute("BEGIN")
        connection.executemany(INSERT, made.rows(min(50_000, events - start)))
        connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return made


def settings(path: Path) -> SandboxOptions:
    """How the sandbox runs here: nobody holds it back."""
    return SandboxOptions(database_url=f"sqlite:///{path}", api_token=API_TOKEN, rate_limit="1000000/second")


def serve() -> None:
    """Serve the sandbox of the environment's file until SIGTERM."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    sandbox = Sandbox(settings(Path(os.environ["BENCH_FILE"])))
    with sandbox.run(port=int(os.environ["BENCH_PORT"])):
        stopped.wait()


class Caller:
    """One connection to a sandbox, logged in and kept."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        self._headers = {"x-api-key": "sandbox", "Content-Type": "application/json"}
        token = self.call("/login", json.dumps({"refreshToken": API_TOKEN}).encode())["accessToken"]
        self._headers["Authorization"] = f"Bearer {token}"

    def call(self, path: str, body: bytes | None) -> Any:
        """POST the body, or GET without one; the decoded answer."""
        self._connection.request("GET" if body is None else "POST", path, body, self._headers)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != 200 or b'"invalidEvents":[{' in answer:
            sys.exit(f"{path}: {response.status} {answer[:500]!r}")
        return json.loads(answer) if len(answer) < 100_000 else None

    def close(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def serving_once(sandbox: Sandbox) -> Iterator[Caller]:
    """The sandbox in this process, to prepare it."""
    from billhook.sandbox.serving import serving

    with serving(sandbox) as url:
        caller = Caller(int(url.rpartition(":")[2]))
        yield caller
        caller.close()


@contextlib.contextmanager
def served(path: Path) -> Iterator[Caller]:
    """The sandbox in a process of its own."""
    command = [sys.executable, "-c", "import sandbox; sandbox.serve()"]
    port = free_port()
    environ = {"BENCH_FILE": str(path), "BENCH_PORT": str(port)}
    with process(command, path.with_name("log"), **environ):
        until(lambda: answers(port), 60)
        caller = Caller(port)
        yield caller
        caller.close()


if __name__ == "__main__":
    main()
