"""A browser for the tests of one file.

Not for all of the session: while it runs, asyncio takes this thread for one with a running loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.browser import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The browser."""
    with chromium() as started:
        yield started
