"""Throughput and latency of a durable accept, beside a bare Flask view and a receiver written by hand.

    python tests/bench/receiver.py [--rounds 5] [--seconds 6] [--connections 32]

Each round measures every receiver once, in turn, under gunicorn with 2 processes: the bare view, the one by
hand and billhook's blueprint in 16 threads each, its standalone receiver on an event loop, as installed
and with the extra `fast`. `wrk` sends deliveries that are each signed and each new.
With BILLHOOK_TEST_POSTGRES_URL set, the standalone receiver storing there is measured too.
Printed are medians with their spread, and ratios taken within a round, so that a noisy machine spoils little.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

from billhook.events import InvoiceApproved, sample
from billhook.inbox import Inbox
from billhook.signing import StandardWebhooks

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from apps import SECRET  # noqa: E402
from engines import postgres  # noqa: E402

THREADS = ["-k", "gthread", "--threads", "16"]
LOOP = ["-k", "billhook.gunicorn_worker.AsgiWorker", "--asgi-loop", "asyncio", "--http-parser", "python"]
FAST_LOOP = ["-k", "billhook.gunicorn_worker.AsgiWorker", "--asgi-loop", "uvloop", "--http-parser", "fast"]
RECEIVERS = {
    "bare view": ("bare", THREADS),
    "by hand": ("by_hand", THREADS),
    "blueprint": ("durable", THREADS),
    "blueprint, gevent": ("durable", ["-k", "gevent"]),
    "standalone": ("durable_asgi", LOOP),
    "standalone[fast]": ("durable_asgi", FAST_LOOP),
}
"""The factory of each and how gunicorn serves it."""
ON_POSTGRESQL = "postgresql"
WRK_THREADS = 1

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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--only", help="the names of receivers to measure, separated by a semicolon")
    parser.add_argument("--json", action="store_true", help="print the raw figures instead of the table")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("this benchmark loads with wrk: apt-get install wrk")
    receivers = dict(RECEIVERS)
    if "BILLHOOK_TEST_POSTGRES_URL" in os.environ:
        receivers[ON_POSTGRESQL] = RECEIVERS["standalone"]
    if options.only:
        receivers = {name: receivers[name] for name in options.only.split(";")}
    results: dict[str, list[dict[str, float]]] = {name: [] for name in receivers}
    for number in range(options.rounds):
        for name, served in receivers.items():
            load = (options.connections, options.seconds)
            figures = measure(*served, *load, postgresql=name == ON_POSTGRESQL)
            results[name].append(figures)
            if not options.json:
                print(f"round {number + 1}: {name:16} {_line(figures)}", flush=True)
    print(json.dumps(results)) if options.json else report(results)


def measure(
    factory: str, flags: list[str], connections: int, seconds: int, *, postgresql: bool = False
) -> dict[str, float]:
    """One receiver under load for some seconds."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        more = {}
        if postgresql:
            more["BENCH_INBOX_URL"] = stack.enter_context(postgres(folder))
            inbox = Inbox(more["BENCH_INBOX_URL"])
            inbox.upgrade()
            inbox.close()
        requests, script = folder / "requests", folder / "load.lua"
        script.write_text(WRK_SCRIPT)
        _sign(requests, 20_000 * (seconds + 1))
        with _gunicorn(factory, flags, folder, more) as (url, master):
            _wrk(url, script, requests, connections, 1, skip=0)
            before = _cpu_seconds(master)
            figures = _wrk(url, script, requests, connections, seconds, skip=20_000)
            figures["cpu_us"] = (_cpu_seconds(master) - before) * 1e6 / figures["requests"]
        return figures


def report(results: dict[str, list[dict[str, float]]]) -> None:
    """The table, and the ratios that billhook promises."""
    print()
    for name, figures in results.items():
        rates, p99s, cpu = ([one[key] for one in figures] for key in ("rate", "p99_ms", "cpu_us"))
        print(
            f"{name:16} {statistics.median(rates):7.0f}/s ({min(rates):.0f} to {max(rates):.0f})   "
            f"p99 {statistics.median(p99s):6.1f} ms ({min(p99s):.1f} to {max(p99s):.1f})   "
            f"CPU {statistics.median(cpu):4.0f} us a request"
        )
    ours_of = [name for name in results if name not in ("bare view", "by hand")]
    for ours, other in product(ours_of, ("bare view", "by hand")):
        for key, label in (("rate", "throughput"), ("p99_ms", "p99"), ("cpu_us", "CPU")):
            ratios = [a[key] / b[key] for a, b in zip(results[ours], results[other], strict=True)]
            print(
                f"{ours:16} / {other:9} {label:10} {statistics.median(ratios):5.2f} "
                f"({min(ratios):.2f} to {max(ratios):.2f})"
            )


def _line(figures: dict[str, float]) -> str:
    return (
        f"{figures['rate']:7.0f}/s  p50 {figures['p50_ms']:6.1f} ms  p99 {figures['p99_ms']:6.1f} ms  "
        f"CPU {figures['cpu_us']:4.0f} us  errors {figures['errors']:.0f}"
    )


def _sign(path: Path, count: int) -> None:
    scheme, now = StandardWebhooks(), datetime.now(UTC)
    body = sample(InvoiceApproved).to_json()
    with path.open("w") as out:
        out.write(body.decode() + "\n")
        for _ in range(count):
            headers = scheme.sign(body, SECRET, event_type="InvoiceApproved", now=now)
            signature = headers["webhook-signature"]
            out.write(f"{headers['webhook-id']} {headers['webhook-timestamp']} {signature}\n")


@contextlib.contextmanager
def _gunicorn(
    factory: str, flags: list[str], folder: Path, more: dict[str, str]
) -> Iterator[tuple[str, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "gunicorn", "-w", "2", *flags]
    command += [
        "-b",
        f"127.0.0.1:{port}",
        "--no-control-socket",
        "--chdir",
        str(HERE),
        f"apps:{factory}()",
    ]
    environ = {**os.environ, "BENCH_FOLDER": str(folder), **more}
    server = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield f"http://127.0.0.1:{port}", server.pid
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(15)


def _wait_for(port: int) -> None:
    for _ in range(100):
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=1)
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            time.sleep(0.5)
            return
        time.sleep(0.1)
    sys.exit("the receiver did not start")


def _wrk(
    url: str, script: Path, requests: Path, connections: int, seconds: int, skip: int
) -> dict[str, float]:
    lines = requests.read_text().splitlines()
    part = requests.with_suffix(".part")
    part.write_text("\n".join([lines[0], *lines[1 + skip :]]) + "\n")
    command = ["wrk", "-t", str(WRK_THREADS), "-c", str(connections), "-d", f"{seconds}s", "-s", str(script)]
    environ = {**os.environ, "BENCH_REQUESTS": str(part)}
    output = subprocess.run([*command, url], env=environ, capture_output=True, text=True, check=True).stdout
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


def _cpu_seconds(master: int) -> float:
    """User and system time of the master's children so far."""
    children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    ticks = 0
    for child in children:
        fields = Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
