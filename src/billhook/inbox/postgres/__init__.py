"""An inbox in PostgreSQL: for receivers and workers on several machines."""

from billhook.inbox.postgres.database import PostgresDatabase

__all__ = ["PostgresDatabase"]
