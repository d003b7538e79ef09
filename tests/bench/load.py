"""Serve a receiver with gunicorn, load it with wrk, and read what it cost."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from measuring import BODY, process

from support.examples import free_port
from support.processes import children, until
from support.server import is_up
from support.signing import signed

WRK_THREADS = 1
PROCESSES = 2

SIGNED = ("id", "timestamp", "signature")
WRK_SCRIPT = """
local file = io.open(os.getenv("BENCH_REQUESTS"), "r")
local body = file:read("*l")
local next_line = file:lines()
wrk.method = "POST"
wrk.path = "/webhooks/billing"
wrk.body = body
request = function()
  local id, timestamp, signature = string.match(next_line() or error("out of requests"), "(%S+) (%S+) (%S+)")
  return wrk.format(nil, nil, {
    ["Content-Type"] = "application/json", ["X-Webhook-Type"] = "InvoiceApproved",
    ["webhook-id"] = id, ["webhook-timestamp"] = timestamp, ["webhook-signature"] = signature,
  })
end
done = function(summary, latency)
  io.write(string.format("RESULT %d %d %d %d %d\\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), summary.errors.status + summary.errors.timeout))
end
"""


class Requests:
    """Signed deliveries in a file, each of them sent once."""

    def __init__(self, folder: Path, count: int) -> None:
        self._part = folder / "requests"
        self._script = folder / "load.lua"
        self._script.write_text(WRK_SCRIPT)
        now = datetime.now(UTC)
        self._body = BODY.decode()
        all_headers = (signed(BODY, "InvoiceApproved", at=now) for _ in range(count))
        self._lines = [" ".join(headers[f"webhook-{name}"] for name in SIGNED) for headers in all_headers]

    def send(self, url: str, connections: int, seconds: int, *, skip: int) -> dict[str, float]:
        """Send deliveries as fast as they are answered, but not the first `skip`; returns the figures."""
        self._part.write_text("\n".join([self._body, *self._lines[skip:]]) + "\n")
        command = ["wrk", "-t", str(WRK_THREADS), "-c", str(connections), "-d", f"{seconds}s"]
        command += ["-s", str(self._script), url]
        environ = {**os.environ, "BENCH_REQUESTS": str(self._part)}
        output = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
        found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", output)
        if found is None:
            sys.exit(output)
        count, duration_us, p50, p99, errors = map(int, found.groups())
        return {
            "requests": count,
            "rate": count / duration_us * 1e6,
            "p50_ms": p50 / 1000,
            "p99_ms": p99 / 1000,
            "errors": errors,
        }


@contextlib.contextmanager
def gunicorn(
    factory: str, flags: Sequence[str], folder: Path, **environment: str
) -> Iterator[tuple[str, int]]:
    """Serve a factory of apps.py with gunicorn's defaults; yields the URL and the master's id."""
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "-w", str(PROCESSES), *flags, "--no-control-socket"]
    command += ["-b", f"127.0.0.1:{port}", f"apps:{factory}()"]
    with process(command, folder / "gunicorn.log", **environment) as server:
        until(lambda: is_up(port, "/"), 60)
        time.sleep(0.5)  # the other process
        yield f"http://127.0.0.1:{port}", server.pid


def cpu_seconds(master: int) -> float:
    """User and system time of the master's children so far."""
    return sum(map(process_seconds, children(master)))


def server_seconds(name: str) -> float:
    """User and system time so far of all processes of this name that run on this machine."""
    total = 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if (folder / "comm").read_text().strip() == name:
                total += process_seconds(folder.name)
    return total


def process_seconds(pid: int | str) -> float:
    """User and system time of one process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
