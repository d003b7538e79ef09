"""`billhook db`: the inbox's schema."""

from __future__ import annotations

import click

from billhook.cli.output import print_json
from billhook.cli.params import as_json
from billhook.cli.where import open_inbox

__all__ = ["db"]


@click.group()
def db() -> None:
    """Look at the inbox's schema, and bring it up to date."""


@db.command()
def upgrade() -> None:
    """Bring the inbox's schema to the version that this billhook needs.

    Safe to run twice, and from several machines at once. Standalone it needs no secrets.

    \b
    Example:
      BILLHOOK_INBOX_URL=sqlite:////srv/billing/billhook.db billhook db upgrade
    """
    from billhook.inbox.admin import revision

    with open_inbox() as inbox:
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

    with open_inbox() as inbox:
        found = revision(inbox)
    if as_json:
        print_json({"found": found, "needed": REVISION})
        return
    remedy = "" if found == REVISION else ": run `billhook db upgrade`"
    if found is not None and found > REVISION:
        remedy = ": it is newer than this billhook, upgrade the package"
    click.echo(f"schema {found or 'none'}, this billhook needs {REVISION}{remedy}")
