"""The pages as an application of their own, beside the API: other errors, cookies and headers.

A browser's session is begun with the client id and the API token, and kept in a signed cookie.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from flask import Flask, Request, Response, abort, redirect, request, session, url_for
from flask.sessions import SecureCookieSessionInterface

from billhook.errors import SandboxError
from billhook.pages.pages import PageLink, Pages, Visitor
from billhook.sandbox import tokens
from billhook.sandbox.billing.invoicing.invoices import PAGES_PATH
from billhook.sandbox.errors import not_authenticated
from billhook.sandbox.options import MAX_LOGIN_BYTES
from billhook.sandbox.pages import event_views, operation_views  # noqa: F401 - the first adds its routes
from billhook.sandbox.pages.billing_views import INVOICE_PAGE_RULE, invoice_page
from billhook.sandbox.pages.context import ROUTES, SITE, Site, error_sentence, own_address, route, site
from billhook.sandbox.pages.texts import STATUSES, clipped, format_amount, format_percent

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


SESSION_SECONDS = 8 * 3600
"""A working day, from the login on, by the machine's time."""
PUBLIC = frozenset({"asset", "login", "log_in", "invoice_page"})
"""The endpoints that need no session. A link that cannot be guessed opens an invoice's page."""
_REFUSED = "the client id or the API token is missing, wrong or revoked"
_USED = "the login address has been used, or a later start has printed another"
_ANONYMOUS = Visitor("", may_act=True)
PAGES_PREFIX = "/pages"
"""The addresses of the pages begin with it: those of the API have the rest."""
_ADDRESSES = ("/", PAGES_PREFIX, "/openapi", "/openapi/")
"""Those that lead to a page; the OpenAPI document is not among them."""
MAX_FORM_BYTES = 2 * 1024 * 1024
_LINKS = (
    PageLink("overview", "Overview"),
    PageLink("events", "Timeline"),
    PageLink("customers", "Customers"),
    PageLink("contracts", "Contracts"),
    PageLink("invoices", "Invoices"),
    PageLink("trigger", "Trigger"),
    PageLink("webhooks", "Webhooks"),
    PageLink("reference", "API"),
)
_FILTERS: Mapping[str, Callable[..., Any]] = {
    "amount": format_amount,
    "clip": clipped,
    "percent": format_percent,
    "status_text": lambda name: STATUSES[name][0],
    "status_tone": lambda name: STATUSES[name][1],
}
logger = logging.getLogger("billhook.sandbox")


class _Sessions(SecureCookieSessionInterface):
    def get_cookie_secure(self, app: Flask) -> bool:
        """Return True for a request over TLS: the sandbox is served without it as well."""
        return request.is_secure


def key_for(purpose: str, key: bytes) -> bytes:
    """Return a key for one purpose, from the sandbox's: none of them can stand for another."""
    return hmac.new(key, f"pages {purpose}".encode(), hashlib.sha256).digest()


def identify() -> Visitor:
    """Return the visitor of the current request; without a session, send the browser to the login."""
    endpoint = (request.endpoint or "").rpartition(".")[2]
    if endpoint in PUBLIC:
        request.max_content_length = MAX_LOGIN_BYTES
        return _ANONYMOUS
    if _is_current():
        return Visitor(site.service.options.client_id, may_act=True)
    if endpoint == "reference":  # of the API: it shows nothing of what the sandbox holds
        return _ANONYMOUS
    session.clear()
    # Flask's `abort` raises; the return is for those who read.
    return abort(redirect(url_for(".login", **_place(request)), 303))


def here() -> str:
    """Return the address of the current page, for a button or a login to come back to."""
    return request.full_path.rstrip("?")


def _is_current() -> bool:
    """Return whether the session is within its time, and its API token is still the active one."""
    until, mark = session.get("until"), session.get("token")
    if not isinstance(until, int) or not isinstance(mark, str):
        return False
    if site.service.clock.real.now().timestamp() >= until:
        return False
    with site.reading() as tx:
        return tokens.active_mark(tx) == mark


def _place(request: Request) -> dict[str, Any]:
    """Return the page to come back to after the login. An action is not repeated."""
    if request.method != "GET" or request.endpoint is None or request.endpoint.endswith(".overview"):
        return {}
    return {"to": here()}


@route("/login")
def login() -> Response:
    """Show the form that asks for client id and API token, or the button for the token of the address."""
    # By a button: programs that look at addresses, or load them ahead, must not use the token up.
    once = request.args.get("token", "")
    return site.render("login.html", to=request.args.get("to", ""), once=once, refusal=None)


