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


def create_failing_app() -> Any:
    """The standalone receiver, and a path at which the application raises before it has read the body."""
    app = create_asgi_app()

    async def failing(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/fail":
            raise RuntimeError("as if there were no thread left")
        await app(scope, receive, send)

    return failing
