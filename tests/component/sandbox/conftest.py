"""What the sandbox's tests share: a sandbox, and a database that outlasts one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.sandbox import Running, running


@pytest.fixture
def sandbox() -> Iterator[Running]:
    """A new sandbox with the options of most tests."""
    with running() as started:
        yield started


@pytest.fixture
def sandbox_url(tmp_path: Path) -> str:
    """The URL of a file for a sandbox that is started again."""
    return f"sqlite:///{tmp_path / 'sandbox.db'}"
