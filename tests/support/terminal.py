"""A terminal with a shell in it, typed into as a person does; what it showed is kept."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PROMPT = "$ "


def _take_terminal() -> None:
    """Make the terminal the one that controls the shell, for Ctrl-C."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """Bash on a terminal of its own."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.shown = ""
        self._screen, inside = pty.openpty()
        # PS1 is set by venv's activate too, which puts its name before it.
        environment = {**environment, "PS1": _PROMPT, "TERM": "dumb"}
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "--noediting", "-i"],
            cwd=folder, env=environment, stdin=inside, stdout=inside, stderr=inside,
            start_new_session=True, preexec_fn=_take_terminal,
        )  # fmt: skip
        os.close(inside)
        self.wait_for(re.escape(_PROMPT), 30)

    def type(self, lines: str, until: str = re.escape(_PROMPT) + "$", seconds: float = 30) -> str:
        """Type lines, and return what is shown until a pattern matches, or else until the next prompt."""
        shown = ""
        for line in lines.strip().splitlines():
            os.write(self._screen, line.encode() + b"\n")
            # The line itself is shown too, and has to be over before a prompt counts.
            shown += self.wait_for(r"\n", 30) + self.wait_for(until, seconds)
        return shown

    def interrupt(self) -> None:
        """Press Ctrl-C, and wait for the prompt."""
        os.write(self._screen, b"\x03")
        self.wait_for(re.escape(_PROMPT) + "$", 60)

    def wait_for(self, pattern: str, seconds: float) -> str:
        """Return what is shown from now on, until it has the pattern."""
        new, end = "", time.monotonic() + seconds
        one_by_one = pattern == r"\n"  # so that what follows is left for the next call
        while not re.search(pattern, new):
            ready, _, _ = select.select([self._screen], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{self.name} did not show {pattern!r} within {seconds:.0f} s:\n{self.shown}"
            part = os.read(self._screen, 1 if one_by_one else 65_536).decode(errors="replace")
            new += part
            self.shown += part
        return new

    def close(self) -> None:
        """End the shell and what runs in it."""
        os.close(self._screen)  # a hang-up
        try:
            self._shell.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._shell.pid, signal.SIGKILL)
            self._shell.wait(5)


@contextmanager
def terminal(name: str, folder: Path, environment: dict[str, str]) -> Iterator[Terminal]:
    """A terminal while the block runs."""
    opened = Terminal(name, folder, environment)
    try:
        yield opened
    finally:
        opened.close()
