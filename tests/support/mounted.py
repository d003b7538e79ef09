"""The standalone receiver mounted in applications of other frameworks."""

from __future__ import annotations

from typing import Any

from billhook.standalone import create_asgi_app


def create_fastapi_app() -> Any:
    """FastAPI, with the receiver mounted at its root."""
    from fastapi import FastAPI

    app = FastAPI()
    app.mount("", create_asgi_app())
    return app
