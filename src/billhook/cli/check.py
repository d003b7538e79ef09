"""`billhook check`: a signed probe goes through the app, and who answers is told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from billhook.cli.output import print_json, print_table
from billhook.cli.params import as_json
from billhook.cli.where import the_app
from billhook.errors import BillhookError, InboxUnavailable, SchemaMismatch

if TYPE_CHECKING:
    from flask import Flask

    from billhook.assembly import Assembly
    from billhook.cli.post import Answer
    from billhook.receiver.doors import Door
    from billhook.receiver.probe import Probe

__all__ = ["check"]

_EVENT_TYPE = "PingTest"
_BODY = b"{}"
_ENGINES = {
    "thread": "thread: handlers run in threads of the app's own processes",
    "worker": "worker: handlers run in `billhook worker`; see that one is running",
    "celery": "celery: handlers run in Celery's workers; see that one is running",
    "inline": "inline: handlers run within the request, which is for development and tests",
}


@dataclass(frozen=True, slots=True)
class _Finding:
    what: str
    ok: bool
    told: str


@click.command(short_help="Send a signed probe through the app, and say who answers.")
@click.option(
    "--path", metavar="PATH", help="The path that the service was given. Default: each of the app's own."
)
@as_json
def check(path: str | None, as_json: bool) -> None:
    """Check how this app is set up: its inbox, its handlers, and whether deliveries reach the receiver.

    A signed probe goes through all of the app's hooks, and is not stored. What answers in the receiver's
    place (a login hook, CSRF protection, no route) is told with its remedy. Exit code 1 if anything is wrong.

    \b
    Examples:
      flask --app myshop billhook check
      flask --app myshop billhook check --path /webhooks/billing
      billhook check --json
    """
    from billhook.extension import assembly_of

    app = the_app()
    findings = list(_findings(app, assembly_of(app), path))
    well = all(finding.ok for finding in findings)
    if as_json:
        print_json({"ok": well, "checks": [asdict(finding) for finding in findings]})
    else:
        rows = [("ok" if finding.ok else "WRONG", finding.what, finding.told) for finding in findings]
        print_table("", ("", "checked", "found"), rows, whole=["", "checked"])
    if not well:
        sys.exit(1)


def _findings(app: Flask, assembly: Assembly, path: str | None) -> Iterator[_Finding]:
    from billhook.cli.handlers import handler_names
    from billhook.receiver.doors import Door, doors_of

    yield _inbox(assembly)
    names = handler_names(assembly.subscribers)
    none = "none is registered: what comes is stored, and nothing is done with it"
    yield _Finding("handlers", bool(names), f"{len(names)} registered" if names else none)
    yield _Finding("engine", True, _ENGINES[assembly.settings.engine])
    doors = doors_of(app)
    if path is not None:
        there = [door for door in doors if door.path.rstrip("/") == path.rstrip("/")]
        doors = [Door(path, (there or doors)[0].source)]
    known = sorted({door.path for door in doors_of(app)})
    for door in doors:
        yield _probed(app, assembly, door, known)


def _inbox(assembly: Assembly) -> _Finding:
    try:
        assembly.inbox.check_writable()
    except (InboxUnavailable, SchemaMismatch) as error:
        return _Finding("inbox", False, str(error))
    return _Finding("inbox", True, f"{assembly.inbox.database.place} can be written")


def _probed(app: Flask, assembly: Assembly, door: Door, known: list[str]) -> _Finding:
    from billhook.cli.target import AppPoster
    from billhook.receiver.probe import PROBE, Probe

    probe = Probe()
    headers = _signature(assembly, door)
    answer = AppPoster(app, door.path, {PROBE: probe}).post(_BODY, {"X-Webhook-Type": _EVENT_TYPE, **headers})
    ok, told = _verdict(app, door, probe, answer, known, signed=bool(headers))
    return _Finding(f"POST {door.path}", ok, told)


def _signature(assembly: Assembly, door: Door) -> dict[str, str]:
    """Nothing where the source knows public keys only: then the receiver's 401 shows that it was reached."""
    secret = door.source.secrets[0]
    if not isinstance(secret, str):
        return {}
    now = assembly.cycle.clock.now()
    try:
        return dict(door.source.scheme.sign(_BODY, secret, event_type=_EVENT_TYPE, now=now))
    except (BillhookError, ValueError):
        return {}


def _verdict(
    app: Flask, door: Door, probe: Probe, answer: Answer, known: list[str], *, signed: bool
) -> tuple[bool, str]:
    status = answer.status
    if status is None:
        return False, answer.body
    if probe.status is None:
        return False, _answered_by_the_app(app, status, known)
    if probe.status != status:
        return False, (
            f"billhook answered {probe.status}, and a hook or middleware of the app made {status} of it: "
            'an after_request must leave alone what has request.blueprint == "billhook"'
        )
    if status == 200:
        return True, "verified, and answered by billhook (source " + door.source.name + ")"
    if status == 401 and not signed:
        return True, "answered by billhook; only public keys are known here, so no signature could be tried"
    return False, f"billhook itself answered {status}: {answer.body}"


def _answered_by_the_app(app: Flask, status: int, known: list[str]) -> str:
    told = f"{status} came from the app, not from billhook: "
    if status in (404, 405):
        return f"{told}no delivery is taken at this path; they are at {', '.join(known)} (url_prefix)"
    if status == 400 and "csrf" in app.extensions:
        return f'{told}CSRF protection, by its looks: csrf.exempt(app.blueprints["billhook"])'
    kind = "a redirect, such as to a login" if 300 <= status < 400 else "a before_request or an error handler"
    return f'{told}{kind}: let requests with request.blueprint == "billhook" pass'
