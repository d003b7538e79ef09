"""Workers as real processes, for the tests of how they end, of their children, and of their handlers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.worker_group import WorkerGroup, worker_group


@pytest.fixture
def group(tmp_path) -> Iterator[WorkerGroup]:
    with worker_group(tmp_path, f"sqlite:///{tmp_path / 'billhook.db'}") as made:
        yield made