@route("/login", "POST")
def log_in() -> Response:
    """Begin a session, if client id and API token are right, or the token of the printed address."""
    to, once = request.form.get("to", ""), request.form.get("token", "")
    try:
        # First: it limits the rate of attempts, whether they are right or not.
        client_id = site.service.options.client_id if once else request.form.get("client_id", "")
        site.authenticator.check_login(client_id)
        with site.service.transaction(writes=bool(once)) as tx:
            token = request.form.get("api_token", "").strip()
            if not (tokens.use_login_token(tx, once) if once else tokens.is_active(tx, token)):
                raise not_authenticated(_USED if once else _REFUSED)
            mark = tokens.active_mark(tx)
    except SandboxError as error:
        # One text for every mistake, so that it confirms no part of what was tried.
        refusal = (_USED if once else _REFUSED) if error.status == 401 else error_sentence(error)
        response = site.render("login.html", error.status, to=to, once="", refusal=refusal)
        if error.retry_after_seconds is not None:
            response.headers["Retry-After"] = str(error.retry_after_seconds)
        return response
    session.clear()
    session.permanent = True
    session["token"] = mark
    session["until"] = int(site.service.clock.real.now().timestamp()) + SESSION_SECONDS
    # Only to a page of this blueprint: another address would make the login a way to another site.
    return site.redirect_to(own_address(to), "You are logged in.")


@route("/logout", "POST")
def log_out() -> Response:
    """End the session of this browser."""
    session.clear()
    return site.redirect_to(url_for(".login"), "You are logged out.")


def with_pages(app: WSGIApplication, site_with: Callable[[Pages], Site], key: bytes) -> WSGIApplication:
    """Return `app` with the pages below PAGES_PREFIX, and those of invoices; _ADDRESSES lead to them.

    `key` is secret and signs sessions and forms. The pages are made when one is first asked for: most
    sandboxes are never looked at.
    """
    pages = cache(partial(_create_app, site_with, key))

    def serve(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        is_page = path in _ADDRESSES or path.startswith((f"{PAGES_PREFIX}/", f"{PAGES_PATH}/"))
        return (pages() if is_page else app)(environ, start_response)

    return serve


def _create_app(site_with: Callable[[Pages], Site], key: bytes) -> Flask:
    """Return an app with the pages alone."""
    pages = Pages(
        "sandbox",
        __package__ or "",
        title="billhook sandbox",
        links=_LINKS,
        identify=identify,
        key=lambda: key_for("forms", key),
        filters=_FILTERS,
        functions={"commands": operation_views.commands, "here": here},
    )
    app = Flask("billhook.sandbox.pages", static_folder=None)
    app.session_interface = _Sessions()
    app.config.update(
        MAX_CONTENT_LENGTH=MAX_FORM_BYTES,
        MAX_FORM_MEMORY_SIZE=MAX_FORM_BYTES,
        # Sessions are in a cookie for these pages, out of reach of scripts and other sites.
        SECRET_KEY=key_for("session", key),
        # The port is no part of a cookie's scope: two sandboxes on one machine need two names.
        SESSION_COOKIE_NAME=f"billhook_sandbox_{key_for('cookie name', key).hex()[:8]}",
        SESSION_COOKIE_PATH=f"{PAGES_PREFIX}/",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Strict",
        SESSION_REFRESH_EACH_REQUEST=False,
        PERMANENT_SESSION_LIFETIME=SESSION_SECONDS,
    )
    app.extensions[SITE] = site_with(pages)
    blueprint = pages.blueprint
    blueprint.before_request(_refuse_nul)
    blueprint.register_error_handler(
        SandboxError,
        lambda error: _error_page(error.status, "The sandbox refuses this", error_sentence(error)),
    )
    blueprint.register_error_handler(Exception, _internal_error)
    for rule, method, view in ROUTES:
        blueprint.add_url_rule(rule, view.__name__, view, methods=[method])
    unknown = "There is no page at this address."
    blueprint.add_url_rule("/<path:unknown>", "unknown", lambda **_: abort(404, unknown))
    app.register_blueprint(blueprint, url_prefix=PAGES_PREFIX)
    app.add_url_rule(f"{PAGES_PATH}{INVOICE_PAGE_RULE}", "sandbox.invoice_page", invoice_page)
    app.add_url_rule("/", "start", lambda: redirect(f"{PAGES_PREFIX}/"))
    app.add_url_rule("/openapi", "openapi", lambda: redirect(f"{PAGES_PREFIX}/api"), strict_slashes=False)
    return app


def _refuse_nul() -> None:
    """Refuse a NUL in the address or the form: SQLite's functions end a text there."""
    values = [*request.args.values(), *request.form.values(), request.path]
    if any("\0" in value for value in values):
        abort(400, "The address or the form holds a NUL character.")


def _internal_error(error: Exception) -> Response:
    # The page does not say what failed: the text of an exception may hold a secret.
    logger.error("a page failed with an unexpected error", exc_info=error)
    return _error_page(500, "The sandbox failed", "Its log has the details.")


def _error_page(status: int, name: str, description: str) -> Response:
    return site.pages.render("pages/error.html", status, name=name, description=description)
