"""${message}"""

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
# The oldest revision whose code may still store deliveries in this schema, while processes are replaced: it inserts
# and updates deliveries, and counts them. None: only this one.
oldest_compatible = None


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
