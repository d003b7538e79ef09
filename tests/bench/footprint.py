"""What `billhook serve` takes beside CPU: connections to PostgreSQL, memory, bytes a delivery.

    python tests/bench/footprint.py [--seconds 10] [--connections 512] [--json FILE]

Serves a handler that does nothing with two web processes and one worker, on SQLite and, where
BILLHOOK_TEST_POSTGRES_URL is set, in a database of its own there, and loads it with wrk. Connections are
those that the server shows, at rest and the most under load; memory is the proportional share (PSS) of each
process after it. Bytes are those of deliveries and runs with their indexes (SQLite: of the file), once all
are handled; on PostgreSQL also once they are packed by VACUUM FULL.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from load import Requests
from measuring import DATABASES, HERE, SERVER, count_succeeded, inbox_at, options, places, process, save
from size import size_of
from sqlalchemy import text

from billhook.inbox import Inbox
from support.examples import free_port
from support.inbox_view import change, place_of
from support.postgres import fresh_database
from support.processes import descendants, until
from support.server import is_up
from support.signing import SECRET

Figures = dict[str, float | list[float]]


def main() -> None:
    """Measure and print."""
    given = options(__doc__, seconds=10, connections=512, only=DATABASES)
    if shutil.which("wrk") is None:
        sys.exit("this benchmark loads with wrk: apt-get install wrk")
    figures: dict[str, Figures] = {}
    found = places(given.only)
    if SERVER and "postgresql" in found:  # where no other session is
        found["postgresql"] = lambda _: fresh_database(SERVER)
    for name, place in found.items():
        with inbox_at(place) as (inbox, url):
            figures[name] = measure(inbox, url, given.connections, given.seconds)
        print(f"{name}: {', '.join(f'{what} {value}' for what, value in figures[name].items())}", flush=True)
    save(given, figures)


def measure(inbox: Inbox, url: str, connections: int, seconds: int) -> Figures:
    """Load `billhook serve` for some seconds."""
    port = free_port()
    command = [sys.executable, "-m", "billhook", "serve", HERE / "noop.py", "--bind", f"127.0.0.1:{port}"]
    environ = {"BILLHOOK_INBOX_URL": url, "BILLHOOK_SECRETS": SECRET}
    with tempfile.TemporaryDirectory() as folder:
        requests = Requests(Path(folder), 20_000 * seconds)
        with process(command, Path(folder) / "serve.log", **environ) as server:
            until(lambda: is_up(port, "/"), 60)
            time.sleep(3)
            at_rest, most = sessions(inbox), 0
            loading = threading.Thread(
                target=requests.send,
                args=(f"http://127.0.0.1:{port}", connections, seconds),
                kwargs={"skip": 0},
            )
            loading.start()
            while loading.is_alive():
                most = max(most, sessions(inbox))
                time.sleep(0.1)
            until(lambda: unfinished(inbox) == 0, 600, 0.2)
            memory = sorted(proportional_mb(pid) for pid in {server.pid, *descendants(server.pid)})
    deliveries, size = count_succeeded(inbox), size_of(inbox)
    if schema := inbox.database.schema:
        change(place_of(url), f"VACUUM FULL {schema}.delivery, {schema}.run")
    return {
        "deliveries": deliveries,
        "bytes each": round(size / deliveries),
        "packed": round(size_of(inbox) / deliveries),
        "MB of each process": memory,
        "connections at rest": at_rest,
        "connections under load": most,
    }


def sessions(inbox: Inbox) -> int:
    """Count the sessions of all processes of billhook but this one; 0 on SQLite."""
    if not inbox.database.schema:
        return 0
    shown = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with inbox.database.read() as connection:
        return int(connection.execute(text(shown)).scalar_one())


def unfinished(inbox: Inbox) -> int:
    """Count the deliveries that are not handled yet."""
    with inbox.database.read() as connection:
        counted = text("SELECT count(*) FROM delivery WHERE state IN ('received', 'planned')")
        return int(connection.execute(counted).scalar_one())


def proportional_mb(pid: int) -> float:
    """Return a process's memory, with its share of what it has in common with others."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return round(sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000)


if __name__ == "__main__":
    main()
