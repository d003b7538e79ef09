"""The checks, in one list: `billhook doctor`, `billhook check` and the dashboard's page run some of them.

Also what a check tells where it finds nothing wrong (numbers, ages and sizes), and the probe: a signed
delivery through a Flask app, which shows whether it reaches the receiver, and who answers otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from billhook.clock import format_ago, format_duration
from billhook.doctor.configuration import (
    about_gunicorn,
    about_notifications,
    option_findings,
    secret_file_findings,
    secret_files,
    source_findings,
)
from billhook.doctor.deliveries import (
    about_engine,
    about_handlers,
    about_missing,
    about_time_outs,
    about_types,
    clock_findings,
    payload_findings,
)
from billhook.doctor.inbox import (
    about_database,
    about_inbox,
    about_paused,
    about_refusals,
    about_server_clock,
    about_worker,
)
from billhook.doctor.setup import LEVELS, Finding, Setup, finding_of
from billhook.errors import BillhookError
from billhook.inbox.diagnosis import SqliteFacts, inbox_facts
from billhook.posting import AppPoster, HttpReply, sign
from billhook.receiver.blueprint import WebhookRoute, webhook_routes
from billhook.receiver.wsgi import PROBE, DeliveryProbe

if TYPE_CHECKING:
    from flask import Flask


_EVENT_TYPE = "PingTest"
_BODY = b"{}"


def send_probe(setup: Setup, route: WebhookRoute) -> Iterator[Finding]:
    """Send a signed probe to a receiver through all of the app's hooks; it is not stored."""
    app = setup.app
    assert app is not None  # noqa: S101 - the runner has asked
    headers = _sign(setup, route)
    for scheme in ("https", "http"):
        probe = DeliveryProbe()
        # The probe is an object in the WSGI environ, not a header: no request from the network can make one,
        # and the receiver notes in it what it answered, which a hook of the app may change afterwards.
        poster = AppPoster(app, route.path, {PROBE: probe}, scheme)
        answer = poster.post(_BODY, {"X-Forwarded-Proto": "https", **headers})
        ok, text = _judge(app, route, probe, answer, signed=bool(headers))
        if not ok and scheme == "http":  # as a proxy that ends TLS passes a delivery on
            text += "; it came over plain HTTP with X-Forwarded-Proto: https, and over https it is received"
        if not ok:
            break
    yield Finding("ok" if ok else "error", f"POST {route.path}", text)


def _sign(setup: Setup, route: WebhookRoute) -> dict[str, str]:
    """Sign the probe; return nothing if the source has only public keys: then a 401 shows the receiver."""
    secret = route.source.secrets[0]
    if not isinstance(secret, str):
        return {}
    header = route.source.type_header
    try:
        return sign(route.source.scheme, secret, _EVENT_TYPE, _BODY, setup.now, type_header=header)
    except (BillhookError, ValueError):
        return {}


def _judge(
    app: Flask, route: WebhookRoute, probe: DeliveryProbe, answer: HttpReply, *, signed: bool
) -> tuple[bool, str]:
    """Return whether the receiver answered as it should, and what the user is to know or to change."""
    status = answer.status
    if status is None:
        return False, answer.body
    # The order matters: only a request that reached the receiver says anything about the receiver.
    if probe.status is None:
        return False, _answered_by_the_app(app, status)
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


def _answered_by_the_app(app: Flask, status: int) -> str:
    text = f"{status} came from the app, not from billhook: "
    if status in (404, 405):
        known = ", ".join(sorted({route.path for route in webhook_routes(app)}))
        return f"{text}no receiver at this path; the app has {known} (url_prefix)"
    if status == 400 and "csrf" in app.extensions:
        return f'{text}probably CSRF protection: call csrf.exempt(app.blueprints["billhook"])'
    kind = (
        "a redirect, for example to a login page"
        if 300 <= status < 400
        else "a before_request hook or an error handler"
    )
    return f'{text}{kind}: exclude requests with request.blueprint == "billhook" from it'


_MIB = 1024 * 1024


def secret_files_text(setup: Setup) -> str:
    """Return the files with secrets, and how old they are."""
    ages = []
    for option, path in secret_files(setup.settings):
        with suppress(OSError):  # what reads a file that is missing says so
            changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            ages.append(f"{option.key}: {path.name}, changed {format_ago(changed, setup.now)}")
    return "; ".join(ages) or "no option names one"


def sources_text(setup: Setup) -> str:
    """Return the schemes of the sources, with how many secrets they have."""
    return "; ".join(
        f"{one.name}: {one.scheme.name}, {_counted(len(one.secrets), 'secret')}"
        for one in setup.load_sources()
    )


def size_text(setup: Setup) -> str:
    """Return the revision of the schema, the size of the inbox, and what its database is."""
    facts = inbox_facts(setup.inbox)
    schema = f"schema {setup.overview.revision}"
    if isinstance(facts, SqliteFacts):
        version = ".".join(map(str, facts.version))
        sizes = f"{facts.file_bytes / _MIB:,.1f} MiB, {facts.free_bytes // _MIB:,} MiB are free"
        return f"{schema}, {sizes}, SQLite {version} ({facts.library})"
    return f"{schema}, {facts.inbox_bytes / _MIB:,.1f} MiB, PostgreSQL {facts.version}"


def retention_text(setup: Setup) -> str:
    """Return how long bodies and keys are kept."""
    settings = setup.settings
    keys = "for ever" if settings.key_days is None else f"for {settings.key_days:g} days"
    return f"bodies are kept for {settings.retention_days:g} days, keys of deliveries without a time {keys}"


