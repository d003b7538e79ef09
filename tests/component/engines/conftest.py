"""Apps whose deliveries are handled when a test says so."""

from __future__ import annotations

import pytest

from billhook import signals


@pytest.fixture
def stored_only(app_with, frozen_clock):
    """Make an app that stores deliveries; `get_state(app).handle_due()` handles them."""
    return lambda handlers, **more: app_with(
        handlers=[handlers],
        clock=frozen_clock,
        **{"BILLHOOK_ENGINE": "worker", "BILLHOOK_RETRY_SCHEDULE_SECONDS": (600, 600), **more},
    )


@pytest.fixture
def shop(app_with, frozen_clock):
    """Make an app with the inline engine."""

    def make(handlers, **config):
        config.setdefault("BILLHOOK_RETRY_SCHEDULE_SECONDS", (10, 60))
        return app_with(handlers=[handlers], clock=frozen_clock, BILLHOOK_ENGINE="inline", **config)

    return make


@pytest.fixture
def observe():
    """Returns the lifecycle signals of these names that an app sends from now on: each with its facts."""
    kept = []  # signals hold their observers weakly

    def connect(app, *names):
        seen = []
        for name in names:
            kept.append(lambda _, *, _name=name, **facts: seen.append((_name, facts)))
            getattr(signals, name).connect(kept[-1], sender=app)
        return seen

    return connect
