"""The examination: gather settings, app, inbox and sample, and yield the findings about each."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from billhook.cli.context import is_file_missing, load_settings, open_inbox, user_app
from billhook.cli.doctor.configuration import (
    handler_findings,
    option_findings,
    secret_file_findings,
    source_findings,
)
from billhook.cli.doctor.finding import Finding
from billhook.cli.doctor.gunicorn_settings import foreign_file, gunicorn_findings, is_own, read_gunicorn_file
from billhook.cli.doctor.payloads import clock_findings, payload_findings
from billhook.cli.doctor.storage import postgres_findings, sqlite_findings
from billhook.cli.errors import CliError
from billhook.cli.handlers import load_subscribers
from billhook.cli.output import printable
from billhook.cli.replay import missing_worker
from billhook.errors import BillhookError, InboxUnavailable, SchemaMismatch

if TYPE_CHECKING:
    from billhook.inbox import Inbox
    from billhook.inbox.diagnosis import SampledDelivery
    from billhook.settings import Settings
    from billhook.signing.source import Source

__all__ = ["SAMPLE", "examine"]

SAMPLE = 1_000
"""How many of the newest deliveries are looked at, unless asked for others."""
_SAMPLE_BYTES = 16 * 1024 * 1024


def examine(gunicorn_file: Path | None, sample_size: int) -> Iterator[Finding]:
    """Yield all findings. What cannot be loaded is a finding, and the rest is examined all the same."""
    found: list[Finding] = []
    with _noting(found):
        settings = load_settings()
        found += [*option_findings(settings, os.environ), *secret_file_findings(settings)]
        with _noting(found):
            found += source_findings(_sources(settings))
        sample = _examine_inbox(found, sample_size)
        with _noting(found):
            arrived = Counter(each.event_type for each in sample if each.event_type)
            found += handler_findings(load_subscribers(), arrived)
        found += _about_gunicorn(gunicorn_file, settings.deadline_seconds)
        found += [*payload_findings(sample), *clock_findings(sample)]
    # Two parts may stumble over the same mistake, such as an app that cannot be loaded.
    yield from dict.fromkeys(found)


@contextmanager
def _noting(found: list[Finding]) -> Iterator[None]:
    """Add an error that the block raises to the findings."""
    try:
        yield
    except (BillhookError, CliError) as error:
        found.append(
            Finding(
                "error",
                "configuration",
                str(error),
                "billhook does not start, or not as you mean it",
                "correct what it names; `billhook options` lists the options",
            )
        )


def _sources(settings: Settings) -> Sequence[Source]:
    """Return the sources of the user's app, or the one that the options describe. Raises ConfigError."""
    from billhook.errors import MissingSecret
    from billhook.extension import configured_scheme
    from billhook.receiver.blueprint import webhook_routes
    from billhook.settings import read_secrets_file
    from billhook.signing.source import DEFAULT_SOURCE, Source

    app = user_app()
    if app is not None:
        return list({route.source.name: route.source for route in webhook_routes(app)}.values())
    secrets = read_secrets_file(settings.secrets_file) if settings.secrets_file else settings.secrets
    if not secrets:
        raise MissingSecret(DEFAULT_SOURCE)
    return [Source(DEFAULT_SOURCE, configured_scheme(settings), secrets, settings.tolerance_seconds)]


def _examine_inbox(found: list[Finding], sample_size: int) -> Sequence[SampledDelivery]:
    from billhook.inbox.diagnosis import newest_deliveries

    with _noting(found), open_inbox(missing_ok=True) as inbox:
        if is_file_missing(inbox):
            found.append(
                Finding(
                    "warning",
                    "inbox-missing",
                    f"there is no inbox at {inbox.database.display_url} yet",
                    "the first start makes it; if deliveries were stored before, they are elsewhere",
                    "start the receiver, or correct BILLHOOK_INBOX_URL; in a Flask app: flask --app …",
                )
            )
            return ()
        try:
            found += _about_the_inbox(inbox)
            return newest_deliveries(inbox, sample_size, _SAMPLE_BYTES)
        except (InboxUnavailable, SchemaMismatch) as error:
            found.append(
                Finding(
                    "error",
                    "inbox",
                    str(error),
                    "every delivery is answered 503 until it can be stored",
                    "make the database reachable; for its schema run `billhook db upgrade`",
                )
            )
    return ()


def _about_the_inbox(inbox: Inbox) -> Iterator[Finding]:
    from billhook.inbox.diagnosis import SqliteFacts, inbox_facts

    inbox.check_writable()
    facts = inbox_facts(inbox)
    yield from sqlite_findings(facts) if isinstance(facts, SqliteFacts) else postgres_findings(facts)
    for one in inbox.paused_handlers():
        why = f" ({printable(one.why)})" if one.why else ""
        yield Finding(
            "warning", "handler-paused",
            f"{printable(one.name)} is PAUSED since {one.since.strftime('%Y-%m-%d %H:%M:%S UTC')}{why}",
            "no worker calls it, and its deliveries wait", f"billhook handlers resume {printable(one.name)}",
        )  # fmt: skip
    missing = missing_worker(inbox)
    if missing is not None:
        yield Finding(
            "warning", "no-worker", missing.partition(";")[0],
            "deliveries are stored, and no handler is called", missing.partition("; ")[2],
        )  # fmt: skip


def _about_gunicorn(file: Path | None, deadline_seconds: float) -> Iterator[Finding]:
    path = file or Path("gunicorn.conf.py")  # where gunicorn itself looks for it
    if path.is_file():
        # A file that is only found here, not named, must not run code of another user's.
        settings = read_gunicorn_file(path) if file or is_own(path) else foreign_file(path)
        if isinstance(settings, Finding):
            yield settings
        else:
            yield from gunicorn_findings(settings, deadline_seconds)
