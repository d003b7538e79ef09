"""The pages as an application of their own, beside the API: other errors, cookies and headers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, abort, redirect, request
from werkzeug.exceptions import NotFound

from billhook.errors import SandboxError
from billhook.pages.pages import PageLink, Pages
from billhook.sandbox.billing.invoices.invoice_records import PAGES_PATH
from billhook.sandbox.http.requests import Authenticator
from billhook.sandbox.pages import customer_views, event_views, invoice_views, session, webhook_views
from billhook.sandbox.pages.context import (
    EXTENSION_KEY,
    OperationRunner,
    PageContext,
    error_sentence,
    page_context,
)
from billhook.sandbox.pages.invoice_views import INVOICE_PAGE_RULE, invoice_page
from billhook.sandbox.pages.texts import (
    STATUS_TEXTS,
    STATUS_TONES,
    clipped,
    format_amount,
    format_percent,
    job_text,
    with_texts,
)

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PAGES_PREFIX = "/pages"
"""The addresses of the pages begin with it: those of the API have the rest."""
MAX_FORM_BYTES = 2 * 1024 * 1024
_LINKS = (
    PageLink("overview", "Overview"),
    PageLink("events", "Timeline"),
    PageLink("customers", "Customers"),
    PageLink("contracts", "Contracts"),
    PageLink("usage", "Usage"),
    PageLink("invoices", "Invoices"),
    PageLink("credit", "Credits"),
    PageLink("trigger", "Trigger"),
    PageLink("webhooks", "Webhooks"),
    PageLink("secrets", "Secrets"),
)
VIEWS = (session, event_views, customer_views, invoice_views, webhook_views)
"""The modules of views: each has a table ROUTES."""
_FILTERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "amount": format_amount,
        "clip": clipped,
        "job": job_text,
        "percent": format_percent,
        "status_text": lambda name: STATUS_TEXTS.get(name, name),
        "status_tone": STATUS_TONES.get,
        "zipped": with_texts,
    }
)

logger = logging.getLogger("billhook.sandbox")


def with_pages(
    app: WSGIApplication, runner: OperationRunner, authenticator: Authenticator, key: bytes
) -> WSGIApplication:
    """Return `app` with the pages below PAGES_PREFIX, and those of invoices; `/` leads to them.

    `key` is secret and signs sessions and forms. The pages are made when one is first asked for: most
    sandboxes are never looked at.
    """
    lock = threading.Lock()
    made: list[Flask] = []

    def serve(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path not in ("/", PAGES_PREFIX) and not path.startswith((f"{PAGES_PREFIX}/", f"{PAGES_PATH}/")):
            return app(environ, start_response)
        with lock:
            if not made:
                made.append(_create_app(runner, authenticator, key))
        return made[0](environ, start_response)

    return serve


def _create_app(runner: OperationRunner, authenticator: Authenticator, key: bytes) -> Flask:
    """Return an app with the pages alone."""
    pages = Pages(
        "sandbox",
        __package__ or "",
        title="billhook sandbox",
        links=_LINKS,
        identify=session.identify,
        key=lambda: session.key_for("forms", key),
        filters=_FILTERS,
    )
    app = Flask("billhook.sandbox.pages", static_folder=None)
    app.config.update(MAX_CONTENT_LENGTH=MAX_FORM_BYTES, MAX_FORM_MEMORY_SIZE=MAX_FORM_BYTES)
    session.configure_sessions(app, key, f"{PAGES_PREFIX}/")
    app.extensions[EXTENSION_KEY] = PageContext(runner, authenticator, pages)
    blueprint = pages.blueprint
    blueprint.before_request(_refuse_nul)
    blueprint.register_error_handler(SandboxError, _sandbox_error)
    blueprint.register_error_handler(Exception, _internal_error)
    for views in VIEWS:
        views.ROUTES.register(blueprint)
    blueprint.add_url_rule("/<path:unknown>", "unknown", _unknown)
    app.register_blueprint(blueprint, url_prefix=PAGES_PREFIX)
    app.add_url_rule(f"{PAGES_PATH}{INVOICE_PAGE_RULE}", "sandbox.invoice_page", invoice_page)
    app.add_url_rule("/", "start", lambda: redirect(f"{PAGES_PREFIX}/"))
    return app


def _refuse_nul() -> None:
    """Refuse a NUL in the address or the form: SQLite's functions end a text there."""
    values = [*request.args.values(), *request.form.values(), request.path]
    if any("\0" in value for value in values):
        abort(400, "The address or the form holds a NUL character.")


def _sandbox_error(error: SandboxError) -> Response:
    return _error_page(error.status, "The sandbox refuses this", error_sentence(error))


def _internal_error(error: Exception) -> Response:
    # The page does not say what failed: the text of an exception may hold a secret.
    logger.error("a page failed with an unexpected error", exc_info=error)
    return _error_page(500, "The sandbox failed", "Its log has the details.")


def _error_page(status: int, name: str, description: str) -> Response:
    return page_context().pages.render("pages/error.html", status, name=name, description=description)


def _unknown(unknown: str) -> Response:
    raise NotFound("There is no page at this address.")
