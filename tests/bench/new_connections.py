"""What those see whose connections are opened at once, beside each other: when is each answered first?

    python tests/bench/new_connections.py [--connections 512] [--seconds 8] [--rounds 3]

The receiver is gunicorn as `billhook serve` runs it, on asyncio's loop and on uvloop, with one process and
with two. A client on an event loop, in a process of its own, opens the connections, and sends a signed
delivery over each as soon as the last one was answered. Linux only.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from measuring import options, ratios, save, spread

from support.new_connections import Seen, new_connections
from support.server import gunicorn

DOORS = ("asgi", "asgi-fast")
CONFIGURATION = Path(__file__).parents[2] / "deploy" / "gunicorn.conf.py"


@dataclass
class Figures:
    """One receiver in one round; times in seconds."""

    door: str
    workers: int
    round: int
    first_p50: float
    first_max: float
    later_p99: float
    rate: float
    ahead: int
    """How many answers another connection had had when the last one got its first."""
    refused: int
    largest_share: float
    """The part of the connections that the process with most of them held."""

    def __str__(self) -> str:
        text = f"{self.round:5} {self.door:9} {self.workers:7} {self.first_p50:9.3f} {self.first_max:9.3f}"
        text += f" {self.later_p99:9.3f} {self.rate:6.0f} {self.ahead:5} {self.refused:7}"
        return f"{text} {self.largest_share:6.2f}"


def main() -> None:
    """Measure and print."""
    given = options(__doc__, connections=512, seconds=8.0, rounds=3, workers=[1, 2], door=list(DOORS))
    found = []
    print("round door      workers first p50 first max later p99   rate ahead refused  share")
    for number in range(1, given.rounds + 1):
        for workers in given.workers:
            for door in given.door:
                figures = measure(door, workers, number, given.connections, given.seconds)
                print(figures, flush=True)
                found.append(figures)
    for workers in given.workers:
        firsts = {
            door: [each.first_max for each in found if (each.door, each.workers) == (door, workers)]
            for door in given.door
        }
        if len(firsts) == len(DOORS):
            told = spread(ratios(*reversed(firsts.values())))
            print(f"{workers} workers: the latest first answer on uvloop is {told} of asyncio's")
    save(given, [vars(each) for each in found])


def measure(door: str, workers: int, number: int, connections: int, seconds: float) -> Figures:
    """Start a receiver and open connections to it."""
    flags = ("-c", str(CONFIGURATION))
    with (
        tempfile.TemporaryDirectory() as folder,
        gunicorn(Path(folder), *flags, workers=workers, door=door) as server,
    ):
        seen: Seen = new_connections(server.port, connections, seconds, server.pid)
    first, later = sorted(seen.first_answers), sorted(seen.later_seconds)
    return Figures(
        door=door,
        workers=workers,
        round=number,
        first_p50=statistics.median(first),
        first_max=first[-1],
        later_p99=later[int(len(later) * 0.99)],
        rate=(len(first) + len(later)) / seconds,
        ahead=seen.ahead,
        refused=seen.refused,
        largest_share=max(seen.held) / sum(seen.held),
    )


if __name__ == "__main__":
    main()
