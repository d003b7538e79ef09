"""What it costs a delivery that a web process looks for issues because no worker does: p99 with and without.

    python tests/bench/web_watch.py [--rounds 4] [--seconds 40]

Two web processes and no worker: one of them looks, after 30 s and then every ten. wrk loads them with 4
connections, so that neither the disk nor a core is at its limit. Needs `wrk`.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from load import Requests, gunicorn
from measuring import inbox_at, options, ratios, save, spread, sqlite
from receiver import FAST_LOOP

from billhook.inbox.watching.notifications import looked_at

CONNECTIONS = 4
MOST_A_SECOND = 6_000


def main() -> None:
    """Measure in turn, the other one first in every second round, and print the ratios within a round."""
    given = options(__doc__, rounds=4, seconds=40)
    rounds = []
    for number in range(given.rounds):
        order = ("off", "on") if number % 2 else ("on", "off")
        rounds.append({watch: measure(watch, given.seconds) for watch in order})
        print(f"round {number + 1}: {rounds[-1]}", flush=True)
    save(given, rounds)
    for key in ("rate", "p50_ms", "p99_ms"):
        on, off = ([one[watch][key] for one in rounds] for watch in ("on", "off"))
        middles = f"{statistics.median(on):,.1f} and {statistics.median(off):,.1f}"
        print(f"{key} with looks and without: {middles}, ratio {spread(ratios(on, off))}")


def measure(watch: str, seconds: int) -> dict[str, float]:
    """Load the receiver for some seconds, its watch `on` or `off`."""
    with inbox_at(sqlite) as (inbox, url), tempfile.TemporaryDirectory() as name:
        began = looked_at(inbox)
        folder = Path(name)
        requests = Requests(folder, MOST_A_SECOND * seconds)
        environment = {"BENCH_FOLDER": name, "BENCH_INBOX_URL": url, "BENCH_WATCH": watch}
        with gunicorn("durable_asgi", FAST_LOOP, folder, **environment) as (address, _):
            figures = requests.send(address, CONNECTIONS, seconds, skip=0)
        assert (looked_at(inbox) > began) == (watch == "on")
        return figures


if __name__ == "__main__":
    main()
