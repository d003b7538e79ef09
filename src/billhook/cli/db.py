"""`billhook db`: the inbox's schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from billhook.cli.output import print_json
from billhook.cli.params import as_json
from billhook.cli.where import is_missing, open_inbox

if TYPE_CHECKING:
    from billhook.inbox import Inbox

__all__ = ["db"]


@contextmanager
def _inbox_of_any_age() -> Iterator[Inbox]:
    """The inbox, of an app too that refuses to start with it as it is."""
    from billhook.inbox.migrate import any_schema

    token = any_schema.set(True)
    try:
        with open_inbox() as inbox:
            yield inbox
    finally:
        any_schema.reset(token)


@click.group()
def db() -> None:
    """Look at the inbox's schema, and bring it up to date."""


@db.command()
def upgrade() -> None:
    """Bring the inbox's schema to the version that this billhook needs.

    Safe to run twice, and from several machines at once. Standalone it needs no secrets.

    \b
    Examples:
      BILLHOOK_INBOX_URL=postgresql+psycopg://billing@db/billing billhook db upgrade
      flask --app myshop billhook db upgrade
    """
    from billhook.inbox.admin import revision

    with _inbox_of_any_age() as inbox:
        if is_missing(inbox):  # an app's, which makes its file when it starts
            before = None
            inbox.database.prepare()
        else:
            before = revision(inbox)
            inbox.upgrade()
        after = revision(inbox)
    click.echo(
        f"schema {after}: nothing to do" if before == after else f"schema {before or 'none'} -> {after}"
    )


@db.command()
@as_json
def current(as_json: bool) -> None:
    """Show the schema's version, and the one that this billhook needs.

    \b
    Example:
      billhook db current --json
    """
    from billhook.inbox.admin import revision
    from billhook.inbox.schema import REVISION

    with _inbox_of_any_age() as inbox:
        found = None if is_missing(inbox) else revision(inbox)
    if as_json:
        print_json({"found": found, "needed": REVISION})
        return
    remedy = "" if found == REVISION else ": run `billhook db upgrade`"
    if found is not None and found > REVISION:
        remedy = ": it is newer than this billhook, upgrade the package"
    click.echo(f"schema {found or 'none'}, this billhook needs {REVISION}{remedy}")
