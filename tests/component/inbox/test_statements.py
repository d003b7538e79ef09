"""Each statement that billhook executes on an inbox, and the indexes of its plan, as `recorded/` has them.

    BILLHOOK_TEST_RECORD=1 python -m pytest tests/component/inbox/test_statements.py

records them anew after a change that is meant; what it changed is then read in `git diff`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy

from billhook.inbox.running.filters import DeliveryFilter
from billhook.inbox.tables.schema import metadata
from support.inbox_view import close_inboxes, open_inbox, place_of, postgres
from support.inbox_work import FILTERS, do_everything
from support.postgres import BOTH, fresh_schema
from support.query_plans import fill
from support.statements import Executed, executed_on, listed, never_executed, without_plans
from support.templates import new_inbox

FOLDER = Path(__file__).with_name("recorded")
RECORDING = os.environ.get("BILLHOOK_TEST_RECORD") == "1"


class Collected(NamedTuple):
    """What was executed on one kind of database."""

    versions: list[str]
    """Of SQLAlchemy, which writes the statements, and of the database, which plans them."""
    executed: Executed
    text: str


@pytest.fixture(scope="module")
def collected(postgres_server, tmp_path_factory) -> Iterator[dict[str, Collected]]:
    """What is executed on both kinds of database when everything is done to an inbox once."""
    file = tmp_path_factory.mktemp("inbox") / "billhook.db"
    file.touch(0o600)
    with fresh_schema(postgres_server.url) as url:
        yield {
            kind: _collect(kind, new_inbox(place))
            for kind, place in zip(BOTH, (f"sqlite:///{file}", url), strict=True)
        }
        close_inboxes()


def rewrite_tables(session: Any) -> None:
    """Give the planner the same tables in each run: no row that another session keeps, and all statistics."""
    names = [table.name for table in metadata.sorted_tables]
    with session.transaction():
        for name in names:
            # No vacuum between this and the plans either.
            session.execute(f"ALTER TABLE {name} SET (autovacuum_enabled = off)")
            session.execute(f"CREATE TEMP TABLE copy_{name} ON COMMIT DROP AS TABLE {name}")
        session.execute(f"TRUNCATE {', '.join(names)}")
        for name in names:
            session.execute(f"INSERT INTO {name} SELECT * FROM copy_{name}")
    session.execute(f"ANALYZE {', '.join(names)}")


def _collect(kind: str, url: str) -> Collected:
    where = place_of(url)
    inbox = open_inbox(where)
    with executed_on(inbox) as executed:
        do_everything(inbox)
    fill(where, 3_000)
    if isinstance(where, Path):
        with inbox.database.read() as connection:
            version = connection.exec_driver_sql("SELECT sqlite_version()").scalar_one()
    else:
        with postgres(where) as session:
            rewrite_tables(session)
            version = str(session.info.server_version // 10_000)
    versions = [f"SQLAlchemy {sqlalchemy.__version__}", f"{kind} {version}"]
    return Collected(versions, executed, listed(inbox, executed))


def test_every_statement_is_among_them(collected):
    """What is added to the inbox is called by `do_everything` too, or its statements were not looked at."""
    lines = set().union(*(each.executed.lines for each in collected.values()))
    assert never_executed(lines) == [], "do_everything in tests/support/inbox_work.py calls each"
    filters = {each.name for each in fields(DeliveryFilter) if each.metadata}
    assert filters <= {*FILTERS, "issue"}, "FILTERS in tests/support/inbox_work.py"


@pytest.mark.parametrize("kind", BOTH)
def test_statements_and_their_indexes_are_those_recorded(collected, kind):
    found, file = collected[kind], FOLDER / f"{kind}.sql"
    heading = f"-- {', '.join(found.versions)}"
    if RECORDING:
        FOLDER.mkdir(exist_ok=True)
        file.write_text(f"{heading}\n\n{found.text}")
    recorded_for, _, recorded = file.read_text().partition("\n\n")
    if recorded_for == heading:
        assert found.text == recorded
    elif recorded_for.partition(",")[0] == heading.partition(",")[0]:
        assert without_plans(found.text) == without_plans(recorded)
    else:
        pytest.skip(f"recorded with another version: {recorded_for}")
