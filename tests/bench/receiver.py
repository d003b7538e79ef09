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

import contextlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from engines import worker_beside
from load import Requests, cpu_seconds, gunicorn, server_seconds
from measuring import count_succeeded, inbox_at, options, places, ratios, save, spread

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
    given = options(__doc__, rounds=5, seconds=6, connections=[32], only=list(RECEIVERS))
    if shutil.which("wrk") is None:
        sys.exit("this benchmark loads with wrk: apt-get install wrk")
    chosen = [name for name in given.only if "postgresql" in places() or not RECEIVERS[name].postgresql]
    results: dict[int, dict[str, list[Figures]]] = {}
    for number in range(given.rounds):
        for connections in given.connections:
            for name in chosen:
                figures = measure(RECEIVERS[name], connections, given.seconds)
                results.setdefault(connections, {}).setdefault(name, []).append(figures)
                print(
                    f"round {number + 1}, {connections} connections: {name:28} {_line(figures)}", flush=True
                )
                save(given, results)
    for connections, measured in results.items():
        print(f"\n{connections} connections\n")
        report(measured)


def measure(receiver: Receiver, connections: int, seconds: int) -> Figures:
    """Load one receiver for some seconds."""
    place = places()["postgresql" if receiver.postgresql else "sqlite"]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        inbox, url = stack.enter_context(inbox_at(place))
        environment = {"BENCH_FOLDER": str(folder), "BENCH_INBOX_URL": url}
        if receiver.handled_by == "worker":
            stack.enter_context(worker_beside(folder, url))
        elif receiver.handled_by:
            environment["BENCH_ENGINE"] = receiver.handled_by
        requests = Requests(folder, 20_000 * (seconds + 1))
        serving = gunicorn(receiver.factory, receiver.flags, folder, **environment)
        address, master = stack.enter_context(serving)
        requests.send(address, connections, 1, skip=0)
        before = cpu_seconds(master), server_seconds("postgres"), count_succeeded(inbox)
        figures = requests.send(address, connections, seconds, skip=20_000)
        after = cpu_seconds(master), server_seconds("postgres"), count_succeeded(inbox)
        own, servers, handled = (
            (new - old) / figures["requests"] for old, new in zip(before, after, strict=True)
        )
        figures["cpu_us"] = own * 1e6
        if receiver.postgresql:
            figures["server_cpu_us"] = servers * 1e6
        return {**figures, "handled": handled}


def table(measured: dict[str, list[Figures]]) -> str:
    """Return the figures in Markdown: medians and spreads, and ratios within a round to the bare view."""
    lines = ["| receiver | deliveries/s | of bare | p99, ms | of bare | CPU, µs | of bare |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for name, rounds in measured.items():
        cells = []
        for key, digits in (("rate", 0), ("p99_ms", 1), ("cpu_us", 0)):
            cells.append(spread([one[key] for one in rounds], digits))
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
            share = spread([one["handled"] for one in rounds], 2)
            print(f"{name}: handled by the end: {share} of what was accepted")
            if ALONE in measured:
                print(f"{name}: {_ratio(measured, name, ALONE, 'rate')} of the throughput of {ALONE}")


def _ratio(measured: dict[str, list[Figures]], ours: str, other: str, key: str) -> str:
    pair = ([one[key] for one in measured[name]] for name in (ours, other))
    return spread(ratios(*pair))


def _line(figures: Figures) -> str:
    return (
        f"{figures['rate']:7.0f}/s  p50 {figures['p50_ms']:6.1f} ms  p99 {figures['p99_ms']:6.1f} ms  "
        f"CPU {figures['cpu_us']:4.0f} us  errors {figures['errors']:.0f}  handled {figures['handled']:.2f}"
    )


if __name__ == "__main__":
    main()
