"""A database of the user's, with the table of effects."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine

from billhook import effects


@pytest.fixture
def url(bare_url: str) -> str:
    """The URL of a database on SQLite, and on PostgreSQL, that has the table."""
    engine = create_engine(bare_url)
    effects.create_all(engine)
    engine.dispose()
    return bare_url
