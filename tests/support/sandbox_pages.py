"""The sandbox's pages as a browser without scripts uses them: cookies, links and forms, and no socket."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from billhook.sandbox.pages.app import PAGES_PREFIX
from billhook.sandbox.pages.context import ROUTES
from support.sandbox import API_TOKEN, Running

ORIGIN = "http://localhost"
"""What Flask's test client sends requests to."""

_TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')
_PARAMETER = re.compile(r"<[a-z_]+>")


def rules(method: str) -> list[str]:
    """The addresses of all views of a method, with `x` for each id."""
    found = [(rule, kind) for rule, kind, _ in ROUTES]
    return [PAGES_PREFIX + _PARAMETER.sub("x", rule) for rule, kind in found if kind == method]


def form(key: str, **fields: str) -> str:
    """The address of the form of an operation, below /pages."""
    return f"/call?{urlencode({'operation': key, **fields})}"


class _Fields(HTMLParser):
    """Collects what a browser sends with the form that is filled in on a page: it has the class `fields`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self._inside, self._name, self._is_text = False, "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "form":
            self._inside = "fields" in (given.get("class") or "").split()
        if not self._inside or tag not in ("input", "select", "textarea", "option"):
            return
        if tag == "option" and "selected" in given:
            self.found[self._name] = given.get("value") or ""
        elif tag != "option":
            self._name = given.get("name") or ""
            self.found[self._name] = given.get("value") or ""
        self._is_text = tag == "textarea"

    def handle_data(self, data: str) -> None:
        if self._is_text:
            self.found[self._name] += data

    def handle_endtag(self, tag: str) -> None:
        self._is_text = self._is_text and tag != "textarea"
        self._inside = self._inside and tag != "form"


def fields_of(page: str) -> dict[str, str]:
    """The fields of the form that is filled in on a page, with what stands in them."""
    parser = _Fields()
    parser.feed(page)
    return {name: text.removeprefix("\n") for name, text in parser.found.items() if name != "csrf_token"}


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
        made.get("/webhooks")  # has forms in every state, and so a token
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

    def run(self, key: str, back: str = "/pages/", **fields: Any) -> str:
        """Press a button that runs an operation; the notice on the page that it leads to."""
        return self.act(form(key), back=back, **fields)

    def fill(self, path: str, **changes: str) -> TestResponse:
        """Open a form, change some of its fields, and send it."""
        page = self.get(path)
        assert page.status_code == 200, (path, page.status_code, page.text)
        return self.post(path, **{**fields_of(page.text), **changes})

    def log_in(self, client_id: str = "sandbox", api_token: str = API_TOKEN, **fields: str) -> TestResponse:
        self.get("/login")
        return self.post("/login", client_id=client_id, api_token=api_token, **fields)
