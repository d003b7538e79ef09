"""Pages: a Flask blueprint of web pages with templates of their own, guarded forms and strict headers.

Only its own page can send a form; headers leave a browser nothing to run or to load.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from flask import Blueprint, Request, Response, abort, current_app, g, redirect, request, url_for
from itsdangerous import BadSignature, SignatureExpired, URLSafeTimedSerializer
from jinja2 import ChoiceLoader, Environment, PackageLoader, PrefixLoader, StrictUndefined
from werkzeug.exceptions import HTTPException, NotFound

from billhook import clock
from billhook.basics.printable import printable
from billhook.logs import LimitedLog
from billhook.pages import text

logger = logging.getLogger("billhook.pages")

INTERVAL_SECONDS = 60.0
RAISE_AGAIN = False
"""Set by billhook's own tests, from which this must hide nothing."""


class FailureLog:
    """Logs the first failure of a place, with its traceback, then one a minute with the number since."""

    def __init__(self) -> None:
        self.log = LimitedLog(logger, INTERVAL_SECONDS)

    def record(self, error: Exception) -> None:
        """Log the failure of the current request, or count it. Its place is the view; there are few."""
        if RAISE_AGAIN:
            raise error
        text = f"{request.endpoint} failed, answered with 503"
        self.log.log(request.endpoint, logging.ERROR, text, error, cause=error)


def handled_by_app(error: Exception) -> Any:
    """Return what the app's own handler of such errors answers; None if it has none but for all of them.

    An app may send a visitor to its login by an exception. A blueprint's handler of Exception comes first.
    """
    handlers = current_app.error_handler_spec[None][None]
    for kind in type(error).__mro__:
        if kind is Exception:
            break
        if kind in handlers:
            return current_app.ensure_sync(handlers[kind])(error)
    return None


TOKEN_SECONDS = 8 * 3_600
"""How long a form may be open before it is sent: a working day."""
NOTICE_SECONDS = 60
"""How long a notice waits for the page that shows it."""
_NONCE_BYTES = 16
_LONGEST_NOTICE = 1_000
"""Characters: browsers take cookies of up to 4,096 bytes."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; "
        "base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Other sites are told nothing. With no-referrer browsers would send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The headers of every page. Nothing is loaded but the style sheet and the icon, and no script runs."""
_LIVE_POLICY = f"{HEADERS['Content-Security-Policy']}; script-src 'self'; connect-src 'self'"
"""For pages that refresh themselves by the one script."""
_ASSETS = Path(__file__).with_name("assets")
_ASSET_TYPES = {"style.css": "text/css", "icon.svg": "image/svg+xml", "live.js": "text/javascript"}
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_FILTERS = {
    "age": text.age_element,
    "ago": clock.format_ago,
    "bytes": text.format_bytes,
    "duration": clock.format_duration,
    "json_html": partial(text.highlight, language="json"),
    "markdown": text.render_markdown,
    "number": text.format_number,
    "name": text.show_name,
    "shown": text.show_invisible,
    "time": text.time_element,
    "traceback_html": partial(text.highlight, language="traceback"),
    "with_code": text.show_code,
}


def is_from_own_pages(request: Request) -> bool:
    """Return whether a browser sent the request from a page of this origin.

    `Origin` has to name the host that the request was sent to, and `Sec-Fetch-Site`, which browsers send over
    TLS and to the own machine, has to agree. Behind a proxy the `Host` header must be passed on.
    """
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    origin = request.headers.get("Origin", "")
    # Both schemes: the one that the browser used is not known behind a proxy that ends TLS. As texts, since
    # parsing raises for some of what others may send.
    own = (f"http://{request.host}", f"https://{request.host}")
    return site == "same-origin" and origin in own


class Visitor(NamedTuple):
    """The person at the browser: a name for the log, and whether they may change anything.

    A visitor without a name, for a login, sees no navigation.
    """

    name: str
    may_act: bool


class PageLink(NamedTuple):
    """A link in the navigation of each page: the name of its view in the blueprint, and its text.

    The pages of `also`, which are reached from there, light it too.
    """

    view: str
    text: str
    also: tuple[str, ...] = ()


