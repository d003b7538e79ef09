"""The checks, in one list: `billhook doctor`, `billhook check` and the dashboard's page run some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple

import click

from billhook.doctor.configuration import (
    about_gunicorn,
    option_findings,
    secret_file_findings,
    source_findings,
)
from billhook.doctor.deliveries import clock_findings, payload_findings
from billhook.doctor.finding import LEVELS, Finding
from billhook.doctor.handlers import about_engine, about_handlers, about_time_outs, about_types
from billhook.doctor.inbox import about_database, about_inbox, about_paused, about_refusals, about_worker
from billhook.doctor.receiver import send_probe
from billhook.doctor.setup import Setup, finding_of
from billhook.errors import BillhookError
from billhook.receiver.blueprint import WebhookRoute, webhook_routes

Runner = Literal["doctor", "page", "check"]
_DOCTOR: frozenset[Runner] = frozenset({"doctor", "page"})
_ALL: frozenset[Runner] = _DOCTOR | {"check"}


class Check(NamedTuple):
    """A question about a set-up, and the commands that ask it; `reads_inbox`: of an inbox that works."""

    name: str
    ask: Callable[[Setup], Iterator[Finding]]
    by: frozenset[Runner] = _DOCTOR
    reads_inbox: bool = False


CHECKS = (
    Check("inbox", about_inbox, _ALL),
    Check("options", lambda setup: option_findings(setup.settings, setup.environ)),
    Check("secret files", lambda setup: secret_file_findings(setup.settings)),
    Check("sources", lambda setup: source_findings(setup.load_sources())),
    Check("database", about_database, reads_inbox=True),
    Check("paused", about_paused, reads_inbox=True),
    Check("refusals", about_refusals, reads_inbox=True),
    Check("worker", about_worker, reads_inbox=True),
    Check("handlers", about_handlers, _ALL),
    Check("time-outs", about_time_outs),
    Check("types", about_types),
    Check("gunicorn", about_gunicorn, frozenset({"doctor"})),
    Check("payloads", lambda setup: payload_findings(setup.sample)),
    Check("clock", lambda setup: clock_findings(setup.sample)),
    Check("engine", about_engine, frozenset({"check"})),
)


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
            yield from ((check.name, finding) for finding in check.ask(setup))
        except (BillhookError, click.ClickException) as error:
            yield check.name, finding_of(error)


def examine(setup: Setup, runner: Runner) -> list[Finding]:
    """Return what is not well, the worst first. It changes nothing and sends nothing."""
    # Two checks may stumble over the same mistake, such as an app that cannot be loaded.
    found = dict.fromkeys(each for _, each in run_checks(setup, runner) if each.level != "ok")
    return sorted(found, key=lambda each: LEVELS.index(each.level))
