"""The examination of an app that runs: findings about options, secrets, inbox, handlers and deliveries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from billhook.doctor.configuration import (
    handler_findings,
    option_findings,
    secret_file_findings,
    source_findings,
)
from billhook.doctor.finding import LEVELS, Finding
from billhook.doctor.inbox import inbox_findings, unusable_inbox
from billhook.doctor.payloads import clock_findings, payload_findings
from billhook.errors import InboxUnavailable, SchemaMismatch

if TYPE_CHECKING:
    from billhook.dispatch import ConnectedHandlers
    from billhook.inbox import Inbox
    from billhook.settings import Settings
    from billhook.signing.source import Source

__all__ = ["SAMPLE", "SAMPLE_BYTES", "examine"]

SAMPLE = 1_000
"""How many of the newest deliveries are looked at, unless asked for others."""
SAMPLE_BYTES = 16 * 1024 * 1024


def examine(
    settings: Settings,
    environ: Mapping[str, str],
    sources: Sequence[Source],
    inbox: Inbox,
    handlers: ConnectedHandlers,
    *,
    own_app: bool,
    now: datetime,
    sample_size: int = SAMPLE,
) -> list[Finding]:
    """Return all findings, the worst first. It changes nothing and sends nothing."""
    from billhook.inbox.diagnosis import newest_deliveries

    found = [*option_findings(settings, environ), *secret_file_findings(settings), *source_findings(sources)]
    try:
        found += inbox_findings(inbox, settings.engine, own_app=own_app, now=now)
        sample = newest_deliveries(inbox, sample_size, SAMPLE_BYTES)
    except (InboxUnavailable, SchemaMismatch) as error:
        found.append(unusable_inbox(error))
        sample = []
    arrived = Counter(each.event_type for each in sample if each.event_type)
    found += [*handler_findings(handlers, arrived), *payload_findings(sample), *clock_findings(sample)]
    return sorted(found, key=lambda each: LEVELS.index(each.level))
