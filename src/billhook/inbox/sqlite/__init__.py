"""An inbox in a SQLite file: every commit is on the disk before it counts."""

from billhook.inbox.sqlite.database import SqliteDatabase

__all__ = ["SqliteDatabase"]
