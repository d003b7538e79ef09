"""How many cores, connections and bytes a number of deliveries a day takes, from the measured figures.

    python tests/bench/capacity.py

Reads figures/receiver.json and figures/workers.json, which receiver.py and engines.py have written, and
prints the table of deploy/CAPACITY.md.
"""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).parent / "figures"
PER_DAY = (1_000_000, 100_000_000, 1_000_000_000)
DAY_SECONDS = 86_400
PEAK = 10
"""The busiest second, as a multiple of the mean: a month's end is not spread over the day."""
LOAD = 0.5
"""How busy a core is planned to be at the peak."""
CONNECTIONS = "512"
"""The measurement that is used: many connections, as at a peak."""
BYTES = 1_130
"""Disk for a delivery with one run on PostgreSQL, with indexes, 260 bytes of headers and 54 of body: 940
packed (footprint.py), and a fifth more, which autovacuum leaves to be used again."""
KEPT_DAYS = 30
"""The default of BILLHOOK_RETENTION_DAYS."""


def table() -> str:
    """Return the table in Markdown."""
    receiver = json.loads((FIGURES / "receiver.json").read_text())[CONNECTIONS]
    workers = json.loads((FIGURES / "workers.json").read_text())
    columns = (
        "deliveries a day",
        "mean, peak a second",
        "cores of receivers",
        "of PostgreSQL, to store",
        "of workers",
    )
    columns += ("waiting at the peak", "rows kept", "disk")
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    on_postgresql = receiver["standalone[fast], PostgreSQL"]
    for per_day in PER_DAY:
        mean = per_day / DAY_SECONDS
        peak = mean * PEAK
        cores = [
            _cores(peak, _median(on_postgresql, "cpu_us")),
            _cores(peak, _median(on_postgresql, "server_cpu_us")),
            # Workers may fall behind at the peak: the mean is enough.
            _cores(mean, 1e6 / statistics.median(workers["billhook postgresql"])),
        ]
        waiting = math.ceil(peak * _median(on_postgresql, "p99_ms") / 1000)
        kept = per_day * KEPT_DAYS
        lines.append(
            f"| {per_day:,} | {mean:,.0f}, {peak:,.0f} | {' | '.join(map(str, cores))} "
            f"| {waiting:,} | {kept:,} | {_size(kept * BYTES)} |"
        )
    return "\n".join(lines)


def _cores(rate: float, cpu_us: float) -> int:
    return math.ceil(rate * cpu_us / 1e6 / LOAD)


def _median(rounds: list[dict[str, Any]], key: str) -> float:
    return statistics.median(one[key] for one in rounds)


def _size(count: float) -> str:
    return f"{count / 1e9:,.0f} GB" if count < 1e12 else f"{count / 1e12:,.1f} TB"


if __name__ == "__main__":
    print(table())
