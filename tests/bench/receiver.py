"""Throughput and latency of a durable accept, beside a bare Flask view and a receiver written by hand.

    python tests/bench/receiver.py [--rounds 5] [--seconds 6] [--connections 32 512] [--json FILE]

Each round measures every receiver once, in turn, under gunicorn with 2 processes and its defaults: the bare
view, the one by hand and billhook's blueprint in 16 threads each, the blueprint under gevent, and billhook's
standalone receiver on an event loop, as installed and with the extra `fast`; that one also beside handlers
that do nothing. `wrk` sends deliveries that are each signed and each new. SQLite, and PostgreSQL when
BILLHOOK_TEST_POSTGRES_URL is set.
Printed are medians with their spread, and ratios taken within a round, so that a noisy machine spoils little.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from engines import postgres, worker_beside
from load import Requests, cpu_seconds, gunicorn, server_seconds
from sqlalchemy import func, select

from billhook.inbox import Inbox
from billhook.inbox.schema import run

THREADS = ("-k", "gthread", "--threads", "16")
LOOP = ("-k", "billhook.gunicorn_worker.AsgiWorker", "--asgi-loop", "asyncio", "--http-parser", "python")
FAST_LOOP = ("-k", "billhook.gunicorn_worker.AsgiWorker", "--asgi-loop", "uvloop", "--http-parser", "fast")
BARE, BY_HAND, ALONE = "bare view", "by hand", "standalone[fast]"
Figures = dict[str, float]


class Receiver(NamedTuple):
    """A factory of apps.py, how gunicorn serves it, what handles its deliveries, where they are stored."""

    factory: str
    flags: tuple[str, ...]
    handled_by: str = ""
    postgresql: bool = False


RECEIVERS = {
    BARE: Receiver("bare", THREADS),
    BY_HAND: Receiver("by_hand", THREADS),
    "without Flask, gthread": Receiver("threads_floor", THREADS),
    "blueprint": Receiver("durable", THREADS),
    "blueprint, gevent": Receiver("durable", ("-k", "gevent")),
    "standalone": Receiver("durable_asgi", LOOP),
    ALONE: Receiver("durable_asgi", FAST_LOOP),
    "with engine thread": Receiver("durable_asgi", FAST_LOOP, handled_by="thread"),
    "with engine worker": Receiver("durable_asgi", FAST_LOOP, handled_by="worker"),
    "standalone, PostgreSQL": Receiver("durable_asgi", LOOP, postgresql=True),
    "standalone[fast], PostgreSQL": Receiver("durable_asgi", FAST_LOOP, postgresql=True),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--connections", type=int, nargs="+", default=[32])
    parser.add_argument("--only", nargs="+", choices=RECEIVERS, metavar="NAME", help="measure these alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write each measurement there")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("this benchmark loads with wrk: apt-get install wrk")
    names = options.only or RECEIVERS
    on_postgresql = "BILLHOOK_TEST_POSTGRES_URL" in os.environ
    chosen = {
        name: one for name, one in RECEIVERS.items() if name in names and on_postgresql >= one.postgresql
    }
    results: dict[int, dict[str, list[Figures]]] = {}
    for number in range(options.rounds):
        for connections in options.connections:
            for name, receiver in chosen.items():
                figures = measure(receiver, connections, options.seconds)
                results.setdefault(connections, {}).setdefault(name, []).append(figures)
                print(
                    f"round {number + 1}, {connections} connections: {name:28} {_line(figures)}", flush=True
                )
                if options.json:
                    options.json.write_text(json.dumps(results, indent=1) + "\n")
    for connections, measured in results.items():
        print(f"\n{connections} connections\n")
        report(measured)


def measure(receiver: Receiver, connections: int, seconds: int) -> Figures:
    """Load one receiver for some seconds."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = f"sqlite:///{folder / 'inbox.db'}"
        if receiver.postgresql:
            url = stack.enter_context(postgres(folder))
        inbox = Inbox(url)
        inbox.upgrade() if receiver.postgresql else inbox.prepare()
        environment = {"BENCH_FOLDER": str(folder), "BENCH_INBOX_URL": url}
        if receiver.handled_by == "worker":
            stack.enter_context(worker_beside(folder, url))
        elif receiver.handled_by:
            environment["BENCH_ENGINE"] = receiver.handled_by
        requests = Requests(folder, 20_000 * (seconds + 1))
        with gunicorn(receiver.factory, receiver.flags, environment) as (address, master):
            requests.send(address, connections, 1, skip=0)
            before, server_before, handled = cpu_seconds(master), server_seconds("postgres"), _handled(inbox)
            figures = requests.send(address, connections, seconds, skip=20_000)
            figures["cpu_us"] = (cpu_seconds(master) - before) * 1e6 / figures["requests"]
            if receiver.postgresql:
                server_cpu = server_seconds("postgres") - server_before
                figures["server_cpu_us"] = server_cpu * 1e6 / figures["requests"]
            figures["handled"] = (_handled(inbox) - handled) / figures["requests"]
        inbox.close()
        return figures


def _handled(inbox: Inbox) -> int:
    with inbox.database.read() as connection:
        found = connection.execute(select(func.count()).select_from(run).where(run.c.state == "succeeded"))
        return int(found.scalar_one())


def table(measured: dict[str, list[Figures]]) -> str:
    """Return the figures in Markdown: medians and spreads, and ratios within a round to the bare view."""
    lines = ["| receiver | deliveries/s | of bare | p99, ms | of bare | CPU, µs | of bare |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for name, rounds in measured.items():
        cells = []
        for key, places in (("rate", 0), ("p99_ms", 1), ("cpu_us", 0)):
            cells.append(_spread([one[key] for one in rounds], places))
            cells.append(_ratio(measured, name, BARE, key) if BARE in measured and name != BARE else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def report(measured: dict[str, list[Figures]]) -> None:
    """Print the table, and what is not in it."""
    print(f"{table(measured)}\n")
    for name, rounds in measured.items():
        if BY_HAND in measured and name not in (BARE, BY_HAND):
            rate, p99 = (_ratio(measured, name, BY_HAND, key) for key in ("rate", "p99_ms"))
            print(f"{name} beside the one by hand: {rate} of its throughput, {p99} of its p99")
        if RECEIVERS[name].handled_by:
            share = _spread([one["handled"] for one in rounds], 2)
            print(f"{name}: handled by the end: {share} of what was accepted")
            if ALONE in measured:
                print(f"{name}: {_ratio(measured, name, ALONE, 'rate')} of the throughput of {ALONE}")


def _ratio(measured: dict[str, list[Figures]], ours: str, other: str, key: str) -> str:
    return _spread([a[key] / b[key] for a, b in zip(measured[ours], measured[other], strict=True)], 2)


def _spread(figures: list[float], places: int) -> str:
    middle, least, most = statistics.median(figures), min(figures), max(figures)
    return f"{middle:,.{places}f} ({least:,.{places}f} to {most:,.{places}f})"


def _line(figures: Figures) -> str:
    return (
        f"{figures['rate']:7.0f}/s  p50 {figures['p50_ms']:6.1f} ms  p99 {figures['p99_ms']:6.1f} ms  "
        f"CPU {figures['cpu_us']:4.0f} us  errors {figures['errors']:.0f}  handled {figures['handled']:.2f}"
    )


if __name__ == "__main__":
    main()
