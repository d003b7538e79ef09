"""The session of a browser: begun with the client id and the API token, kept in a signed cookie."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from flask import Flask, Request, Response, abort, redirect, request, session, url_for
from flask.sessions import SecureCookieSessionInterface

from billhook.errors import SandboxError
from billhook.pages.pages import Visitor
from billhook.sandbox import tokens
from billhook.sandbox.errors import not_authenticated
from billhook.sandbox.options import MAX_LOGIN_BYTES
from billhook.sandbox.pages.context import (
    RouteTable,
    error_sentence,
    own_address,
    page_context,
    redirect_to,
    render,
)

SESSION_SECONDS = 8 * 3600
"""A working day, from the login on, by the machine's time."""
ROUTES = RouteTable()
PUBLIC = frozenset({"asset", "login", "log_in", "invoice_page"})
"""The endpoints that need no session. A link that cannot be guessed opens an invoice's page."""

_REFUSED = "the client id or the API token is missing, wrong or revoked"
_USED = "the login address has been used, or a later start has printed another"
_ANONYMOUS = Visitor("", may_act=True)


class _Sessions(SecureCookieSessionInterface):
    def get_cookie_secure(self, app: Flask) -> bool:
        """Return True for a request over TLS: the sandbox is served without it as well."""
        return request.is_secure


def key_for(purpose: str, key: bytes) -> bytes:
    """Return a key for one purpose, from the sandbox's: none of them can stand for another."""
    return hmac.new(key, f"pages {purpose}".encode(), hashlib.sha256).digest()


def configure_sessions(app: Flask, key: bytes, path: str) -> None:
    """Keep sessions in a cookie for the addresses below `path`, out of reach of scripts and other sites."""
    # The port is no part of a cookie's scope: two sandboxes on one machine need two names.
    name = f"billhook_sandbox_{key_for('cookie name', key).hex()[:8]}"
    app.session_interface = _Sessions()
    app.config.update(
        SECRET_KEY=key_for("session", key),
        SESSION_COOKIE_NAME=name,
        SESSION_COOKIE_PATH=path,
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Strict",
        SESSION_REFRESH_EACH_REQUEST=False,
        PERMANENT_SESSION_LIFETIME=SESSION_SECONDS,
    )


def identify() -> Visitor:
    """Return the visitor of the current request; without a session, send the browser to the login."""
    endpoint = (request.endpoint or "").rpartition(".")[2]
    if endpoint in PUBLIC:
        request.max_content_length = MAX_LOGIN_BYTES
        return _ANONYMOUS
    if _is_current():
        return Visitor(page_context().runner.service.options.client_id, may_act=True)
    if endpoint == "reference":  # of the API: it shows nothing of what the sandbox holds
        return _ANONYMOUS
    session.clear()
    # Flask's `abort` raises; the return is for those who read.
    return abort(redirect(url_for(".login", **_place(request)), 303))


def _is_current() -> bool:
    """Return whether the session is within its time, and its API token is still the active one."""
    until, mark = session.get("until"), session.get("token")
    if not isinstance(until, int) or not isinstance(mark, str):
        return False
    runner = page_context().runner
    if runner.service.clock.real.now().timestamp() >= until:
        return False
    with runner.reading() as tx:
        return tokens.active_mark(tx) == mark


def _place(request: Request) -> dict[str, Any]:
    """Return the page to come back to after the login. An action is not repeated."""
    if request.method != "GET" or request.endpoint is None or request.endpoint.endswith(".overview"):
        return {}
    return {"to": request.full_path.rstrip("?")}


@ROUTES.get("/login")
def login() -> Response:
    """Show the form that asks for client id and API token, or the button for the token of the address."""
    # By a button: programs that look at addresses, or load them ahead, must not use the token up.
    once = request.args.get("token", "")
    return render("login.html", to=request.args.get("to", ""), once=once, refusal=None)


@ROUTES.post("/login")
def log_in() -> Response:
    """Begin a session, if client id and API token are right, or the token of the printed address."""
    runner, to, once = page_context().runner, request.form.get("to", ""), request.form.get("token", "")
    try:
        # First: it limits the rate of attempts, whether they are right or not.
        client_id = runner.service.options.client_id if once else request.form.get("client_id", "")
        page_context().authenticator.check_login(client_id)
        with runner.service.transaction(writes=bool(once)) as tx:
            token = request.form.get("api_token", "").strip()
            if not (tokens.use_login_token(tx, once) if once else tokens.is_active(tx, token)):
                raise not_authenticated(_USED if once else _REFUSED)
            mark = tokens.active_mark(tx)
    except SandboxError as error:
        # One text for every mistake, so that it confirms no part of what was tried.
        refusal = (_USED if once else _REFUSED) if error.status == 401 else error_sentence(error)
        response = render("login.html", error.status, to=to, once="", refusal=refusal)
        if error.retry_after_seconds is not None:
            response.headers["Retry-After"] = str(error.retry_after_seconds)
        return response
    session.clear()
    session.permanent = True
    session["token"] = mark
    session["until"] = int(runner.service.clock.real.now().timestamp()) + SESSION_SECONDS
    # Only to a page of this blueprint: another address would make the login a way to another site.
    return redirect_to(own_address(to), "You are logged in.")


@ROUTES.post("/logout")
def log_out() -> Response:
    """End the session of this browser."""
    session.clear()
    return redirect_to(url_for(".login"), "You are logged out.")
