"""What it costs a delivery that a web process without a worker looks for issues: p99 with and without it.

    python tests/bench/web_watch.py [--rounds 3] [--seconds 60]

`billhook serve` with two web processes and no worker: nobody else looks, so a web process does, once in 45 s.
wrk loads it with 4 connections, so that neither the disk nor a core is at its limit. Needs `wrk`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from load import Requests, gunicorn
from receiver import FAST_LOOP

from billhook.inbox import Inbox
from billhook.inbox.notifications import looked_at

CONNECTIONS = 4
MOST_A_SECOND = 6_000


def main() -> None:
    """Measure in turn, and print the medians and the ratio within a round."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    rounds = []
    for number in range(options.rounds):
        rounds.append({name: measure(name, options.seconds) for name in (("off", "on") if number % 2 else ("on", "off"))})
        print(f"round {number + 1}: {rounds[-1]}", flush=True)
    for key in ("rate", "p50_ms", "p99_ms"):
        ratios = sorted(one["on"][key] / one["off"][key] for one in rounds)
        median = statistics.median(ratios)
        print(f"{key} with looks, of that without: {median:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


def measure(watch: str, seconds: int) -> dict[str, float]:
    """Load the receiver for some seconds, its watch `on` or `off`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inbox = Inbox(f"sqlite:///{folder / 'inbox.db'}")
        inbox.prepare()
        began = looked_at(inbox)
        requests = Requests(folder, MOST_A_SECOND * seconds)
        with gunicorn("durable_asgi", FAST_LOOP, {"BENCH_FOLDER": name, "BENCH_WATCH": watch}) as (url, _):
            figures = requests.send(url, CONNECTIONS, seconds, skip=0)
        assert (looked_at(inbox) > began) == (watch == "on")
        inbox.close()
        return figures


if __name__ == "__main__":
    main()
