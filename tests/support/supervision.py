"""A supervisor in the test's own process, driven step by step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

from billhook.supervising.heartbeat import HeartbeatSender
from billhook.supervising.processes import Supervisor
from support.processes import until

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def child(code, started=None, descriptor=None, *, popen=subprocess.Popen):
    """A process that is up once it has printed a line, if it prints one; it may have the parent's memory."""
    shared = () if descriptor is None else (descriptor,)
    process = popen([sys.executable, "-c", code, *map(str, shared)], pass_fds=shared, stdout=subprocess.PIPE)
    assert process.stdout is not None
    if "print" in code:
        process.stdout.readline()
    process.stdout.close()
    if started is not None:
        started.append(process)
    return process


def supervisor_of(children, messages=None, **more):
    log = (messages if messages is not None else []).append
    usual = {"heartbeat": HeartbeatSender({}), "lease_seconds": 0.1, "log": log}
    return Supervisor(children=children, **usual | more)


def supervise(children, *, signals=(), steps=(), messages=None, **more):
    """The exit code, and the seconds it took from the first signal on; signals are (seconds, number).

    A step is a condition, and what is done once it holds. After the last one the supervisor is asked to end.
    """
    supervisor = supervisor_of(children, messages, **more)
    timers = [threading.Timer(after, os.kill, (os.getpid(), number)) for after, number in signals]
    timers += [threading.Thread(target=_drive, args=(steps,))] if steps else []
    before = {number: signal.getsignal(number) for number in HANDLED}
    for timer in timers:
        timer.start()
    began = time.monotonic()
    try:
        code = supervisor.run()
        seconds = time.monotonic() - began - (signals[0][0] if signals else 0)
        for timer in timers:
            timer.join()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code, seconds


def _drive(steps):
    try:
        for condition, *acts in steps:
            until(condition, 30)
            for act in acts:
                act()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
