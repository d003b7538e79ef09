"""Apps whose deliveries are handled when a test says so."""

from __future__ import annotations

import pytest


@pytest.fixture
def stored_only(app_with, clock):
    """Make an app that stores deliveries; `get_state(app).handle_due()` handles them."""
    return lambda handlers, **more: app_with(
        handlers=[handlers],
        clock=clock,
        **{"BILLHOOK_ENGINE": "worker", "BILLHOOK_RETRY_SCHEDULE_SECONDS": (600, 600), **more},
    )


@pytest.fixture
def shop(app_with, clock):
    """Make an app with the inline engine."""

    def make(handlers, **config):
        config.setdefault("BILLHOOK_RETRY_SCHEDULE_SECONDS", (10, 60))
        return app_with(handlers=[handlers], clock=clock, BILLHOOK_ENGINE="inline", **config)

    return make
