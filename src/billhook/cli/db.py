"""`billhook db`: the inbox's schema, its backup and its restore."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click

from billhook.basics.printable import counted
from billhook.cli.context import open_inbox
from billhook.cli.output import print_json, progress
from billhook.cli.params import as_json
from billhook.cli.selection import YES, confirm
from billhook.errors import ConfigError, SchemaForbidden, SchemaMismatch
from billhook.errors.program import in_program, no_variables
from billhook.inbox.tables.revision import REVISION, any_schema


@click.group()
@click.pass_context
def db(context: click.Context) -> None:
    """Show and upgrade the inbox's schema; back up and restore the inbox."""
    # Its commands open an inbox of any schema version, also one with which an app refuses to start.
    context.call_on_close(partial(any_schema.reset, any_schema.set(True)))


@db.command(short_help="Upgrade the inbox's schema.")
def upgrade() -> None:
    """Upgrade the inbox's schema to the version that this billhook needs.

    Safe to run twice, and on several machines at once. Standalone it needs no secrets.

    \b
    Examples:
      BILLHOOK_INBOX_URL=postgresql+psycopg://billing@db/billing billhook db upgrade
      flask --app myshop billhook db upgrade
    """
    with open_inbox() as inbox:
        if inbox.is_missing:  # of an app, which creates its file at start
            before = None
            inbox.database.prepare()  # creates the file with the newest schema
        else:
            before = inbox.revision()
            inbox.upgrade()
        after = inbox.revision()
        others = inbox.database.other_schemas() if before is None else []
    click.echo(
        f"schema {after}: nothing to do" if before == after else f"schema {before or 'none'} -> {after}"
    )
    for other in others:  # what is in it would be missed, where BILLHOOK_INBOX_SCHEMA was changed
        click.echo(f"another inbox stays in the schema {other}: to use it, set BILLHOOK_INBOX_SCHEMA={other}")


@db.command(short_help="Show the schema's version, and the one needed.")
@as_json
def current(as_json: bool) -> None:
    """Show the schema's version, the version that this billhook needs, and where the inbox is.

    If they differ, it says whether `billhook db upgrade` would upgrade the inbox, and else what to do; the
    exit code is 1 then.

    \b
    Example:
      billhook db current --json
    """
    with open_inbox() as inbox:
        version = None if inbox.is_missing else inbox.revision()
        remedy = None if version == REVISION else SchemaMismatch(version, REVISION).remedy
        try:
            if not inbox.is_missing:
                inbox.upgrade(dry_run=True)
        except (SchemaMismatch, SchemaForbidden) as refusal:
            remedy = refusal.remedy
        place, schema = inbox.database.display_url, inbox.database.schema
    if as_json:
        found = {"found": version, "needed": REVISION, "remedy": remedy}
        print_json({**found, "place": place, "database_schema": schema})
    else:
        to_do = f": {in_program(remedy)}" if remedy else ""
        click.echo(f"schema {version or 'none'}, this billhook needs {REVISION}{to_do}")
        click.echo(f"inbox: {place}" + (f", schema {schema}" if schema else ""))
    if remedy:
        sys.exit(1)


@db.command(short_help="Copy the inbox while it is used.")
@click.argument("file", type=click.Path(path_type=Path))
def backup(file: Path) -> None:
    """Copy the inbox to the new file FILE while receivers and workers continue.

    The copy is a snapshot of one moment, is checked, and is readable by its owner only, because it holds
    customers' data. A process that starts meanwhile stores nothing until the copy is done. For an inbox on
    PostgreSQL the command prints PostgreSQL's own backup command.

    \b
    Examples:
      billhook db backup /var/backups/billhook-2026-01-15.db
      flask --app myshop billhook db backup backup.db
    """
    with open_inbox() as inbox:
        if inbox.is_missing:  # of an app
            raise ConfigError(
                f"there is no inbox to back up at {inbox.database.display_url}: set BILLHOOK_INBOX_URL"
                f"{no_variables()}"
            )
        with _pages("backing up") as pages:
            deliveries = inbox.database.back_up(file, pages)
    click.echo(f"{file}: {counted(deliveries, 'delivery')}")


@db.command(short_help="Put a backup in the place of the inbox.")
@click.argument("file", type=click.Path(path_type=Path))
@YES
def restore(file: Path, yes: bool) -> None:
    """Replace the inbox by the backup FILE. Everything that is in the inbox now is lost.

    Stop receivers and workers first: while one has the inbox open, the command changes nothing. The backup of
    an older billhook is upgraded at the next start. Deliveries handled after the backup are handled again;
    deliveries stored after it are lost.

    \b
    Examples:
      billhook db restore /var/backups/billhook-2026-01-15.db
      flask --app myshop billhook db restore backup.db --yes
    """
    with open_inbox(missing_ok=True) as inbox:
        place = inbox.database.display_url
        inbox.database.check_restore(file)
        if not (yes or inbox.is_missing):
            confirm(f"Replace the inbox {place} by {file}?")
        with _pages("restoring") as pages:
            deliveries = inbox.database.restore(file, pages)
    click.echo(f"{place}: {counted(deliveries, 'delivery')}")


@contextmanager
def _pages(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar; yield the function that updates it with pages done and pages in total."""
    with progress(label, 100) as steps:
        shown = 0

        def show(done: int, total: int) -> None:
            nonlocal shown
            percent = 100 * done // max(total, 1)
            steps(percent - shown)
            shown = percent

        yield show
