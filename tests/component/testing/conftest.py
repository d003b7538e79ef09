"""Apps under test, closed at the end."""

from __future__ import annotations

import pytest

from billhook import testing


@pytest.fixture
def app_of(tmp_path):
    """Makes an app with these handlers, as users' tests make it."""
    made = []

    def make(*handlers, **options):
        made.append(testing.make_app(tmp_path, *handlers, **options))
        return made[-1]

    yield make
    for app in made:
        app.extensions["billhook"].close()
