"""What a disk that syncs slowly accepts: `billhook serve` as shipped, beside one web process alone.

    python tests/bench/slow_disk.py [--milliseconds 200 1000] [--rounds 3] [--seconds 15] [--json FILE]

Each fsync of the processes takes so much longer, by a library that is loaded before libc (needs `cc`). 16
senders send one delivery after the other; one that is refused waits for half a second.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from measuring import BODY, HERE, at_once, options, process, save, spread

from support.examples import free_port
from support.processes import until
from support.server import is_up
from support.signing import SECRET, signed

SENDERS = 16
SLOW = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
static int slow(const char *name, int fd) {
    long ms = atol(getenv("BENCH_SYNC_MS"));
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&pause, 0);
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(fd);
}
int fsync(int fd) { return slow("fsync", fd); }
int fdatasync(int fd) { return slow("fdatasync", fd); }
"""
APP = "billhook.standalone:create_asgi_app()"
RECEIVERS = {
    "one process alone": ["gunicorn", "-c", "python:billhook.gunicorn_conf", "-w", "1", APP, "--bind"],
    "serve as shipped": ["billhook", "serve", "--bind"],
}


def main() -> None:
    """Measure and print."""
    given = options(__doc__, milliseconds=[200, 1000], rounds=3, seconds=15.0)
    measured: dict[str, list[float]] = {}
    for milliseconds in given.milliseconds:
        ratios = measured.setdefault(f"{milliseconds} ms", [])
        for number in range(given.rounds):
            accepted = {}
            for name, command in RECEIVERS.items():
                with tempfile.TemporaryDirectory() as folder:
                    statuses, slowest = measure(Path(folder), command, milliseconds, given.seconds)
                accepted[name] = statuses[200]
                refused = statuses.total() - statuses[200]
                print(
                    f"{milliseconds} ms, round {number + 1}: {name:18} accepted {statuses[200]:4} "
                    f"refused {refused:3} slowest {slowest:.2f} s",
                    flush=True,
                )
            alone, shipped = accepted.values()
            ratios.append(shipped / max(1, alone))
            save(given, measured)
        print(f"{milliseconds} ms: {spread(ratios)} of what one process accepts")


def measure(
    folder: Path, command: list[str], milliseconds: int, seconds: float
) -> tuple[Counter[int], float]:
    """Return how many answers of each status there were, and the slowest."""
    library = folder / "slow.so"
    (folder / "slow.c").write_text(SLOW)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "slow.c", "-ldl"], check=True)
    port = free_port()
    environ = {
        "BENCH_SYNC_MS": str(milliseconds),
        "LD_PRELOAD": str(library),
        "BILLHOOK_SECRETS": SECRET,
        "BILLHOOK_HANDLERS": str(HERE / "noop.py"),
        "BILLHOOK_INBOX_URL": "sqlite:///billhook.db",
        "BILLHOOK_ENGINE": "worker",
    }
    program = [sys.executable, "-m", *command, f"127.0.0.1:{port}"]
    with process(program, folder / "log", **environ):
        until(lambda: is_up(port, "/readyz", 200), 120)
        send(port, 4, milliseconds / 1000 * 30)  # each process has begun to write
        return send(port, SENDERS, seconds)


def send(port: int, senders: int, seconds: float) -> tuple[Counter[int], float]:
    """Send with so many senders for so long."""
    statuses: Counter[int] = Counter()
    slowest, lock, end = [0.0], threading.Lock(), time.monotonic() + seconds

    def work(_: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        while time.monotonic() < end:
            headers = signed(BODY, "InvoiceApproved")
            began = time.monotonic()
            connection.request("POST", "/webhooks/billing", BODY, headers)
            response = connection.getresponse()
            response.read()
            with lock:
                statuses[response.status] += 1
                slowest[0] = max(slowest[0], time.monotonic() - began)
            if response.status != 200:
                time.sleep(0.5)

    at_once(senders, work)
    return statuses, slowest[0]


if __name__ == "__main__":
    main()
