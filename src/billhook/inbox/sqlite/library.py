"""The one SQLite library of this process, as `sqlite3`: pysqlite3 where it is installed, else Python's own.

The wheel of pysqlite3 has a newer SQLite than most systems. An inbox must never be open in both at a time:
when a process closes any descriptor of a file, the kernel drops all POSIX locks that it has on it. A library
waits with that for its own connections and knows nothing of the other's, whose locks are gone; another
process may then remove the log that is still written to. So nothing else in billhook imports either, and
SQLAlchemy is given this one; the sandbox, which has a file of its own, leaves the choice to SQLAlchemy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # pysqlite3 has the same interface, and no types
    import sqlite3
else:
    try:
        from pysqlite3 import dbapi2 as sqlite3
    except ImportError:
        import sqlite3

__all__ = ["sqlite3"]
