"""What a check examined, in words, where it found nothing wrong: numbers, ages and sizes."""

from __future__ import annotations

from datetime import UTC, datetime

from billhook.clock import format_ago, format_duration
from billhook.doctor.configuration import secret_files as named_files
from billhook.doctor.setup import Setup
from billhook.inbox.diagnosis import SqliteFacts, inbox_facts

_MIB = 1024 * 1024


def secret_files(setup: Setup) -> str:
    """Return the files with secrets, and how old they are."""
    ages = []
    for key, path in named_files(setup.settings):
        changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        ages.append(f"{key}: {path.name}, changed {format_ago(changed, setup.now)}")
    return "; ".join(ages) or "no option names one"


def sources(setup: Setup) -> str:
    """Return the schemes of the sources, with how many secrets they have."""
    return "; ".join(
        f"{one.name}: {one.scheme.name}, {_counted(len(one.secrets), 'secret')}"
        for one in setup.load_sources()
    )


def schema_and_size(setup: Setup) -> str:
    """Return the revision of the schema, and the size of the inbox."""
    facts = inbox_facts(setup.inbox)
    schema = f"schema {setup.overview.revision}"
    if isinstance(facts, SqliteFacts):
        return f"{schema}, {facts.file_bytes / _MIB:,.1f} MiB, {facts.free_bytes // _MIB:,} MiB are free"
    return f"{schema}, {facts.inbox_bytes / _MIB:,.1f} MiB, PostgreSQL {facts.version}"


def retention(setup: Setup) -> str:
    """Return how long bodies and keys are kept."""
    settings = setup.settings
    keys = "for ever" if settings.key_days is None else f"for {settings.key_days:g} days"
    return f"bodies are kept for {settings.retention_days:g} days, keys of deliveries without a time {keys}"


def refusals(setup: Setup) -> str:
    """Return how many requests were refused."""
    return f"{_counted(sum(setup.overview.refused.values()), 'request')} refused in 24 hours"


def workers(setup: Setup) -> str:
    """Return how many workers are alive, and when the last of them was seen."""
    alive = [one.seen_at for one in setup.overview.workers if one.alive]
    if not alive:
        return "handlers run within the requests"
    return f"{_counted(len(alive), 'worker')}, seen {format_ago(max(alive), setup.now)}"


def payloads(setup: Setup) -> str:
    """Return how many deliveries were looked at."""
    return f"the models list all that the newest {_counted(len(setup.sample), 'delivery', 'deliveries')} have"


def clock(setup: Setup) -> str:
    """Return the smallest age that a delivery had on receipt."""
    ages = [one.received_at - one.signed_at for one in setup.sample if one.signed_at is not None]
    if not ages:
        return "no delivery says when it was signed"
    seconds = max(0.0, min(ages).total_seconds())
    return f"a delivery comes {format_duration(seconds)} after it is signed, at the least"


def _counted(number: int, one: str, more: str = "") -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"
