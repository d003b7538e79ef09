"""Dashboard: pages of the deliveries of a Flask app, for visitors whom the app permits to look, or to act."""

from __future__ import annotations

import inspect
import logging
import secrets
from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from typing import Any

from flask import Flask, Response, abort, current_app, request
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as AnyResponse

from billhook.basics.printable import first_line
from billhook.dashboard import actions, deliveries, delivery, handlers, health, overview, workers
from billhook.dashboard.context import DashboardContext, last_error, tone
from billhook.doctor.status_texts import through_text, unfinished_text
from billhook.errors import ConfigError, InboxError, SchemaMismatch
from billhook.errors.program import program
from billhook.pages.pages import PageLink, Pages, Visitor
from billhook.receiver.exemptions import CSRF, exempt

logger = logging.getLogger("billhook.dashboard")

Permission = Callable[..., Any]
"""Called in each request, without arguments or with the request: returns whether the visitor may.

True, or the visitor's name, which is then in the record of what was done; anything else is no. It may return
a response instead, such as a redirect to a login, or raise an HTTPException.
"""

Address = str | Callable[[], str]
"""A path or URL, or a function that returns it in each request: `lambda: url_for("auth.logout")`."""

_NAME = "billhook_dashboard"
_LINKS: Mapping[str, tuple[str, ...]] = {
    "overview": (),
    "deliveries": ("delivery", "preview_replay", "replay_selected", "replay"),
    "failures": ("issue",),
    "handlers": ("handler",),
    "workers": (),
    "actions": (),
    "health": (),
}
"""The pages in the navigation, each with those that are reached from there."""
_VIEWS: tuple[tuple[str, str, Callable[..., Response], str], ...] = (
    ("/", "overview", overview.show_overview, "GET"),
    ("/deliveries", "deliveries", deliveries.show_list, "GET"),
    ("/deliveries/replay", "preview_replay", deliveries.preview_replay, "POST"),
    ("/deliveries/replay/confirmed", "replay_selected", deliveries.replay_selected, "POST"),
    ("/deliveries/<int:delivery_id>", "delivery", delivery.show, "GET"),
    ("/deliveries/<int:delivery_id>/body", "body", delivery.send_body, "GET"),
    ("/deliveries/<int:delivery_id>/replay", "replay", delivery.replay_one, "POST"),
    ("/deliveries/<int:delivery_id>/resend", "resend", delivery.resend_one, "POST"),
    ("/deliveries/<int:delivery_id>/postpone", "postpone", delivery.postpone_one, "POST"),
    ("/deliveries/<int:delivery_id>/discard", "discard", delivery.discard_one, "POST"),
    ("/deliveries/<int:delivery_id>/erase", "erase", delivery.erase_one, "POST"),
    ("/failures", "failures", handlers.show_failures, "GET"),
    ("/failures/<issue_id>", "issue", handlers.show_issue, "GET"),
    ("/failures/<issue_id>/replay", "replay_issue", handlers.replay_issue, "POST"),
    ("/failures/<issue_id>/<any(ack, resolve, snooze):verb>", "change_issue", handlers.change, "POST"),
    ("/handlers", "handlers", handlers.show_handlers, "GET"),
    ("/handler", "handler", handlers.show_handler, "GET"),
    ("/handlers/pause", "pause", handlers.pause, "POST"),
    ("/handlers/resume", "resume", handlers.resume, "POST"),
    ("/workers", "workers", workers.show_workers, "GET"),
    ("/workers/hold", "hold", workers.hold, "POST"),
    ("/workers/resume", "resume_worker", workers.resume, "POST"),
    ("/actions", "actions", actions.show_actions, "GET"),
    ("/health", "health", health.show_health, "GET"),
)

_FUNCTIONS = (handlers.issue_tone, last_error, program, through_text, tone, unfinished_text)
"""What the templates may call."""


