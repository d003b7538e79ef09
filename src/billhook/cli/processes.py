"""Child processes: their commands, how they are tied to this process, and how they are stopped."""

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


def web_command(bind: str, workers: int, threads: int | None = None) -> list[str]:
    """Return the command of gunicorn with the settings that the package ships.

    Each of `threads` takes one request at a time; without it, an event loop takes them all.
    """
    # The gunicorn of this interpreter, not one that PATH finds; -P keeps the current folder off sys.path,
    # where a file of the user's named gunicorn.py or flask.py would be imported instead.
    command = [sys.executable, "-P", "-m", "gunicorn", "--config", "python:billhook.gunicorn_conf"]
    command += ["--bind", bind, "--workers", str(workers)]
    if threads is not None:
        # Fewer connections than the configuration allows: gthread ends a process that runs out of files.
        command += ["--worker-class", "gthread", "--threads", str(threads), "--worker-connections", "1000"]
        return [*command, "billhook.standalone:create_app()"]
    return [*command, "billhook.standalone:create_asgi_app()"]


def worker_command(threads: int, grace_seconds: float, *, flask: Sequence[str] | None = None) -> list[str]:
    """Return the command of a supervised worker; its handlers come from the environment.

    `flask` has the arguments between `flask` and `billhook`, for a worker of the user's own app.
    """
    program = ["billhook"] if flask is None else ["flask", *flask, "billhook"]
    command = [sys.executable, "-P", "-m", *program, "worker", "--watched"]
    return [*command, "--threads", str(threads), "--grace", f"{grace_seconds:g}"]


def trial_command() -> list[str]:
    """Return a command that only loads the handlers of the environment: it exits with 0 if it can."""
    # `handlers` builds no inbox and starts no thread, so the trial disturbs nothing.
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
    """Start a child; on Linux it gets SIGTERM when this process dies. `silent` shows only its errors.

    Call from the main thread: the kernel ties the child to the thread that created it.
    """
    return subprocess.Popen(  # noqa: S603 - this interpreter and the package's modules
        command,
        env=dict(environ),
        stdin=subprocess.DEVNULL,  # reading the terminal would stop a background group: SIGTTIN
        stdout=subprocess.DEVNULL if silent else output,
        stderr=output,
        cwd=cwd,
        pass_fds=pass_fds,
        # A group of its own: Ctrl-C signals a whole group, but children are stopped in order.
        process_group=0,
        preexec_fn=_tie_to_parent(),  # two system calls that take no lock
    )


def spawn_worker(
    command: Sequence[str], environ: Mapping[str, str], heartbeats: int
) -> subprocess.Popen[bytes]:
    """Start a worker that writes its heartbeats to the pipe with this descriptor."""
    return spawn([*command, "--heartbeats", str(heartbeats)], environ, pass_fds=(heartbeats,))


def stop(process: subprocess.Popen[bytes], grace_seconds: float) -> int:
    """Terminate a process, kill it after the grace period; return its exit code as a shell shows it."""
    stop_all([process], grace_seconds)
    return exit_code(process)


def stop_all(processes: Sequence[subprocess.Popen[bytes]], grace_seconds: float) -> None:
    """Terminate all processes at the same time; kill those that remain after the grace period."""
    end = time.monotonic() + grace_seconds
    for process in processes:
        process.send_signal(signal.SIGTERM)  # does nothing if it has exited already
    # One after another, but with one common end: together they wait no longer than the grace period.
    for process in processes:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
    for process in processes:
        process.wait()  # reaps those that were killed: none may stay behind as a zombie


def exit_code(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process; 128 + N for an end by signal N."""
    code = process.returncode
    return 128 - code if code < 0 else code


def _tie_to_parent() -> Callable[[], None] | None:
    """Return what the child runs before its program; None if the system cannot tie it to its parent."""
    if not sys.platform.startswith("linux"):
        return None
    # All that can allocate, import or lock is done before the fork: another thread may hold such a lock at
    # that moment, and in the child it would never be released.
    parent = os.getpid()
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent died before the tie was in place
            os._exit(1)

    return tie
