"""The processes of a served receiver: how they are called, tied to this one, and stopped."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

__all__ = [
    "exit_code",
    "spawn",
    "spawn_worker",
    "stop",
    "stop_all",
    "trial_command",
    "web_command",
    "worker_command",
]

_PR_SET_PDEATHSIG = 1


def web_command(bind: str, workers: int, threads: int) -> list[str]:
    """gunicorn with the settings that the package ships."""
    command = [sys.executable, "-P", "-m", "gunicorn", "--config", "python:billhook.gunicorn_conf"]
    command += ["--bind", bind, "--workers", str(workers), "--threads", str(threads)]
    return [*command, "billhook.standalone:create_app()"]


def worker_command(threads: int, grace_seconds: float, *, flask: Sequence[str] | None = None) -> list[str]:
    """`billhook worker` for a parent that starts it again; its handlers come from the environment.

    `flask` is what stands between `flask` and `billhook` for an app of the user's own.
    """
    program = ["billhook"] if flask is None else ["flask", *flask, "billhook"]
    command = [sys.executable, "-P", "-m", *program, "worker", "--watched"]
    return [*command, "--threads", str(threads), "--grace", f"{grace_seconds:g}"]


def trial_command() -> list[str]:
    """Loads the handlers of the environment as `serve` does, and ends: with 0 if that can be done."""
    return [sys.executable, "-P", "-m", "billhook", "handlers", "--json"]


def spawn(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    output: IO[bytes] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
    silent: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a child in a process group of its own; on Linux it is told to end when this process dies.

    `silent`: only its errors are shown.
    Its own group, because Ctrl-C goes to a whole group at once, and the order of stopping is ours to keep.
    Call from the main thread: the kernel ties the child to the thread that made it.
    """
    return subprocess.Popen(  # noqa: S603 - our own interpreter and modules
        command,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if silent else output,
        stderr=output,
        cwd=cwd,
        pass_fds=pass_fds,
        process_group=0,
        preexec_fn=_tie_to_parent(),  # two system calls, and no lock is taken in it
    )


def spawn_worker(
    command: Sequence[str], environ: Mapping[str, str], heartbeats: int
) -> subprocess.Popen[bytes]:
    """Start a worker that writes its heartbeats into the pipe of this descriptor."""
    return spawn([*command, "--heartbeats", str(heartbeats)], environ, pass_fds=(heartbeats,))


def stop(process: subprocess.Popen[bytes], grace_seconds: float) -> int:
    """Ask it to end, and kill it when the grace is over; returns its exit code as a shell tells it."""
    stop_all([process], grace_seconds)
    return exit_code(process)


def stop_all(processes: Sequence[subprocess.Popen[bytes]], grace_seconds: float) -> None:
    """Ask all of them to end at the same time, and kill those that are there when the grace is over."""
    end = time.monotonic() + grace_seconds
    for process in processes:
        process.send_signal(signal.SIGTERM)  # nothing happens if it has ended already
    for process in processes:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
    for process in processes:
        process.wait()


def exit_code(process: subprocess.Popen[bytes]) -> int:
    """128 + N for an end by signal N."""
    code = process.returncode
    return 128 - code if code < 0 else code


def _tie_to_parent() -> Callable[[], None] | None:
    """What the child runs before it becomes its program; None where the system has no such tie."""
    if not sys.platform.startswith("linux"):
        return None
    parent = os.getpid()
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the tie held
            os._exit(1)

    return tie