class Dashboard:
    """Web pages of an app's deliveries, handlers and failures.

    >>> dashboard = Dashboard(may_look=lambda: current_user.is_staff)  # doctest: +SKIP
    >>> dashboard.init_app(app)  # doctest: +SKIP

    `may_look` says who sees the pages, bodies of deliveries included, and `may_act` who of them may also
    replay, discard and pause: see Permission. Without `may_act` the pages are read-only. Each page has a link
    to `app_url`, by default to `/` if the app has such a page, and one to `log_out_url` if that is given.
    """

    def __init__(
        self,
        may_look: Permission | None = None,
        may_act: Permission | None = None,
        *,
        app_url: Address | None = None,
        log_out_url: Address | None = None,
    ) -> None:
        self._may_look = may_look
        self._may_act = may_act
        self._app_url = _address(app_url) if app_url is not None else _root_of_app
        self._log_out_url = _address(log_out_url)

    def init_app(self, app: Flask, url_prefix: str = "/billhook") -> None:
        """Add the pages to an app below `url_prefix`. Raises ConfigError without `may_look`.

        The app needs a Billhook by its first request, and a `secret_key` where several processes serve it.
        """
        if self._may_look is None:
            raise ConfigError(
                "the dashboard shows customers' data, so it is not mounted without may_look: "
                "Dashboard(may_look=lambda: current_user.is_staff), or who else may see it"
            )
        if _NAME in app.blueprints:
            raise ConfigError("this app has a dashboard already: call init_app once")
        own_key = secrets.token_bytes(32)
        pages = Pages(
            _NAME,
            "billhook.dashboard",
            title="billhook",
            links=[PageLink(name, name.title(), also) for name, also in _LINKS.items()],
            identify=partial(_identify, _checked(self._may_look), _checked(self._may_act)),
            key=lambda: current_app.secret_key or own_key,
            live=True,
            ways_out={"To the app": self._app_url, "Log out": self._log_out_url},
            filters={"first_line": first_line, "last_error": last_error},
            functions={each.__name__: each for each in _FUNCTIONS},
        )
        context = DashboardContext(pages)
        for rule, name, view, method in _VIEWS:
            # No redirects: their Location would contain the host that the request names.
            pages.blueprint.add_url_rule(
                rule,
                name,
                update_wrapper(partial(view, context), view),  # extensions ask views for their names
                methods=[method],
                strict_slashes=False,
                merge_slashes=False,
            )

        def storage_failed(error: Exception) -> Response:
            return pages.render("pages/error.html", 503, name="Storage failed", description=str(error))

        for failure in (InboxError, SchemaMismatch):
            pages.blueprint.register_error_handler(failure, storage_failed)

        @pages.blueprint.url_value_preprocessor
        def exempt_forms(*_: object) -> None:
            # The app's own check does not know the tokens of these forms. It may be initialised after this.
            exempt(app, pages.blueprint, CSRF)

        app.register_blueprint(pages.blueprint, url_prefix="/" + url_prefix.strip("/"))


def _address(given: Address | None) -> Callable[[], str | None]:
    """Return a function for an address."""
    return given if callable(given) else lambda: given


def _root_of_app() -> str | None:
    """Return the address of the app's first page; None if it has none that can be asked for."""
    adapter = current_app.create_url_adapter(request)
    if adapter is None or not adapter.test("/", "GET"):
        return None
    return f"{request.script_root}/"


def _checked(permission: Permission | None) -> Callable[[], Any]:
    """Return the permission as a function without arguments. Raises ConfigError for another signature."""
    if permission is None:
        return lambda: False
    if not callable(permission):
        raise ConfigError(f"may_look and may_act are functions, got {type(permission).__name__}")
    signature = inspect.signature(permission)
    for arguments in ((), (request,)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return partial(permission, *arguments)
    raise ConfigError(f"may_look and may_act take no argument, or the request: got {signature}")


def _identify(may_look: Callable[[], Any], may_act: Callable[[], Any]) -> Visitor:
    """Return the visitor of the current request. Raises HTTPException if the visitor may not look."""
    try:
        _ = request.authorization  # parse it now, because `may_look` may read it
    except ValueError:
        abort(400, "The Authorization header cannot be read.")
    looking = may_look()
    if isinstance(looking, AnyResponse):
        abort(looking)
    if not _is_yes(looking):
        abort(403, "You may not look at these pages.")
    try:
        acting = may_act()
    except HTTPException:
        acting = False
    names = [one for one in (acting, looking, request.remote_user) if isinstance(one, str) and one]
    return Visitor(names[0] if names else "unknown", _is_yes(acting))


def _is_yes(answer: object) -> bool:
    """Return True for True and for a name. An object does not count: an anonymous user is an object too."""
    if answer is True or (isinstance(answer, str) and answer):
        return True
    if answer is not False and answer is not None and answer != "" and not isinstance(answer, AnyResponse):
        logger.error(
            "may_look or may_act returned a %s, which is refused: return True or a name",
            type(answer).__name__,
        )
    return False
