"""`billhook db`: the inbox's schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from billhook.cli.choosing import confirm
from billhook.cli.output import print_json, progress
from billhook.cli.params import as_json
from billhook.cli.where import is_missing, open_inbox
from billhook.errors import ConfigError

if TYPE_CHECKING:
    from billhook.inbox import Inbox

__all__ = ["db"]


@contextmanager
def _inbox_of_any_age(*, missing_ok: bool = False) -> Iterator[Inbox]:
    """The inbox, of an app too that refuses to start with it as it is."""
    from billhook.inbox.migrate import any_schema

    token = any_schema.set(True)
    try:
        with open_inbox(missing_ok=missing_ok) as inbox:
            yield inbox
    finally:
        any_schema.reset(token)


@click.group()
def db() -> None:
    """Look at the inbox's schema, bring it up to date; back the inbox up, and restore it."""


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
            before = moved_from = None
            inbox.database.prepare()
        else:
            before = revision(inbox)
            moved_from = inbox.upgrade()
        after = revision(inbox)
    if moved_from is not None:
        click.echo(f"moved here from the schema {moved_from}")
    click.echo(
        f"schema {after}: nothing to do" if before == after else f"schema {before or 'none'} -> {after}"
    )


@db.command()
@as_json
def current(as_json: bool) -> None:
    """Show the schema's version, the one that this billhook needs, and where the inbox is.

    \b
    Example:
      billhook db current --json
    """
    from billhook.inbox.admin import revision
    from billhook.inbox.schema import REVISION

    with _inbox_of_any_age() as inbox:
        found = None if is_missing(inbox) else revision(inbox)
        former = inbox.database.former() if found is None else None
        place, schema = inbox.database.place, inbox.database.schema
    if as_json:
        where = {"place": place, "database_schema": schema, "former_schema": former}
        print_json({"found": found, "needed": REVISION, **where})
        return
    remedy = "" if found == REVISION else ": run `billhook db upgrade`"
    if former is not None:
        remedy += f", which moves the inbox here from the schema {former}"
    if found is not None and found > REVISION:
        remedy = ": it is newer than this billhook, upgrade the package"
    click.echo(f"schema {found or 'none'}, this billhook needs {REVISION}{remedy}")
    click.echo(f"inbox: {place}" + (f", schema {schema}" if schema else ""))


@db.command()
@click.argument("file", type=click.Path(path_type=Path))
def backup(file: Path) -> None:
    """Copy the inbox into FILE, which must not be there yet, while receivers and workers go on.

    The copy is of one moment, is checked, and can be read by its owner only: it holds customers' data. A
    process that starts meanwhile stores nothing until it is done. For an inbox on PostgreSQL this tells
    the command of PostgreSQL's own.

    \b
    Examples:
      billhook db backup /var/backups/billhook-2026-01-15.db
      flask --app myshop billhook db backup backup.db
    """
    with _inbox_of_any_age() as inbox:
        if is_missing(inbox):  # an app's
            raise ConfigError(f"there is no inbox at {inbox.database.place} to back up")
        with _pages("backing up") as pages:
            deliveries = inbox.database.back_up(file, pages)
    click.echo(f"{file}: {deliveries} deliveries")


@db.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask.")
def restore(file: Path, yes: bool) -> None:
    """Put the backup FILE in the inbox's place. What is in the inbox now is gone.

    Stop receivers and workers first: while one has the inbox open, nothing is changed. A backup of an older
    billhook is brought up to date at the next start. What was handled since the backup was made is handled
    again, and what was stored since is lost.

    \b
    Examples:
      billhook db restore /var/backups/billhook-2026-01-15.db
      flask --app myshop billhook db restore backup.db --yes
    """
    with _inbox_of_any_age(missing_ok=True) as inbox:
        place = inbox.database.place
        if not (yes or is_missing(inbox)) and inbox.database.schema is None:
            confirm(f"Replace the inbox {place} by {file}?")
        with _pages("restoring") as pages:
            deliveries = inbox.database.restore(file, pages)
    click.echo(f"{place}: {deliveries} deliveries")


@contextmanager
def _pages(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that is told of pages done and pages in all."""
    with progress(label, 100) as steps:
        shown = 0

        def show(done: int, total: int) -> None:
            nonlocal shown
            percent = 100 * done // max(total, 1)
            steps.advance(percent - shown)
            shown = percent

        yield show
