"""Flask apps with a Billhook on an inbox in the test's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flask import Flask

from billhook import Billhook
from billhook.extension import get_state
from support.inbox_view import LONG_DEADLINE_SECONDS, place_of
from support.signing import PATH, PING, SECRET, signed
from support.templates import new_inbox


def make_app(folder: Path, *, prefix: str = PATH, name: str = "shop", **arguments: Any) -> Flask:
    """A Flask app with one Billhook on an inbox in `folder`; BILLHOOK_ keys are configuration."""
    app = bare_app(folder, name=name, **{k: v for k, v in arguments.items() if k.isupper()})
    file = folder / "billhook.db"
    if "BILLHOOK_INBOX_URL" not in app.config and folder.is_dir() and not file.exists():
        new_inbox(f"sqlite:///{file}")
    Billhook(**{k: v for k, v in arguments.items() if not k.isupper()}).init_app(app, url_prefix=prefix)
    return app


def bare_app(folder: Path, *, name: str = "shop", **config: Any) -> Flask:
    """A configured Flask app without any Billhook yet."""
    app = Flask(name, instance_path=str(folder))
    app.config.update(BILLHOOK_SECRETS=[SECRET], BILLHOOK_ENGINE="worker", TESTING=False)
    app.config["BILLHOOK_DEADLINE_SECONDS"] = LONG_DEADLINE_SECONDS
    app.config["BILLHOOK_RETRY_JITTER"] = 0
    app.config.update(config)
    return app


def inbox_file(app: Flask) -> Path:
    return get_state(app).inbox.database.path


def inbox_at(app: Flask) -> Path | str:
    """Where the app's inbox is, as `rows` takes it."""
    return place_of(app.config.get("BILLHOOK_INBOX_URL") or str(inbox_file(app)))


def deliver(app: Flask, body: bytes = b"{}", event_type: str = PING, **more: Any) -> Any:
    """One good delivery through the app's test client."""
    path = more.pop("path", PATH)
    extra = more.pop("headers", {})
    return app.test_client().post(path, data=body, headers={**signed(body, event_type, **more), **extra})
