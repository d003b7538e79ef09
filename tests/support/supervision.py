"""A supervisor in the test's own process, driven step by step."""

from __future__ import annotations

import os
import signal
import threading
import time

from billhook.cli.supervisor import Supervisor
from support.processes import until


def supervise(roles, *, signals=(), messages=None, trial=None):
    """The exit code, and the seconds it took from the first signal on; signals are (seconds, number)."""
    tell = (messages if messages is not None else []).append
    with Supervisor(roles, log=tell, trial=trial) as supervisor:
        timers = [threading.Timer(after, os.kill, (os.getpid(), number)) for after, number in signals]
        for timer in timers:
            timer.start()
        began = time.monotonic()
        code = supervisor.run()
        seconds = time.monotonic() - began - (signals[0][0] if signals else 0)
        for timer in timers:
            timer.join()
    return code, seconds


def drive(*steps):
    """A thread that does one step after another once its condition holds; then asks us to end."""

    def run():
        try:
            for condition, act in steps:
                until(condition, 30)
                act()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=run)
    thread.start()
    return thread
