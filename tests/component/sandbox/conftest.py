"""What the sandbox's tests share: a database for one, of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.postgres import BOTH
from support.sandbox_schema import SandboxSchema


@pytest.fixture(scope="session")
def sandbox_schema(postgres_server) -> Iterator[SandboxSchema]:
    """The schema of all tests that are not about the making of tables."""
    schema = SandboxSchema(postgres_server.url)
    yield schema
    schema.close()


@pytest.fixture(params=BOTH)
def sandbox_url(request, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database of each kind; on PostgreSQL the tables are there already."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'sandbox.db'}"
        return
    schema = request.getfixturevalue("sandbox_schema")
    yield schema.url
    schema.clear()
