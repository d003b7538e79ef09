"""The sandbox's pages as a browser without scripts uses them: cookies, links and forms, and no socket."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import unescape
from typing import Any

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from billhook.sandbox.pages.app import PAGES_PREFIX, VIEWS
from support.sandbox import API_TOKEN, Running

ORIGIN = "http://localhost"
"""What Flask's test client sends requests to."""

_TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')
_PARAMETER = re.compile(r"<[a-z_]+>")


def rules(method: str) -> list[str]:
    """The addresses of all views of a method, with `x` for each id."""
    found = [(rule, kind) for views in VIEWS for rule, kind, _ in views.ROUTES.routes]
    return [PAGES_PREFIX + _PARAMETER.sub("x", rule) for rule, kind in found if kind == method]


@dataclass
class PagesBrowser:
    """A browser: `get` and `post` take addresses below /pages; forms are sent with the newest token."""

    client: FlaskClient
    token: str = ""
    headers: dict[str, str] = field(default_factory=lambda: {"Origin": ORIGIN})

    @classmethod
    def of(cls, sandbox: Running) -> PagesBrowser:
        """One that is not logged in."""
        return cls(sandbox.sandbox.app().test_client())

    @classmethod
    def logged_in(cls, sandbox: Running) -> PagesBrowser:
        """One with a session."""
        made = cls.of(sandbox)
        assert made.log_in().status_code == 303
        made.get("/secrets")  # has forms in every state, and so a token
        return made

    def get(self, path: str) -> TestResponse:
        response = self.client.get(path if path.startswith("/_sandbox") else PAGES_PREFIX + path)
        found = _TOKEN.search(response.text)
        self.token = found[1] if found else self.token
        return response

    def post(self, path: str, **fields: Any) -> TestResponse:
        data = {"csrf_token": self.token, **fields}
        return self.client.post(PAGES_PREFIX + path, data=data, headers=self.headers)

    def act(self, path: str, **fields: Any) -> str:
        """Send a form; the notice on the page that it leads to."""
        response = self.post(path, **fields)
        assert response.status_code == 303, (path, response.status_code, response.text)
        page = self.client.get(response.location)
        assert page.status_code == 200, (response.location, page.status_code)
        found = re.search(r'<p class="notice [a-z]+" role="status">(.*?)</p>', page.text)
        assert found, page.text
        return unescape(found[1])

    def log_in(self, client_id: str = "sandbox", api_token: str = API_TOKEN, **fields: str) -> TestResponse:
        self.get("/login")
        return self.post("/login", client_id=client_id, api_token=api_token, **fields)
