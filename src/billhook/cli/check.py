"""`billhook check`: check the app's configuration, and send a signed probe through it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import click

from billhook.cli.context import environment, load_app, reject_handlers_argument, user_app
from billhook.cli.output import print_json, print_table
from billhook.cli.params import as_json, handlers_argument
from billhook.doctor.inbox import live_workers
from billhook.errors import BillhookError, InboxUnavailable, SchemaMismatch
from billhook.program import in_program

if TYPE_CHECKING:
    from flask import Flask

    from billhook.cli.posting import HttpReply
    from billhook.inbox.figures import WorkerFigures
    from billhook.receiver.blueprint import WebhookRoute
    from billhook.receiver.wsgi import DeliveryProbe
    from billhook.state import BillhookState

_EVENT_TYPE = "PingTest"
_BODY = b"{}"
_ENGINES = {
    "thread": "thread: handlers run in threads of the app's own processes",
    "worker": "worker: handlers run in `billhook worker`; make sure that one is running",
    "celery": "celery: handlers run in Celery's workers; make sure that one is running",
    "inline": "inline: handlers run within the request: for development and tests only",
}
_STANDALONE = (
    "worker: `billhook serve` starts one, and handlers run in it; under a gunicorn of your own they run in "
    "threads of its processes"
)


@dataclass(frozen=True, slots=True)
class _Finding:
    what: str
    ok: bool
    told: str  # the name is a key of the JSON output


@click.command(short_help="Check the configuration; send a signed probe through the app.")
@handlers_argument
@click.option(
    "--path",
    metavar="PATH",
    help="The path that the service posts to. Default: every receiver path of the app.",
)
@as_json
def check(handlers: Sequence[str], path: str | None, as_json: bool) -> None:
    """Check this app's configuration: its inbox, its handlers, and whether deliveries reach the receiver.

    HANDLERS are modules or .py files, as `worker` takes them; the default is BILLHOOK_HANDLERS.

    A signed probe passes through all of the app's hooks and is not stored. If anything else answers in place
    of the receiver (a login hook, CSRF protection, a missing route), the command shows what to change. Exit
    code 1 if anything is wrong.

    \b
    Examples:
      flask --app myshop billhook check
      flask --app myshop billhook check --path /webhooks/billing
      billhook check billing.py --json
    """
    from billhook.extension import get_state

    reject_handlers_argument(handlers)
    app = load_app(environment(handlers))
    findings = [replace(each, told=in_program(each.told)) for each in _findings(app, get_state(app), path)]
    well = all(finding.ok for finding in findings)
    if as_json:
        print_json({"ok": well, "checks": [asdict(finding) for finding in findings]})
    else:
        rows = [("ok" if finding.ok else "WRONG", finding.what, finding.told) for finding in findings]
        print_table("", ("", "checked", "found"), rows, whole=["", "checked"])
    if not well:
        sys.exit(1)


def _findings(app: Flask, state: BillhookState, path: str | None) -> Iterator[_Finding]:
    from billhook.cli.handlers import handler_names
    from billhook.receiver.blueprint import WebhookRoute, webhook_routes

    yield _check_inbox(state)
    names = handler_names(state.handlers)
    working = live_workers(state.inbox, state.dispatcher.clock.now())
    yield _check_handlers(names, working)
    engine = working[0].engine if working else state.settings.engine
    standalone = engine == "thread" and user_app() is None
    yield _Finding("engine", True, _STANDALONE if standalone else _ENGINES[engine])
    routes = webhook_routes(app)
    if path is not None:
        matching = [route for route in routes if route.path.rstrip("/") == path.rstrip("/")]
        # Also a path that no receiver has is probed: what answers there instead shows what to change.
        routes = [WebhookRoute(path, (matching or routes)[0].source)]
    known = sorted({route.path for route in webhook_routes(app)})
    for route in routes:
        yield _send_probe(app, state, route, known)


def _check_handlers(names: Collection[str], working: Sequence[WorkerFigures]) -> _Finding:
    if names:
        return _Finding("handlers", True, f"{len(names)} registered")
    if working:
        text = f"a worker that runs has {working[0].handlers}; to check them, name them: billhook check FILE"
        return _Finding("handlers", True, text)
    text = "none is registered: deliveries are stored, but not handled"
    if user_app() is None:
        text += "; name your modules or files as arguments, or in BILLHOOK_HANDLERS"
    return _Finding("handlers", False, text)


def _check_inbox(state: BillhookState) -> _Finding:
    try:
        state.inbox.check_writable()
    # Findings, not the command's end: the other checks do not need an inbox, and their results help as well.
    except (InboxUnavailable, SchemaMismatch) as error:
        return _Finding("inbox", False, str(error))
    return _Finding("inbox", True, f"{state.inbox.database.display_url} is writable")


def _send_probe(app: Flask, state: BillhookState, route: WebhookRoute, known: list[str]) -> _Finding:
    from billhook.cli.posting import AppPoster
    from billhook.receiver.wsgi import PROBE, DeliveryProbe

    headers = _sign(state, route)
    for scheme in ("https", "http"):
        probe = DeliveryProbe()
        # The probe is an object in the WSGI environ, not a header: no request from the network can make one,
        # and the receiver notes in it what it answered, which a hook of the app may change afterwards.
        poster = AppPoster(app, route.path, {PROBE: probe}, scheme)
        answer = poster.post(_BODY, {"X-Webhook-Type": _EVENT_TYPE, "X-Forwarded-Proto": "https", **headers})
        ok, text = _judge(app, route, probe, answer, known, signed=bool(headers))
        if not ok and scheme == "http":  # as a proxy that ends TLS passes a delivery on
            text += "; it came over plain HTTP with X-Forwarded-Proto: https, and over https it is received"
        if not ok:
            break
    return _Finding(f"POST {route.path}", ok, text)


def _sign(state: BillhookState, route: WebhookRoute) -> dict[str, str]:
    """Sign the probe; return nothing if the source has only public keys: then a 401 shows the receiver."""
    secret = route.source.secrets[0]
    if not isinstance(secret, str):
        return {}
    now = state.dispatcher.clock.now()
    try:
        return dict(route.source.scheme.sign(_BODY, secret, event_type=_EVENT_TYPE, now=now))
    except (BillhookError, ValueError):
        return {}


def _judge(
    app: Flask,
    route: WebhookRoute,
    probe: DeliveryProbe,
    answer: HttpReply,
    known: list[str],
    *,
    signed: bool,
) -> tuple[bool, str]:
    """Return whether the receiver answered as it should, and what the user is to know or to change."""
    status = answer.status
    if status is None:
        return False, answer.body
    # The order matters: only a request that reached the receiver says anything about the receiver.
    if probe.status is None:
        return False, _answered_by_the_app(app, status, known)
    if probe.status != status:
        return False, (
            f"billhook answered {probe.status}, but a hook or middleware of the app changed it to {status}: "
            'exclude requests with request.blueprint == "billhook" from after_request hooks'
        )
    if status == 200:
        return True, "verified and answered by billhook (source " + route.source.name + ")"
    if status == 401 and not signed:
        return True, "answered by billhook; the source has only public keys, so the probe could not be signed"
    return False, f"billhook answered {status}: {probe.reason or answer.body}"


def _answered_by_the_app(app: Flask, status: int, known: list[str]) -> str:
    text = f"{status} came from the app, not from billhook: "
    if status in (404, 405):
        return f"{text}no receiver at this path; the app has {', '.join(known)} (url_prefix)"
    if status == 400 and "csrf" in app.extensions:
        return f'{text}probably CSRF protection: call csrf.exempt(app.blueprints["billhook"])'
    kind = (
        "a redirect, for example to a login page"
        if 300 <= status < 400
        else "a before_request hook or an error handler"
    )
    return f'{text}{kind}: exclude requests with request.blueprint == "billhook" from it'
