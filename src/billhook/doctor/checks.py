"""The checks, in one list: `billhook doctor`, `billhook check` and the dashboard's page run some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple

import click

from billhook.doctor import facts
from billhook.doctor.configuration import (
    about_gunicorn,
    about_notifications,
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
    Check("secret files", lambda setup: secret_file_findings(setup.settings), well=facts.secret_files),
    Check("notifications", about_notifications, _ALL),
    Check("sources", lambda setup: source_findings(setup.load_sources()), well=facts.sources),
    Check("database", about_database, reads_inbox=True, well=lambda _: "a commit survives a power failure"),
    Check("schema and size", lambda _: iter(()), reads_inbox=True, well=facts.schema_and_size),
    Check("retention", lambda _: iter(()), well=facts.retention),
    Check("paused", about_paused, reads_inbox=True, well=lambda _: "no handler is paused"),
    Check("refusals", about_refusals, reads_inbox=True, well=facts.refusals),
    Check("worker", about_worker, reads_inbox=True, well=facts.workers),
    Check("handlers", about_handlers, _ALL),
    Check("time-outs", about_time_outs, well=lambda _: "each handler has one"),
    Check("types", about_types, well=lambda _: "each type that arrived has a handler"),
    Check("gunicorn", about_gunicorn, frozenset({"doctor"})),
    Check("payloads", lambda setup: payload_findings(setup.sample), well=facts.payloads),
    Check("clock", lambda setup: clock_findings(setup.sample), well=facts.clock),
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
