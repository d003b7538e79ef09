"""What a person types in a terminal: programs that run until Ctrl-C, and commands that end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from support.processes import logged, output_of


@contextlib.contextmanager
def terminal(commands: str, folder: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """A program that a shell runs until Ctrl-C; gives what it has said."""
    log = folder / f"{len(list(folder.glob('*.log')))}.log"
    *first, last = commands.strip().splitlines()
    shell = ["bash", "-euc", "\n".join([*first, f"exec {last}"])]
    options = {"cwd": folder, "env": {**environment, "PYTHONUNBUFFERED": "1"}}
    with logged(shell, log, stop=signal.SIGINT, **options):
        yield log


def typed(commands: str, folder: Path, environment: Mapping[str, str], seconds: float = 240) -> str:
    """What commands say, all of which have to succeed."""
    return output_of("bash", "-euc", commands, cwd=folder, env=environment, timeout=seconds)