class Pages:
    """One set of pages: `blueprint` takes their views, `render` makes a page from a template.

    Templates are in the folder `templates` of `package`, and extend `pages/layout.html`. They are in an
    environment of their own, so that none of the app's can take their place; all that they show is escaped.
    `identify` returns the visitor of the current request, or raises an HTTPException; no view and no file is
    reached without. A request that may change something, which is any but GET and HEAD, also needs a visitor
    who may act, an `Origin` of this site and the token of a form, all checked before its view is called.
    """

    def __init__(
        self,
        name: str,
        package: str,
        *,
        title: str,
        links: Iterable[PageLink],
        identify: Callable[[], Visitor],
        key: Callable[[], str | bytes],
        filters: Mapping[str, Callable[..., Any]] | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        live: bool = False,
        ways_out: Mapping[str, Callable[[], str | None]] | None = None,
    ) -> None:
        """`live`: pages refresh themselves while they are looked at. `ways_out`: see the method."""
        self.title = title
        self._live = live
        self.links = tuple(links)
        self._ways_out = dict(ways_out or {})
        self._identify = identify
        self._key = key
        self._cookie = f"{name}_form"
        self._notice_cookie = f"{name}_notice"
        self._package = package
        self._filters = {**_FILTERS, **(filters or {})}
        self._functions = dict(functions or {})
        self.blueprint = Blueprint(name, package)
        self.blueprint.before_request(self._guard)
        self.blueprint.after_request(self._add_headers)
        self._failures = FailureLog()
        self.blueprint.register_error_handler(HTTPException, self._error_page)
        self.blueprint.register_error_handler(Exception, self._failed)
        self.blueprint.add_url_rule("/assets/<name>", "asset", _asset)

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page made from a template of the package, with these values."""
        notice = self._notice()
        g.billhook_notice_shown = notice is not None
        g.billhook_live = self._live and status == 200 and request.method == "GET"
        html = self._templates.get_template(template).render(
            pages=self, visitor=g.get("billhook_visitor"), notice=notice, live=g.billhook_live, **values
        )
        return Response(html, status, content_type="text/html; charset=utf-8")

    def redirect(self, location: str, notice: str, tone: str = "good") -> Response:
        """Return a redirect to a page of the same set, which shows the notice once: for after a form."""
        response = current_app.make_response(redirect(location, 303))
        value = self._signer("notice").dumps({"text": notice[:_LONGEST_NOTICE], "tone": tone})
        response.set_cookie(self._notice_cookie, value, max_age=NOTICE_SECONDS, **self._cookie_options())
        return response

    def _notice(self) -> Any:
        """Return the text and the tone of the notice in a cookie that was written here a moment ago."""
        try:
            cookie = request.cookies.get(self._notice_cookie, "")
            return self._signer("notice").loads(cookie, max_age=NOTICE_SECONDS)
        except BadSignature:
            return None

    def _signer(self, purpose: str) -> URLSafeTimedSerializer:
        return URLSafeTimedSerializer(self._key(), salt=f"billhook.pages.{purpose}.{self.blueprint.name}")

    @cached_property
    def _templates(self) -> Environment:
        environment = Environment(
            loader=ChoiceLoader(
                [PackageLoader(self._package), PrefixLoader({"pages": PackageLoader("billhook.pages")})]
            ),
            autoescape=True,
            finalize=text.as_shown,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters.update(self._filters)
        environment.globals.update(
            url_for=url_for,
            asset_url=lambda name: url_for(".asset", name=name, v=_asset_hashes()[name]),
            csrf_token=self._csrf_token,
            may_act=lambda: getattr(g.get("billhook_visitor"), "may_act", False),
            **self._functions,
        )
        return environment

    def current(self, link: PageLink) -> str:
        """Return `page` for the link to the page that is being made, `true` for that to its list, else ""."""
        view = (request.endpoint or "").removeprefix(f"{request.blueprint}.")
        return "page" if view == link.view else "true" if view in link.also else ""

    def ways_out(self) -> list[tuple[str, str]]:
        """Return the links that lead out of these pages, as texts and addresses: to the app, to log out."""
        return [(text, address) for text, where in self._ways_out.items() if (address := where())]

    def _guard(self) -> None:
        g.billhook_visitor = None  # for the error page, if the visitor is refused
        visitor = g.billhook_visitor = self._identify()
        if request.method in _SAFE_METHODS:
            return
        refusal = self._refusal(visitor)
        if refusal is not None:
            told = "refused %s %s by %s: %s"
            logger.warning(told, request.method, printable(request.path), printable(visitor.name), refusal)
            abort(403, refusal)

    def _refusal(self, visitor: Visitor) -> str | None:
        """Return why the visitor may not send this request; None if they may."""
        if not visitor.may_act:
            return "You may look at these pages, and change nothing."
        if not is_from_own_pages(request):
            origin = printable(request.headers.get("Origin") or "none")
            return (
                f"The form was not sent from a page of this site: its Origin is {origin}, and the request's "
                f"Host is {printable(request.host)}. If both are this site, a proxy in front changes the "
                "Host: nginx needs proxy_set_header Host $http_host."
            )
        token, nonce = request.form.get("csrf_token", ""), request.cookies.get(self._cookie, "")
        try:
            found = self._signer("csrf").loads(token, max_age=TOKEN_SECONDS)
        except SignatureExpired:
            return "The form was open for too long. Load its page again, and send it then."
        except BadSignature:
            return "The form has no token of this site. Load its page again, and send it then."
        if not nonce or found != [visitor.name, nonce]:
            return "The form was made for another visitor. Load its page again, and send it then."
        return None

    def _csrf_token(self) -> str:
        """Return the token for the forms of the page that is being made, and have its cookie set.

        It is signed, and bound to the visitor and to the browser, known by a random value in the cookie.
        """
        nonce = g.get("billhook_new_nonce") or request.cookies.get(self._cookie)
        if not nonce:
            nonce = g.billhook_new_nonce = secrets.token_urlsafe(_NONCE_BYTES)
        return self._signer("csrf").dumps([g.billhook_visitor.name, nonce])

    def _add_headers(self, response: Response) -> Response:
        nonce = g.pop("billhook_new_nonce", None)
        if nonce is not None:
            response.set_cookie(self._cookie, nonce, **self._cookie_options())
        if g.pop("billhook_notice_shown", False):
            response.delete_cookie(self._notice_cookie, **self._cookie_options())
        if g.pop("billhook_live", False):
            response.headers.setdefault("Content-Security-Policy", _LIVE_POLICY)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @staticmethod
    def _cookie_options() -> dict[str, Any]:
        path = url_for(".asset", name="x").removesuffix("assets/x")
        return {"path": path, "httponly": True, "samesite": "Strict", "secure": request.is_secure}

    def _failed(self, error: Exception) -> Response:
        """Return the page of a mistake in these pages or in what they call. Nothing of it is shown."""
        own = handled_by_app(error)
        if own is not None:
            return own  # type: ignore[no-any-return]
        self._failures.record(error)
        try:
            return self.render(
                "pages/error.html", 503, name="This page failed", description="The log says why."
            )
        except Exception:  # noqa: BLE001 - then it is the layout that fails
            return Response(
                "This page failed. The log says why.\n", 503, content_type="text/plain; charset=utf-8"
            )

    def _error_page(self, error: HTTPException) -> Response:
        """Return the page of an error, with its headers, such as those that ask for a password."""
        if error.response is not None:  # a view's own, such as a redirect to a login
            return error.response  # type: ignore[return-value]
        response = self.render(
            "pages/error.html", error.code or 500, name=error.name, description=error.description
        )
        for name, value in error.get_headers():
            if name not in ("Content-Type", "Content-Length"):
                response.headers.add(name, value)
        return response


def _asset(name: str) -> Response:
    if name not in _ASSET_TYPES:
        raise NotFound
    response = Response((_ASSETS / name).read_bytes(), content_type=f"{_ASSET_TYPES[name]}; charset=utf-8")
    # Its address changes with its content.
    response.headers["Cache-Control"] = "private, max-age=31536000, immutable"
    return response


@cache
def _asset_hashes() -> dict[str, str]:
    return {name: hashlib.sha256((_ASSETS / name).read_bytes()).hexdigest()[:12] for name in _ASSET_TYPES}
