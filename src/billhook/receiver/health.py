"""The health checks: `GET /healthz` (the process answers), `GET /readyz` (a delivery could be stored now)."""

from __future__ import annotations

from collections.abc import Callable

from flask import Blueprint, Response

from billhook.errors import InboxUnavailable, SchemaMismatch


def make_health_blueprint(check_writable: Callable[[], None]) -> Blueprint:
    """Return the blueprint; `check_writable` raises InboxUnavailable or SchemaMismatch."""
    health = Blueprint("billhook_health", __name__)

    @health.get("/healthz")
    def healthz() -> Response:
        return Response('{"status": "up"}', content_type="application/json")

    @health.get("/readyz")
    def readyz() -> Response:
        try:
            check_writable()
        except (InboxUnavailable, SchemaMismatch, MemoryError, OSError, RuntimeError) as error:  # no thread
            if isinstance(error, SchemaMismatch) and error.stores:
                waits = '{"status": "ready", "handling": "waits for an upgrade of this process"}'
                return Response(waits, content_type="application/json")
            return Response('{"status": "unavailable"}', 503, content_type="application/json")
        return Response('{"status": "ready"}', content_type="application/json")

    return health
