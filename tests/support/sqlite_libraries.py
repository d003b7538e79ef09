"""Processes that open an inbox with one SQLite library or the other: Python's own, or pysqlite3."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from billhook.inbox.sqlite.library import sqlite3
from support.postgres import unavailable

HIDING = str(Path(__file__).with_name("without_pysqlite3"))
TESTS = str(Path(__file__).parents[1])
OTHER = "sqlite3" if sqlite3.__name__.startswith("pysqlite3") else "pysqlite3"
"""The library that the tests of this process do not use."""


def using(library: str) -> dict[str, str]:
    """The environment of a process whose inbox uses this library; skips where it is not installed."""
    path = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one not in (HIDING, "")]
    if library == "sqlite3":
        path.insert(0, HIDING)
    elif PathFinder.find_spec("pysqlite3", [one for one in sys.path if one != HIDING]) is None:
        unavailable("pysqlite3 is not installed")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("BILLHOOK_", "PYTEST_"))}
    return {**kept, "PYTHONPATH": os.pathsep.join([*path, TESTS])}
