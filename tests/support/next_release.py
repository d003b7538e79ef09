"""The next release, simulated: this code with one more migration, in a block or as a program.

`python -m support.next_release FOLDER ARGUMENTS…` is its `billhook ARGUMENTS…`.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from billhook.inbox.tables import revision

NEXT = f"{int(revision.REVISION) + 1:04}"
_MIGRATION = f"""
import sqlalchemy as sa
from alembic import op

revision = {NEXT!r}
down_revision = {revision.REVISION!r}
oldest_compatible = OLDEST_COMPATIBLE


def upgrade() -> None:
    op.add_column("delivery", sa.Column("region", sa.Text, nullable=False, server_default="eu"))
    op.create_table("billhook_region", sa.Column("name", sa.Text, primary_key=True))
    with op.batch_alter_table("run", recreate="auto") as run:  # on SQLite the table is made anew
        run.add_column(sa.Column("note", sa.Text))
        run.alter_column("attempts", type_=sa.BigInteger)
"""


@contextlib.contextmanager
def next_release(folder: Path, oldest_compatible: str | None = None) -> Iterator[None]:
    """In the block this process is of the next release; `folder` keeps its migrations.

    `oldest_compatible` is the oldest revision whose code may still store deliveries.
    """
    migrations = folder / "migrations"
    if not migrations.exists():
        shutil.copytree(revision.MIGRATIONS, migrations)
        (migrations / "versions" / f"{NEXT}_next.py").write_text(
            _MIGRATION.replace("OLDEST_COMPATIBLE", repr(oldest_compatible))
        )
    with (
        patch.object(revision, "MIGRATIONS", migrations),
        patch.object(revision, "REVISION", NEXT),
    ):
        yield


if __name__ == "__main__":
    from billhook.cli import main

    with next_release(Path(sys.argv[1])):
        main(sys.argv[2:])