def refusals_text(setup: Setup) -> str:
    """Return how many requests were refused."""
    return f"{_counted(sum(setup.overview.refused.values()), 'request')} refused in 24 hours"


def workers_text(setup: Setup) -> str:
    """Return how many workers are alive, and when the last of them was seen."""
    alive = [one.seen_at for one in setup.overview.workers if one.alive]
    if not alive:
        return "handlers run within the requests"
    return f"{_counted(len(alive), 'worker')}, seen {format_ago(max(alive), setup.inbox_now)}"


def server_clock_text(setup: Setup) -> str:
    """Return how far the clocks of this machine and of the database server are apart."""
    if not setup.inbox.database.is_remote:
        return "the inbox goes by this machine's clock"
    return f"this machine's is {setup.overview.machine_ahead_seconds:+.1f} s from the database server's"


def payloads_text(setup: Setup) -> str:
    """Return how many deliveries were looked at."""
    return f"the models list all that the newest {_counted(len(setup.sample), 'delivery', 'deliveries')} have"


def clock_text(setup: Setup) -> str:
    """Return the smallest age that a delivery had on receipt."""
    ages = [one.received_at - one.signed_at for one in setup.sample if one.signed_at is not None]
    if not ages:
        return "no delivery says when it was signed"
    seconds = max(0.0, min(ages).total_seconds())
    return f"a delivery comes {format_duration(seconds)} after it is signed, at the least"


def _counted(number: int, one: str, more: str = "") -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"


Runner = Literal["doctor", "page", "check"]
_DOCTOR: frozenset[Runner] = frozenset({"doctor", "page"})
_ALL: frozenset[Runner] = _DOCTOR | {"check"}


class Check(NamedTuple):
    """A question about a set-up, and the commands that ask it; `reads_inbox`: of an inbox that works.

    `well` says what was examined, where nothing was found.
    """

    name: str
    ask: Callable[[Setup], Iterator[Finding]]
    by: frozenset[Runner] = _DOCTOR
    reads_inbox: bool = False
    well: Callable[[Setup], str] | None = None


CHECKS = (
    Check("inbox", about_inbox, _ALL),
    Check(
        "options", lambda setup: option_findings(setup.settings, setup.environ),
        well=lambda setup: f"the engine is {setup.settings.engine}",
    ),
    Check("secret files", lambda setup: secret_file_findings(setup.settings), well=secret_files_text),
    Check("notifications", about_notifications, _ALL),
    Check("sources", lambda setup: source_findings(setup.load_sources()), well=sources_text),
    Check("database", about_database, reads_inbox=True, well=lambda _: "a commit survives a power failure"),
    Check("schema and size", lambda _: iter(()), reads_inbox=True, well=size_text),
    Check("retention", lambda _: iter(()), well=retention_text),
    Check("paused", about_paused, reads_inbox=True, well=lambda _: "no handler is paused"),
    Check("refusals", about_refusals, reads_inbox=True, well=refusals_text),
    Check("worker", about_worker, reads_inbox=True, well=workers_text),
    Check("handlers", about_handlers, _ALL),
    Check("names", about_missing, reads_inbox=True, well=lambda _: "what waits has its handler"),
    Check("time-outs", about_time_outs, well=lambda _: "each handler has one"),
    Check("types", about_types, well=lambda _: "each type that arrived has a handler"),
    Check("gunicorn", about_gunicorn, frozenset({"doctor"})),
    Check("payloads", lambda setup: payload_findings(setup.sample), well=payloads_text),
    Check("server clock", about_server_clock, reads_inbox=True, well=server_clock_text),
    Check("clock", lambda setup: clock_findings(setup.sample), well=clock_text),
    Check("engine", about_engine, frozenset({"check"})),
)  # fmt: skip


def run_checks(setup: Setup, runner: Runner, path: str | None = None) -> Iterator[tuple[str, Finding]]:
    """Yield the findings of the checks that the runner asks, each with the name of its check.

    `check` also sends a probe to each receiver of the app, or to `path`.
    """
    checks = [check for check in CHECKS if runner in check.by]
    if runner == "check" and setup.app is not None:
        routes = webhook_routes(setup.app)
        if path is not None:
            matching = [route for route in routes if route.path.rstrip("/") == path.rstrip("/")]
            # Also a path that no receiver has is probed: what answers there instead shows what to change.
            routes = [WebhookRoute(path, (matching or routes)[0].source)]
        checks += [Check(f"POST {route.path}", partial(send_probe, route=route)) for route in routes]
    for check in checks:
        if check.reads_inbox and setup.unusable:
            continue
        try:
            found = list(check.ask(setup))
            if not found and check.well is not None:
                found = [Finding("ok", check.name, check.well(setup))]
            yield from ((check.name, finding) for finding in found)
        except (BillhookError, click.ClickException) as error:
            yield check.name, finding_of(error)


def examine(setup: Setup, runner: Runner) -> tuple[list[Finding], list[tuple[str, Finding]]]:
    """Return what is not well, the worst first, and what is well by check. It changes and sends nothing."""
    every = list(run_checks(setup, runner))
    # Two checks may stumble over the same mistake, such as an app that cannot be loaded.
    found = dict.fromkeys(each for _, each in every if each.level != "ok")
    well = [(name, each) for name, each in every if each.level == "ok"]
    return sorted(found, key=lambda each: LEVELS.index(each.level)), well
