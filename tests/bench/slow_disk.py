"""What a disk that syncs slowly accepts: `billhook serve` as shipped, beside one web process alone.

    python tests/bench/slow_disk.py [--milliseconds 200 1000] [--rounds 3] [--seconds 15] [--json FILE]

Each fsync of the processes takes so much longer, by a library that is loaded before libc (needs `cc`). 16
senders send one delivery after the other; one that is refused waits for half a second.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from engines import BODY, HERE, SECRET
from load import free_port

from billhook.signing import StandardWebhooks

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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--milliseconds", type=int, nargs="+", default=[200, 1000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write each ratio there")
    options = parser.parse_args()
    measured: dict[str, list[float]] = {}
    for milliseconds in options.milliseconds:
        ratios = measured.setdefault(f"{milliseconds} ms", [])
        for number in range(options.rounds):
            accepted = {}
            for name, command in RECEIVERS.items():
                with tempfile.TemporaryDirectory() as folder:
                    statuses, slowest = measure(Path(folder), command, milliseconds, options.seconds)
                accepted[name] = statuses[200]
                refused = statuses.total() - statuses[200]
                print(
                    f"{milliseconds} ms, round {number + 1}: {name:18} accepted {statuses[200]:4} "
                    f"refused {refused:3} slowest {slowest:.2f} s",
                    flush=True,
                )
            alone, shipped = accepted.values()
            ratios.append(shipped / max(1, alone))
            if options.json:
                options.json.write_text(json.dumps(measured, indent=1) + "\n")
        spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{milliseconds} ms: {statistics.median(ratios):.2f} {spread} of what one process accepts")


def measure(
    folder: Path, command: list[str], milliseconds: int, seconds: float
) -> tuple[Counter[int], float]:
    """Return how many answers of each status there were, and the slowest."""
    library = folder / "slow.so"
    (folder / "slow.c").write_text(SLOW)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "slow.c", "-ldl"], check=True)
    port = free_port()
    environ = {
        **os.environ,
        "BENCH_SYNC_MS": str(milliseconds),
        "LD_PRELOAD": str(library),
        "BILLHOOK_SECRETS": SECRET,
        "BILLHOOK_HANDLERS": str(HERE / "noop.py"),
        "BILLHOOK_INBOX_URL": "sqlite:///billhook.db",
        "BILLHOOK_ENGINE": "worker",
    }
    program = [sys.executable, "-m", *command, f"127.0.0.1:{port}"]
    server = subprocess.Popen(
        program, cwd=folder, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while True:
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                break
            time.sleep(0.5)
        send(port, 4, milliseconds / 1000 * 30)  # each process has begun to write
        return send(port, SENDERS, seconds)
    finally:
        server.terminate()
        server.wait(120)


def send(port: int, senders: int, seconds: float) -> tuple[Counter[int], float]:
    """Send with so many senders for so long."""
    statuses: Counter[int] = Counter()
    slowest, lock, end = [0.0], threading.Lock(), time.monotonic() + seconds

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        while time.monotonic() < end:
            headers = StandardWebhooks().sign(
                BODY, SECRET, event_type="InvoiceApproved", now=datetime.now(UTC)
            )
            began = time.monotonic()
            connection.request(
                "POST", "/webhooks/billing", BODY, {**headers, "X-Webhook-Type": "InvoiceApproved"}
            )
            response = connection.getresponse()
            response.read()
            with lock:
                statuses[response.status] += 1
                slowest[0] = max(slowest[0], time.monotonic() - began)
            if response.status != 200:
                time.sleep(0.5)

    threads = [threading.Thread(target=work) for _ in range(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses, slowest[0]


if __name__ == "__main__":
    main()
