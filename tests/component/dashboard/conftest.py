"""Apps with a dashboard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from billhook.dashboard import Dashboard
from support.dashboard import Site, shop_handlers


@pytest.fixture
def bare_url(tmp_path) -> str:
    """The URL of a place for an inbox, on SQLite alone: component/inbox tests the SQL on both databases."""
    path = tmp_path / "billhook.db"
    path.touch(0o600)
    return f"sqlite:///{path}"


@pytest.fixture
def site(app_with) -> Callable[..., Site]:
    def make(*, may_look: Any = lambda: "alice", may_act: Any = lambda: True, **config: Any) -> Site:
        broken: list[Exception] = []
        app = app_with(handlers=[shop_handlers(broken)], **config)
        app.secret_key = "k" * 32
        Dashboard(may_look=may_look, may_act=may_act).init_app(app)
        return Site(app, broken)

    return make
