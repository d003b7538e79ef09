"""What the tests of events share: event types that are gone after the test that declares them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from billhook.events.base import _registered


@pytest.fixture(autouse=True)
def _own_types() -> Iterator[None]:
    before = set(_registered)
    yield
    for name in set(_registered) - before:
        del _registered[name]
