"""Workers as real processes, for the tests of how they end and of their children; and Prometheus' tool."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing

import pytest

from support.postgres import unavailable
from support.worker_group import WorkerGroup


@pytest.fixture
def group(tmp_path) -> Iterator[WorkerGroup]:
    with closing(WorkerGroup(tmp_path, f"sqlite:///{tmp_path / 'billhook.db'}")) as made:
        yield made


@pytest.fixture
def promtool() -> str:
    return shutil.which("promtool") or unavailable("no promtool: Debian's package prometheus has it")
