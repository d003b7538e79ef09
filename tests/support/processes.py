"""Waiting for other threads and processes, and doing work in many of them at once."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from support.timeouts import scaled


def until(condition: Callable[[], Any], seconds: float = 5.0, pause_seconds: float = 0.005) -> Any:
    """Wait for something that another thread or process brings about; returns it."""
    started = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - started
        assert waited < seconds or waited < scaled(seconds), f"not within {seconds} s"
        time.sleep(pause_seconds)
    return found


def run_command(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """What a command said as text, and its exit code, whichever that is; `options` as for subprocess.run."""
    given = {"timeout": 240, "check": False, **options}
    return subprocess.run(command, capture_output=True, text=True, **given)


def output_of(*command: str | Path, **options: Any) -> str:
    """What a command printed; it has to succeed."""
    done = run_command(command, **options)
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout[-20_000:]}{done.stderr[-5_000:]}"
    return done.stdout


def clean_environment(**options: str) -> dict[str, str]:
    """This process's environment without what would configure billhook from outside, and with `options`."""
    outside = ("BILLHOOK_", "FLASK_", "WEB_CONCURRENCY")
    return {name: text for name, text in os.environ.items() if not name.startswith(outside)} | options


def strangers_environment(**options: str) -> dict[str, str]:
    """The same, without what would tell another Python, or its programs, of ours."""
    own = ("PYTHON", "VIRTUAL_ENV", "PG")
    return {name: text for name, text in clean_environment().items() if not name.startswith(own)} | options


@contextlib.contextmanager
def logged(
    command: Sequence[str | Path],
    log: Path,
    *,
    ready: Callable[[], object] | None = None,
    seconds: float = 60,
    stop: int = signal.SIGTERM,
    grace: float = 30,
    code: int | None = None,
    **options: Any,
) -> Iterator[subprocess.Popen[bytes]]:
    """A command that adds to `log` until the block ends; it is told to stop, and killed after `grace`.

    The block begins when `ready` holds. With a `code` the command has to end in time with it after the block.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, **options)
    try:
        if ready is not None:
            until(lambda: process.poll() is not None or ready(), seconds)
            assert process.poll() is None, f"it has ended with {process.returncode}"
        yield process
        if code is not None:
            process.send_signal(stop)
            assert process.wait(scaled(grace)) == code
    except AssertionError as error:
        error.add_note(log.read_text(errors="replace")[-8_000:])
        raise
    finally:
        process.send_signal(stop)
        try:
            process.wait(scaled(grace))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if options.get("start_new_session"):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What `work(n)` gives in `count` threads that start at one moment; exceptions are results too."""
    results: list[Any] = [None] * count
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait()
        try:
            results[number] = work(number)
        except Exception as error:  # noqa: BLE001 - the caller asserts on it
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def repeated(seconds: float, *acts: Callable[[], object]) -> list[Exception]:
    """What goes wrong while each act is repeated in a thread of its own for so many seconds."""
    errors: list[Exception] = []
    end = time.monotonic() + seconds

    def repeat(act: Callable[[], object]) -> None:
        while time.monotonic() < end:
            try:
                act()
            except Exception as error:  # noqa: BLE001 - the caller asserts on it
                errors.append(error)

    together(len(acts), lambda number: repeat(acts[number]))
    return errors


@contextlib.contextmanager
def limited(which: int, limit: int) -> Iterator[None]:
    """Have the process keep to another soft limit, one of RLIMIT_, during the block."""
    before = resource.getrlimit(which)
    resource.setrlimit(which, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(which, before)


@contextlib.contextmanager
def few_descriptors(left: int = 0) -> Iterator[None]:
    """Let the process open so many files more during the block."""
    highest = max(int(one.name) for one in Path("/dev/fd").iterdir())
    # All that it may open is open: a limit alone would leave the gaps below it free.
    with limited(resource.RLIMIT_NOFILE, highest + 1 + left), contextlib.ExitStack() as fillers:
        opened = []
        with contextlib.suppress(OSError):
            while True:
                opened.append(fillers.enter_context(Path(os.devnull).open("rb")))
        for one in opened[len(opened) - left :]:
            one.close()
        yield


def _keep_coverage() -> None:
    """What a forked child ran counts too, although it leaves without saying goodbye."""
    with contextlib.suppress(ImportError):
        import coverage

        measuring = coverage.Coverage.current()
        if measuring is not None:
            measuring.stop()
            measuring.save()


def in_children(count: int, work: Callable[[int], bytes]) -> list[bytes]:
    """What `work(n)` writes in `count` forked children that run at once; an exception is its text."""
    pipes = []
    for number in range(count):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reader)
                try:
                    result = work(number)
                except BaseException as error:  # noqa: BLE001 - the child must not return into pytest
                    result = b"raised " + repr(error).encode()
                os.write(writer, result)
                _keep_coverage()
            finally:
                os._exit(0)
        os.close(writer)
        pipes.append((pid, reader))
    results = []
    for pid, reader in pipes:
        with os.fdopen(reader, "rb") as stream:
            results.append(stream.read())
        os.waitpid(pid, 0)
    return results


def children(pid: int) -> set[int]:
    """The processes that a process started."""
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def descendants(pid: int) -> set[int]:
    """The processes that a process started, and those that they did."""
    found = children(pid)
    return found.union(*(descendants(child) for child in found)) if found else found


def alive(pids: set[int]) -> set[int]:
    """Those that still run; a zombie does not."""
    found = set()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            found |= {pid} if state != "Z" else set()
    return found
