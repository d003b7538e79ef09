"""`billhook status`: how the inbox is, the answer first; with thresholds an exit code for cron and probes.

`billhook metrics`: the same for Prometheus, in its text format, printed or into a file.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import click

from billhook.basics.file_modes import replace_text
from billhook.basics.type_names import shown_type
from billhook.basics.version import installed_version, version_text
from billhook.cli.context import load_settings, open_inbox
from billhook.cli.output import CliError, print_json, print_table, printable, say, say_paused, took
from billhook.cli.params import DURATION, Parsed, as_json, flag, option
from billhook.clock import format_ago, format_duration, format_time, parse_duration
from billhook.doctor.status_texts import through_text, types_of_models
from billhook.errors import Draining, OutOfResources
from billhook.errors.program import in_program, program
from billhook.inbox import Inbox
from billhook.inbox.watching.backlog_pace import NOT_STORED
from billhook.inbox.watching.conditions import Facts, Thresholds, number_text
from billhook.inbox.watching.handler_backlogs import RUNS_LIMIT, HandlerBacklog
from billhook.inbox.watching.judgement import Judgement, judge
from billhook.inbox.watching.overview import Overview, read_overview
from billhook.inbox.watching.success import Success

_WATCH_SECONDS = 2.0
_SILENT_NAMES = 3
"""The most silent workers that are named: a handler that kills its worker leaves thousands."""
_REFUSED, _NOT_STORED = "signed-deliveries-are-refused", "deliveries-were-answered-503"
"""The sections of the runbook about refusals, of requests and of verified deliveries."""
_ANSWERED_503 = (*NOT_STORED, OutOfResources.cause, Draining.cause)
_RATE = re.compile(r"([0-9]{1,9})/(?:([0-9]{1,2})\s*)?(h|d)")


def _silence(text: str) -> tuple[str, timedelta]:
    """Parse TYPE=DURATION: an event type, "*" for any, and how long ago its last delivery may be."""
    event_type, equals, duration = text.rpartition("=")
    if not equals or not event_type:
        raise ValueError(f"{text!r} is not TYPE=DURATION, such as InvoiceApproved=26h")
    return event_type, parse_duration(duration)


def _rate(text: str) -> tuple[int, int]:
    """Parse N/h or N/d: a number in an hour or a day."""
    match = _RATE.fullmatch(text)
    hours = 0 if match is None else int(match[2] or 1) * {"h": 1, "d": 24}[match[3]]
    if match is None or not 1 <= hours <= 48:
        raise ValueError(f"{text!r} is not a number in up to 48 hours, such as 10/h or 50/1d")
    return int(match[1]), hours


@click.command()
@option("--max-age AGE", "Fail if an unfinished delivery is older: 90s, 5m, 2h.", DURATION)
@option("--max-dead N", "Fail if more deliveries are dead.", click.IntRange(0))
@option(
    "--max-silence TYPE=AGE",
    "Fail if the last delivery of this type is older, or there was none; * is any type. Repeatable.",
    Parsed("silence", _silence),
    multiple=True,
)
@option(
    "--max-refused N/h", "Fail if more were refused in the last hour: 10/h, 50/1d.", Parsed("rate", _rate)
)
@flag("--details", "Show the figures of each event type and handler too.")
@flag("--watch", "Show it anew every two seconds, until Ctrl-C.")
@as_json
def status(
    max_age: timedelta | None,
    max_dead: int | None,
    max_silence: Sequence[tuple[str, timedelta]],
    max_refused: tuple[int, int] | None,
    details: bool,
    watch: bool,
    as_json: bool,
) -> None:
    """Show how the inbox is: what needs attention, each with the first command to run, and what waits.

    All figures are from the inbox, so they cover every process. Counts are of this hour and the 24 hours
    before it; durations of many attempts are estimated by steps. Refusals are counted within 5 s.

    With thresholds the exit code is 1 if one is crossed, and a line on stderr says which.

    \b
    Examples:
      billhook status
      billhook status --details --watch
      billhook status --max-age 5m --max-dead 0 --max-silence InvoiceApproved=26h --max-refused 10/h
    """
    if watch and as_json:
        raise click.UsageError("choose one of --watch and --json")
    thresholds = Thresholds(max_age, max_dead, dict(max_silence), max_refused)
    with open_inbox() as inbox, suppress(KeyboardInterrupt):
        while watch:
            click.clear()
            _show(inbox, thresholds, as_json=False, details=details)
            time.sleep(_WATCH_SECONDS)
            click.echo()  # between two looks, where nothing is cleared: in a pipe
        if _show(inbox, thresholds, as_json=as_json, details=details):
            sys.exit(1)


def _show(inbox: Inbox, thresholds: Thresholds, *, as_json: bool, details: bool) -> list[str]:
    """Print the state of the inbox; return the thresholds that are crossed."""
    now = inbox.now()
    overview = read_overview(inbox, now)
    settings = load_settings()
    judgement = judge(Facts(inbox, now, settings.engine, settings.notify_file, thresholds, overview))
    lines = judgement.crossed
    if as_json:
        document = asdict(overview)
        for one in document["types"]:
            one["type"] = one.pop("event_type")
        for one in document["workers"]:
            del one["pid_space"], one["pid_ticks"]
        del document["refused_seconds"]
        document |= {"schema": document.pop("revision"), "summary": judgement.sentence, "crossed": lines}
        document["version"] = installed_version()
        document["conditions"] = [
            {"name": one.condition.name, "severity": one.condition.severity, "text": one.text}
            for one in judgement.holding
        ]
        document["not_judged"] = judgement.unjudged
        print_json({"unfinished": overview.backlog.waiting, **document.pop("backlog"), **document})
    else:
        _print(inbox, overview, judgement, details=details)
        say_paused(overview.paused)
    for line in lines:
        say(f"CROSSED {printable(line)}")
    return lines


def _print(inbox: Inbox, overview: Overview, judgement: Judgement, *, details: bool) -> None:
    """Print the answer: what needs attention with the first command to run, and the numbers of now.

    With `details` also those of each type and handler of the last 24 hours.
    """
    at, place = overview.at, printable(inbox.database.display_url)
    click.echo(f"{format_time(at)} UTC  {place}  schema {overview.revision}  {version_text()}")
    problems = [
        (one.detailed, f"{program()} {one.condition.first_command(one.subject)}")
        for one in judgement.problems
    ]
    _print_section(("Needs attention", "first command"), problems)
    if judgement.unjudged or not problems:
        click.echo(printable(judgement.all_well))
    for one in judgement.refusals[:1] if not problems else ():
        click.echo(f"first command: {program()} {one.condition.first_command(one.subject)}")
    _print_section(("", "now", ""), _now_rows(overview), "now")
    states = [*HandlerBacklog("").states, "oldest due", "through"]
    backlogs = [
        (one.name, *(number_text(number, RUNS_LIMIT) if number else "" for number in one.states.values()),
         format_ago(one.oldest_due_at, at), through_text(one, at))
        for one in overview.handler_backlogs
    ]  # fmt: skip
    _print_section(("handler", *states), backlogs, *states)
    if not details:
        return
    names = {"": "(no type)", "*": "unknown types"}
    types = [
        (names.get(one.event_type, shown_type(one.event_type)), one.accepted, one.duplicates or "",
         one.quarantined or "", one.conflicts or "", format_ago(one.last_at, at))
        for one in types_of_models(overview)
    ]  # fmt: skip
    _print_section(("type", "24 h", "duplicates", "quarantined", "conflicts", "last"), types, "24 h")
    handlers = [
        (one.name, Success(one.succeeded, one.dead).text, one.succeeded, one.failed or "", one.dead or "",
         one.discarded or "",
         took(one.p50_seconds), took(one.p95_seconds))
        for one in overview.handlers
    ]  # fmt: skip
    columns = ("handler", "success", "succeeded", "retried", "dead", "discarded", "p50", "p95")
    _print_section(columns, handlers, "success", "succeeded", "p50", "p95")


def _print_section(columns: Sequence[str], rows: Sequence[Sequence[object]], *whole: str) -> None:
    if rows:
        click.echo()
        print_table(columns, rows, whole=whole)


def _named(state: str, owners: Sequence[str]) -> list[str]:
    """Return the workers of a state in words, if there are any."""
    if not owners:
        return []
    names = ", ".join(owners) if len(owners) <= _SILENT_NAMES else f"{len(owners):,}, the last {owners[-1]}"
    return [f"{state}: {names}"]


def _now_rows(overview: Overview) -> list[tuple[str, str, str]]:
    backlog, at = overview.backlog, overview.at
    oldest = ""
    if backlog.oldest_at is not None:
        age = format_duration((at - backlog.oldest_at).total_seconds())
        oldest = f"{backlog.unread} unread; the oldest came {age} ago"
    sections = {_NOT_STORED if cause in _ANSWERED_503 else _REFUSED for cause in overview.refused}
    refused = [
        ", ".join(f"{cause} {number}" for cause, number in overview.refused.items()),
        *(f"{cause} by {seconds:.0f} s on average" for cause, seconds in overview.refused_seconds.items()),
        *(in_program(f"billhook runbook {section}") for section in sorted(sections)),
    ]
    alive = [one for one in overview.workers if one.alive]
    died = [one.owner for one in overview.workers if one.died_at is not None]
    silent = [one.owner for one in overview.workers if not one.alive and one.died_at is None]
    engines = [
        ", ".join(sorted({one.engine for one in alive})),
        *_named("died", died),
        *_named("silent", silent),
    ]
    accepted = sum(one.accepted for one in overview.types)
    last = f"the last {format_ago(overview.last_at, at)}" if overview.last_at else ""
    conflicts = f"{number_text(backlog.conflicts)} in conflict" if backlog.conflicts else ""
    return [
        ("accepted in 24 h", f"{accepted:,}", last),
        ("unfinished", number_text(backlog.waiting), oldest),
        ("dead", number_text(backlog.dead), ""),
        ("quarantined", number_text(backlog.quarantined), conflicts),
        ("refused in 24 h", str(sum(overview.refused.values())), "; ".join(filter(None, refused))),
        ("workers", str(len(alive)), "; ".join(filter(None, engines))),
    ]


@click.command()
@option(
    "-o --output FILE",
    "Replace this file with them in one step, as node_exporter's textfile collector needs it.",
    click.Path(dir_okay=False, path_type=Path),
)
def metrics(output: Path | None) -> None:
    """Print the metrics of the inbox in Prometheus' text format.

    A web app serves the same with billhook.metrics.metrics_blueprint(), the standalone receiver with
    BILLHOOK_METRICS_TOKEN_FILE. Needs the extra metrics.

    \b
    Examples:
      billhook metrics
      billhook metrics --output /var/lib/node_exporter/billhook.prom
    """
    from billhook.metrics import metrics_text

    with open_inbox() as inbox:
        text = metrics_text(inbox, load_settings().engine)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        replace_text(output, text)  # the collector reads no hidden file
    except OSError as error:
        raise CliError(
            f"cannot write {output} ({error.strerror}): choose a file in a folder of yours"
        ) from None
