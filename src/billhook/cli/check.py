"""`billhook check`: check the app's configuration, and send a signed probe through it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from billhook.cli.context import load_app
from billhook.cli.output import print_json, print_table
from billhook.cli.params import as_json
from billhook.errors import BillhookError, InboxUnavailable, SchemaMismatch

if TYPE_CHECKING:
    from flask import Flask

    from billhook.cli.posting import HttpReply
    from billhook.receiver.blueprint import WebhookRoute
    from billhook.receiver.probe import DeliveryProbe
    from billhook.state import BillhookState

__all__ = ["check"]

_EVENT_TYPE = "PingTest"
_BODY = b"{}"
_ENGINES = {
    "thread": "thread: handlers run in threads of the app's own processes",
    "worker": "worker: handlers run in `billhook worker`; make sure that one is running",
    "celery": "celery: handlers run in Celery's workers; make sure that one is running",
    "inline": "inline: handlers run within the request: for development and tests only",
}


@dataclass(frozen=True, slots=True)
class _Finding:
    what: str
    ok: bool
    told: str


@click.command(short_help="Check the configuration; send a signed probe through the app.")
@click.option(
    "--path",
    metavar="PATH",
    help="The path that the service posts to. Default: every receiver path of the app.",
)
@as_json
def check(path: str | None, as_json: bool) -> None:
    """Check this app's configuration: its inbox, its handlers, and whether deliveries reach the receiver.

    A signed probe passes through all of the app's hooks and is not stored. If anything else answers in place
    of the receiver (a login hook, CSRF protection, a missing route), the command shows what to change. Exit
    code 1 if anything is wrong.

    \b
    Examples:
      flask --app myshop billhook check
      flask --app myshop billhook check --path /webhooks/billing
      billhook check --json
    """
    from billhook.extension import get_state

    app = load_app()
    findings = list(_findings(app, get_state(app), path))
    well = all(finding.ok for finding in findings)
    if as_json:
        print_json({"ok": well, "checks": [asdict(finding) for finding in findings]})
    else:
        rows = [("ok" if finding.ok else "WRONG", finding.what, finding.told) for finding in findings]
        print_table("", ("", "checked", "found"), rows, whole=["", "checked"])
    if not well:
        sys.exit(1)


def _findings(app: Flask, assembly: BillhookState, path: str | None) -> Iterator[_Finding]:
    from billhook.cli.handlers import handler_names
    from billhook.receiver.blueprint import WebhookRoute, webhook_routes

    yield _inbox(assembly)
    names = handler_names(assembly.handlers)
    none = "none is registered: deliveries are stored, but not handled"
    yield _Finding("handlers", bool(names), f"{len(names)} registered" if names else none)
    yield _Finding("engine", True, _ENGINES[assembly.settings.engine])
    doors = webhook_routes(app)
    if path is not None:
        there = [door for door in doors if door.path.rstrip("/") == path.rstrip("/")]
        doors = [WebhookRoute(path, (there or doors)[0].source)]
    known = sorted({door.path for door in webhook_routes(app)})
    for door in doors:
        yield _probed(app, assembly, door, known)


def _inbox(assembly: BillhookState) -> _Finding:
    try:
        assembly.inbox.check_writable()
    except (InboxUnavailable, SchemaMismatch) as error:
        return _Finding("inbox", False, str(error))
    return _Finding("inbox", True, f"{assembly.inbox.database.display_url} is writable")


def _probed(app: Flask, assembly: BillhookState, door: WebhookRoute, known: list[str]) -> _Finding:
    from billhook.cli.posting import AppPoster
    from billhook.receiver.probe import PROBE, DeliveryProbe

    probe = DeliveryProbe()
    headers = _signature(assembly, door)
    answer = AppPoster(app, door.path, {PROBE: probe}).post(_BODY, {"X-Webhook-Type": _EVENT_TYPE, **headers})
    ok, told = _verdict(app, door, probe, answer, known, signed=bool(headers))
    return _Finding(f"POST {door.path}", ok, told)


def _signature(assembly: BillhookState, door: WebhookRoute) -> dict[str, str]:
    """Sign the probe; return nothing if the source has only public keys: then a 401 shows the receiver."""
    secret = door.source.secrets[0]
    if not isinstance(secret, str):
        return {}
    now = assembly.dispatcher.clock.now()
    try:
        return dict(door.source.scheme.sign(_BODY, secret, event_type=_EVENT_TYPE, now=now))
    except (BillhookError, ValueError):
        return {}


def _verdict(
    app: Flask,
    door: WebhookRoute,
    probe: DeliveryProbe,
    answer: HttpReply,
    known: list[str],
    *,
    signed: bool,
) -> tuple[bool, str]:
    status = answer.status
    if status is None:
        return False, answer.body
    if probe.status is None:
        return False, _answered_by_the_app(app, status, known)
    if probe.status != status:
        return False, (
            f"billhook answered {probe.status}, but a hook or middleware of the app changed it to {status}: "
            'exclude requests with request.blueprint == "billhook" from after_request hooks'
        )
    if status == 200:
        return True, "verified and answered by billhook (source " + door.source.name + ")"
    if status == 401 and not signed:
        return True, "answered by billhook; the source has only public keys, so the probe could not be signed"
    return False, f"billhook answered {status}: {answer.body}"


def _answered_by_the_app(app: Flask, status: int, known: list[str]) -> str:
    told = f"{status} came from the app, not from billhook: "
    if status in (404, 405):
        return f"{told}no receiver at this path; the app has {', '.join(known)} (url_prefix)"
    if status == 400 and "csrf" in app.extensions:
        return f'{told}probably CSRF protection: call csrf.exempt(app.blueprints["billhook"])'
    kind = (
        "a redirect, for example to a login page"
        if 300 <= status < 400
        else "a before_request hook or an error handler"
    )
    return f'{told}{kind}: exclude requests with request.blueprint == "billhook" from it'
