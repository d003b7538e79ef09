"""The checks, in one list: `billhook doctor`, `billhook check` and the dashboard's page run some of them.

Also what a check tells where it finds nothing wrong: numbers, ages and sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import click

from billhook.basics.printable import counted
from billhook.basics.version import version_text
from billhook.clock import format_ago, format_duration
from billhook.doctor.configuration import (
    about_gunicorn,
    about_late_options,
    about_notifications,
    about_tokens,
    about_version,
    option_findings,
    secret_file_findings,
    secret_files,
    source_findings,
)
from billhook.doctor.deliveries import (
    about_engine,
    about_handlers,
    about_missing,
    about_subscriptions,
    about_time_outs,
    about_types,
    clock_findings,
    payload_findings,
)
from billhook.doctor.examined import Setup
from billhook.doctor.extensions import about_extensions
from billhook.doctor.finding import LEVELS, Finding, finding_of
from billhook.doctor.inbox import (
    about_conditions,
    about_database,
    about_inbox,
    about_paused,
    about_refusals,
    about_worker,
)
from billhook.doctor.probe import send_probe
from billhook.doctor.queues import about_queues
from billhook.errors import BillhookError
from billhook.inbox.operating.subscriptions import list_subscriptions
from billhook.inbox.watching.judgement import CONDITIONS
from billhook.receiver.blueprint import webhook_routes


def secret_files_text(setup: Setup) -> str:
    """Return the files with secrets, and how old they are."""
    ages = []
    for option, name in secret_files(setup.settings):
        path = Path(name)
        with suppress(OSError):  # what reads a file that is missing says so
            changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            ages.append(f"{option.key}: {path.name}, changed {format_ago(changed, setup.now)}")
    return "; ".join(ages) or "no option names one"


def sources_text(setup: Setup) -> str:
    """Return the schemes of the sources, with how many secrets they have."""
    return "; ".join(
        f"{one.name}: {one.scheme.name}, {counted(len(one.secret_list), 'secret')}"
        for one in setup.load_sources()
    )


def size_text(setup: Setup) -> str:
    """Return the revision of the schema, the size of the inbox, and what its database is."""
    return f"schema {setup.overview.revision}, {setup.inbox.database.facts().size_text}"


def retention_text(setup: Setup) -> str:
    """Return how long bodies and keys are kept."""
    settings = setup.settings
    keys = "for ever" if settings.key_days is None else f"for {settings.key_days:g} days"
    return f"bodies are kept for {settings.retention_days:g} days, keys of deliveries without a time {keys}"


def workers_text(setup: Setup) -> str:
    """Return how many workers are alive, and when the last of them was seen."""
    alive = [one.seen_at for one in setup.overview.workers if one.alive]
    if not alive:
        return "handlers run within the requests"
    return f"{counted(len(alive), 'worker')}, seen {format_ago(max(alive), setup.inbox_now)}"


def server_clock_text(setup: Setup) -> str:
    """Return how far the clocks of this machine and of the database server are apart."""
    if not setup.inbox.database.has_own_clock:
        return "the inbox goes by this machine's clock"
    return f"this machine's is {setup.overview.machine_ahead_seconds:+.1f} s from the database server's"


def clock_text(setup: Setup) -> str:
    """Return the smallest age that a delivery had on receipt."""
    ages = [one.received_at - one.signed_at for one in setup.sample if one.signed_at is not None]
    if not ages:
        return "no delivery says when it was signed"
    seconds = max(0.0, min(ages).total_seconds())
    return f"a delivery comes {format_duration(seconds)} after it is signed, at the least"


def subscriptions_text(setup: Setup) -> str:
    """Return to how many types billhook has subscribed, as far as it remembers."""
    types = {one.event_type for one in list_subscriptions(setup.inbox)}
    if not types:
        return "billhook has subscribed nothing from this inbox, and the service lists no subscriptions"
    return f"billhook has subscribed {counted(len(types), 'type')}"


Runner = Literal["doctor", "page", "check"]
_DOCTOR: frozenset[Runner] = frozenset({"doctor", "page"})
_ALL: frozenset[Runner] = _DOCTOR | {"check"}


class Check(NamedTuple):
    """A question about a set-up, and the commands that ask it; `reads_inbox`: of an inbox that works.

    `well` says what was examined, where nothing was found; without `ask` there is nothing to find.
    """

    name: str
    ask: Callable[[Setup], Iterator[Finding]] | None
    by: frozenset[Runner] = _DOCTOR
    reads_inbox: bool = False
    well: Callable[[Setup], str] | None = None


CHECKS = (
    Check("inbox", about_inbox, _ALL),
    Check(
        "options", lambda setup: option_findings(setup.settings, setup.environ),
        well=lambda setup: f"the engine is {setup.settings.engine}",
    ),
    Check("version", about_version, well=lambda _: version_text()),
    Check("late options", about_late_options, _ALL),
    Check("tokens", about_tokens, _ALL),
    Check("secret files", lambda setup: secret_file_findings(setup.settings), well=secret_files_text),
    Check("notifications", about_notifications, _ALL),
    Check("sources", lambda setup: source_findings(setup.load_sources()), well=sources_text),
    Check("extensions", about_extensions, _ALL),
    Check("database", about_database, reads_inbox=True, well=lambda _: "a commit survives a power failure"),
    Check("schema and size", None, reads_inbox=True, well=size_text),
    Check("retention", None, well=retention_text),
    Check("paused", about_paused, reads_inbox=True, well=lambda _: "no handler is paused"),
    Check(
        "refusals", about_refusals, reads_inbox=True,
        well=lambda setup: f"{counted(sum(setup.overview.refused.values()), 'request')} refused in 24 hours",
    ),
    Check("worker", about_worker, reads_inbox=True, well=workers_text),
    Check("queues", about_queues, frozenset({"doctor"}), reads_inbox=True),
    Check(
        "conditions", about_conditions, reads_inbox=True,
        well=lambda _: f"{len(CONDITIONS)} conditions judged: none of them holds for the set-up",
    ),
    Check("handlers", about_handlers, _ALL),
    Check("names", about_missing, reads_inbox=True, well=lambda _: "what waits has its handler here"),
    Check("time-outs", about_time_outs, well=lambda _: "each handler has one"),
    Check("types", about_types, well=lambda _: "each type that arrived has a handler here"),
    Check("subscriptions", about_subscriptions, reads_inbox=True, well=subscriptions_text),
    Check("gunicorn", about_gunicorn, frozenset({"doctor"})),
    Check(
        "payloads", lambda setup: payload_findings(setup.sample),
        well=lambda setup: "the models list all that the newest "
        f"{counted(len(setup.sample), 'delivery')} have",
    ),
    Check("server clock", None, reads_inbox=True, well=server_clock_text),
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
            routes = [(matching or routes)[0]._replace(path=path)]
        checks += [Check(f"POST {route.path}", partial(send_probe, route=route)) for route in routes]
    for check in checks:
        if check.reads_inbox and setup.unusable:
            continue
        try:
            found = list(check.ask(setup)) if check.ask is not None else []
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
