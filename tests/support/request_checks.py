"""Stand-ins for Flask extensions that check every request, with the interface of the real ones.

The real ones are no dependencies of the tests: tests/acceptance/test_beside_extensions.py installs them.
"""

from __future__ import annotations

from typing import Any

from flask import Flask, abort, current_app, redirect, request


class _Check:
    def __init__(self, app: Flask | None = None) -> None:
        self._exempt: set[str] = set()
        if app is not None:
            self.init_app(app)

    def exempt(self, view: Any) -> Any:
        self._exempt.add(f"{view.__module__}.{view.__name__}")
        return view

    def is_exempt(self) -> bool:
        view = current_app.view_functions[request.endpoint or ""]
        return f"{view.__module__}.{view.__name__}" in self._exempt


class Limiter(_Check):
    """One request is allowed, and each further one is refused."""

    requests = 0

    def init_app(self, app: Flask) -> None:
        app.before_request(self._check_request_limit)
        app.extensions.setdefault("limiter", set()).add(self)

    def _check_request_limit(self) -> None:
        if not self.is_exempt():
            self.requests += 1
            if self.requests > 1:
                abort(429)


class SeaSurf(_Check):
    """Each POST is refused: none has its token."""

    def init_app(self, app: Flask) -> None:
        app.before_request(self._before_request)

    def _before_request(self) -> None:
        if request.method == "POST" and not self.is_exempt():
            abort(403)


class Talisman:
    """Plain HTTP is redirected."""

    def __init__(self, app: Flask) -> None:
        app.before_request(self._force_https)

    def _force_https(self) -> Any:
        secure = request.is_secure or request.headers.get("X-Forwarded-Proto") == "https"
        return None if secure else redirect(request.url.replace("http://", "https://", 1))


Limiter.__module__ = "flask_limiter._extension"
SeaSurf.__module__ = "flask_seasurf"
Talisman.__module__ = "flask_talisman.talisman"
