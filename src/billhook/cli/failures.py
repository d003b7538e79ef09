"""`billhook failures`: what is wrong, as issues; `notify`: tests addresses; `actions`: what operators did."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from shlex import quote

import click

from billhook.cli.context import load_settings, open_inbox, operator
from billhook.cli.output import CliError, print_json, print_table, printable, say
from billhook.cli.params import DURATION, TEXT, DefaultGroup, as_json, moment, option, paged
from billhook.cli.selection import recording
from billhook.clock import format_ago, format_time
from billhook.doctor.causes import find_causes
from billhook.engines.watch import Watch
from billhook.errors.program import in_program, no_variables
from billhook.inbox import Inbox
from billhook.inbox.operating.actions import Action, issues_acted_on, list_actions
from billhook.inbox.reading.handler_shares import first_release, read_share
from billhook.inbox.watching.conditions import number_text
from billhook.inbox.watching.issue_hours import by_hour
from billhook.inbox.watching.issue_updates import resolves_text, update_issues
from billhook.inbox.watching.issues import (
    Issue,
    IssueState,
    change_issue,
    count_replayable,
    find_issue,
    issue_ids,
    list_issues,
    newest_traceback,
)
from billhook.inbox.watching.judgement import condition_of
from billhook.inbox.watching.occurrences import IssueKind
from billhook.inbox.watching.overview import read_overview
from billhook.inbox.watching.snoozes import COUNTED, MOST_MORE
from billhook.notify import Writer, read_addresses

_SHOWN = (IssueState.OPEN, IssueState.ACKNOWLEDGED, IssueState.SNOOZED)
_SHORTEST_ID = 4
_ids = click.argument("ids", type=TEXT, nargs=-1, required=True, metavar="ISSUE...")
_reason = option("--reason TEXT", "The reason, shown wherever the issue is.")


@click.group(cls=DefaultGroup, default="list", subcommand_metavar="| COMMAND [ARGS]...")
def failures() -> None:
    """List what is wrong (the default): failures by their bug, dead runs, quarantine, workers that are gone.

    Failures of one bug are one issue, whichever customers they were for. An issue opens when it happens
    first, and again when it happens after it was resolved. It is resolved by itself when no run is dead or
    retried because of it, and an hour has been quiet.

    \b
    Examples:
      billhook failures
      billhook failures show 3f1c0a9b2d4e
      billhook failures ack 3f1c0a9b2d4e --reason "the bank is down, ticket 4711"
      billhook failures snooze 3f1c0a9b2d4e --for 2h
      billhook failures resolve 3f1c0a9b2d4e
    """


@failures.command("list", short_help="List the issues that are not resolved.")
@option(
    "--state states",
    "Only issues in this state; may be repeated. The default is all but resolved.",
    click.Choice([state.value for state in IssueState]),
    multiple=True,
)
@as_json
def list_(states: Sequence[str], as_json: bool) -> None:
    """List issues, the open ones first, then the latest.

    \b
    Examples:
      billhook failures list
      billhook failures list --state resolved
      billhook failures list --json | jq '.[] | select(.kind == "failure") | .title'
    """
    with open_inbox() as inbox:
        now = inbox.now()
        update_issues(inbox, now)
        found = list_issues(inbox, [IssueState(state) for state in states] or _SHOWN)
        hours = by_hour(inbox, found, now) if as_json else {}
        backlog = None if found or states or as_json else read_overview(inbox, now).backlog
    if as_json:
        print_json([{**_document(one, now), "hours": hours.get(one.id)} for one in found])
        return
    if not found:
        click.echo(f"no issue is {' or '.join(states or ['open'])}")
        # What is left of resolved issues: `billhook status` shows it, and sends its reader here.
        numbers = {} if backlog is None else {"dead": backlog.dead, "quarantined": backlog.quarantined}
        for state, number in numbers.items():
            if number:
                deliveries = "1 delivery is" if number == 1 else f"{number_text(number)} deliveries are"
                say(in_program(f"{deliveries} {state} still: `billhook deliveries list --state {state}`"))
        return
    columns = ("issue", "state", "count", "last", "of", "what", "newest")
    rows = [
        (one.id, one.standing(now), f"{one.count:,}", format_ago(one.last_at, now), one.subject, _what(one),
         _example(one, one.examples[0]) if one.examples else None)
        for one in found
    ]  # fmt: skip
    print_table(columns, rows, whole=columns[:4], cut="what", optional=["newest"], spare=["newest"])
    say(in_program(f"`billhook failures show {found[0].id}` shows one"))


@failures.command(short_help="Show an issue with its newest traceback.")
@click.argument("id_", type=TEXT, metavar="ISSUE")
@as_json
def show(id_: str, as_json: bool) -> None:
    """Show an issue: since when, how often, what its events have in common, a traceback, and what to do.

    The first characters of its id are enough, four or more, where no other issue begins with them.

    \b
    Example:
      billhook failures show 3f1c0a9b2d4e
    """
    with open_inbox() as inbox:
        now = inbox.now()
        update_issues(inbox, now)
        one = _find(inbox, id_)
        newest = newest_traceback(inbox, one.id)
        hours = by_hour(inbox, [one], now).get(one.id)
        share, since_release = read_share(inbox, one), first_release(inbox, one.id)
        causes = find_causes(inbox, one)
        resolves = resolves_text(one, count_replayable(inbox, one), now)
    if as_json:
        more = {
            "hours": hours,
            "share": share and asdict(share),
            "since_release": since_release,
            "causes": [each._asdict() for each in causes],
        }
        print_json({**_document(one, now), **more, "traceback": newest and newest[1]})
        return
    click.echo(f"{one.id}  {one.standing(now).upper()}  {printable(_what(one))}")
    facts = [
        ("every error", one.title if one.heading != one.title else None),
        *_facts(one, now, hours or []),
        ("release", f"since {since_release}" if since_release else None),
        ("share", f"{share.text} of the handler's deliveries" if share else None),
        ("resolves", resolves),
    ]
    for name, text in facts:
        if text:
            click.echo(f"{name:>12}  {printable(text)}")
    if causes:
        click.echo()
        print_table(
            ("in common", "value", "failed", "succeeded"),
            [
                (each.field, each.value, f"{each.failed:,} of {each.of_failed:,}",
                 f"{each.succeeded:,} of {each.of_succeeded:,}")
                for each in causes
            ],
            whole=("failed", "succeeded"),
        )  # fmt: skip
    if newest is not None:
        click.echo(f"\nnewest, of delivery {newest[0]}:")
        click.echo(printable(newest[1].rstrip(), keep="\n\t"))
    click.echo()
    for name, command in _hints(one):
        click.echo(f"{name:>12}  {in_program(f'billhook {printable(command)}')}")


@failures.command(short_help="Say that an issue is worked on.")
@_ids
@option("--to NAME", "Who works on them; you, if it is left out.")
@_reason
def ack(ids: tuple[str, ...], to: str | None, reason: str | None) -> None:
    """Acknowledge issues: they are worked on, and nothing is sent about them again.

    \b
    Examples:
      billhook failures ack 3f1c0a9b2d4e --reason "the bank is down, ticket 4711"
      billhook failures ack 3f1c0a9b2d4e --to grace
    """
    _change(ids, "ack", IssueState.ACKNOWLEDGED, reason, to=to)


@failures.command(short_help="Say that an issue is mended.")
@_ids
@_reason
def resolve(ids: tuple[str, ...], reason: str | None) -> None:
    """Resolve issues: each is open again when it happens again.

    Dead runs stay dead: replay them, as `billhook failures show` says.

    \b
    Example:
      billhook failures resolve 3f1c0a9b2d4e --reason "mended in release 2.4"
    """
    _change(ids, "resolve", IssueState.RESOLVED, reason)


@failures.command(short_help="Snooze an issue for a time, or until it happens more often.")
@_ids
@option(
    "--for duration", "For how long: 90s, 30m, 2h, 7d or 1w. Default: 7d; with --until-more 30d.", DURATION
)
@option("--until-more N more", "Until it has happened N more times.", click.IntRange(1, MOST_MORE))
@_reason
def snooze(ids: tuple[str, ...], duration: timedelta | None, more: int | None, reason: str | None) -> None:
    """Snooze issues: nothing is sent about them, and they are no reason for a warning.

    Each comes back by itself, as an issue that opens: at its time, unless nothing of it is left, or when it
    has happened N more times, if that is earlier. What is critical is shown all the same.

    \b
    Examples:
      billhook failures snooze 3f1c0a9b2d4e --for 2h --reason "the bank is down until noon"
      billhook failures snooze 3f1c0a9b2d4e --until-more 10
    """
    if duration is None and more is None:
        duration = timedelta(days=7)
    _change(ids, "snooze", IssueState.SNOOZED, reason, duration, more=more)


def _change(
    ids: Sequence[str],
    what: str,
    state: IssueState,
    reason: str | None,
    duration: timedelta | None = None,
    to: str | None = None,
    more: int | None = None,
) -> None:
    with open_inbox() as inbox:
        now = inbox.now()
        try:
            until = None if duration is None else now + duration
        except OverflowError:
            raise click.BadParameter("that is beyond the year 9999", param_hint="--for") from None
        found = [_find(inbox, id_) for id_ in ids]  # all are checked before the first is changed
        for one in found:
            if more is not None and one.kind not in COUNTED:
                raise CliError(f"{one.id} does not happen a number of times: give the time with --for")
        for one in found:
            with recording(inbox, what, f"issue {one.id}" + (f" to {to}" if to else "")):
                change_issue(
                    inbox, one.id, state, now, who=to or operator(), why=reason, until=until, more=more
                )
            changed = find_issue(inbox, one.id) or one
            end = f" {changed.snooze_text}" if changed.snooze_text else ""
            click.echo(f"{one.id} is {state.value}{end}: {printable(_what(one))}")


def _find(inbox: Inbox, id_: str) -> Issue:
    ids = issue_ids(inbox, id_) if len(id_) >= _SHORTEST_ID else []
    if len(ids) > 1:
        raise CliError(f"{id_} is how {len(ids)} issues begin, write one of them: {', '.join(ids)}")
    one = find_issue(inbox, ids[0] if ids else id_)
    if one is None and len(id_) < _SHORTEST_ID:
        raise CliError(
            f"{printable(id_)} is too short: write {_SHORTEST_ID} characters of the issue's id, or more"
        )
    if one is None:
        raise CliError(f"there is no issue {printable(id_)}: see `billhook failures list`")
    return one


def _document(one: Issue, now: datetime) -> dict[str, object]:
    document = asdict(one) | {"live": one.is_live(now)}
    del document["is_left"]  # a part of what "live" says
    return document


def _what(one: Issue) -> str:
    return one.heading if one.place is None else f"{one.heading} ({one.place})"


def _facts(one: Issue, now: datetime, hours: Sequence[int]) -> list[tuple[str, str | None]]:
    """Return what is known of an issue, by name; None where it has no such fact."""
    label = "event type" if one.subject_is_type else "handler"
    times = attempts = blocks = deliveries = None
    if one.first_at is not None and one.last_at is not None:
        times = f"{format_ago(one.first_at, now)}, {format_ago(one.last_at, now)}"
    if one.kind is IssueKind.FAILURE:
        attempts = f"{one.count:,} failed, {sum(hours):,} of them in {len(hours)} h"
        if any(hours):
            # A block for each number, as high as it is of the highest; a point for 0.
            blocks = "".join("·▁▂▃▄▅▆▇█"[-(-8 * number // max(hours))] for number in hours)
            blocks += f"  in {len(hours)} h, until now"
    if one.deliveries:
        newest = ", ".join(_example(one, delivery_id) for delivery_id in one.examples)
        deliveries = f"{one.deliveries:,}, the newest {newest}"
    return [
        (label, one.subject),
        ("opened", format_ago(one.opened_at, now)),
        ("first, last", times),
        ("attempts", attempts),
        ("by hour", blocks),
        ("deliveries", deliveries),
        (one.state.value, one.who_text if one.who else None),
        ("comes back", one.snooze_text and one.snooze_text.removeprefix("until ")),
    ]


def _example(one: Issue, delivery_id: int) -> str:
    about = " ".join(one.identifiers.get(delivery_id, ()))
    return f"{delivery_id} ({about})" if about else str(delivery_id)


def _hints(one: Issue) -> list[tuple[str, str]]:
    """Return the commands that help with an issue, and what each is for."""
    hints, condition = [], condition_of(one.kind)
    if one.examples:
        hints.append(("look at one", f"deliveries show {one.examples[0]}"))
        hints.append(("look at all", f"deliveries list --issue {one.id}"))
    if one.handler is not None:
        hints.append(("replay", f"deliveries replay --issue {one.id} --dry-run"))
        hints.append(("stop", f"handlers pause {quote(one.subject)}"))
    elif one.kind is IssueKind.LEFT_OUT:
        name = quote(one.subject)
        hints.append(("find out why", "workers"))
        hints.append(("once it is back", f"deliveries replay --handler {name} --without-handler {name}"))
    elif one.kind is not IssueKind.QUARANTINE:
        hints.append(("find out why", condition.first_command(one.subject)))
    hints.append(("runbook", f"runbook {condition.runbook}"))
    return [*hints, ("when mended", f"failures resolve {one.id}")]


@click.group()
def notify() -> None:
    """Notifications of issues, to the addresses in BILLHOOK_NOTIFY_FILE.

    One message is sent when an issue opens, and one when all is well again: see `billhook failures`. Workers
    do that; `billhook notify send`, which a timer runs, does it also when no worker lives.

    \b
    Examples:
      billhook notify test
      billhook notify send
    """


@notify.command()
def test() -> None:
    """Send a test message to each address. Exit code 1 if one of them did not take it.

    \b
    Example:
      BILLHOOK_NOTIFY_FILE=notify.txt billhook notify test
    """
    addresses, errors = read_addresses(_notify_file())
    settings = load_settings()
    writer = Writer(settings.dashboard_url, settings.environment)
    failed = len(errors)
    for error in errors:
        click.echo(f"NOT sent: {error}")
    for address in addresses:
        why = address.send(
            writer.title("a test message"),
            in_program(f"Sent by `billhook notify test` on {socket.gethostname()}."),
        )
        failed += why is not None
        result = "sent" if why is None else f"NOT sent: {why}"
        click.echo(f"line {address.number}, {address.name}: {result}")
    if failed:
        raise CliError(f"{failed} of the addresses did not take the message")


@notify.command()
@option("--every SECONDS", "Do it again and again, until it is stopped.", click.IntRange(5, 60))
def send(every: int | None) -> None:
    """Look for issues, and send what is due. Exit code 1 if the inbox cannot be read.

    A message that an address refuses waits for the next call, which a timer makes every 20 seconds: see
    deploy/README.md. An inbox that cannot be read is reported to the addresses too.

    \b
    Example:
      BILLHOOK_NOTIFY_FILE=notify.txt billhook notify send
    """
    read_addresses(_notify_file())  # a wrong file is an error of this command
    with open_inbox() as inbox:
        watch = Watch.of(inbox, load_settings(), inbox.now)
        watch.look_and_send()
        while every is not None:
            time.sleep(every)
            watch.look_and_send()
        watch.close()
    if watch.failed:
        raise CliError("the inbox cannot be read: `billhook doctor` says why")


def _notify_file() -> str:
    path = load_settings().notify_file
    if path is None:
        raise CliError(
            "BILLHOOK_NOTIFY_FILE is not set: name a file with an address on each line, such as "
            "mailto://USER:PASSWORD@example.com, slack://TOKEN/#channel or json://example.com/hook"
            f"{no_variables()}"
        )
    return path


@click.command()
@moment("--since", "Done since this time")
@paged("action", "actions", click.IntRange(1, 2**63 - 1))
@as_json
def actions(since: datetime | None, limit: int, after: int | None, as_json: bool) -> None:
    """List what operators did, newest first: from replay and discard to export, forward and pause.

    Each is recorded with the name of the operating system's user, for 13 months. What --contains, --error and
    --customer searched for is not recorded.

    \b
    Examples:
      billhook actions --since 7d
      billhook actions --json | jq '.[] | select(.what == "erase")'
    """
    with open_inbox() as inbox:
        found = list_actions(inbox, limit + 1, after, since)
        issues = {} if as_json else issues_acted_on(inbox, found)
        paused = {one.name: one.why for one in inbox.paused_handlers()}
    shown = found[:limit]
    if as_json:
        print_json([asdict(one) for one in shown])
        return
    if not shown:
        click.echo("no action is recorded")
        return
    columns = ("id", "at (UTC)", "who", "what", "deliveries", "which")
    rows = [
        (one.id, f"{format_time(one.at)}", one.who, one.what, one.deliveries,
         f"{one.which} ({about})" if (about := _about_action(one, issues, paused)) else one.which)
        for one in shown
    ]  # fmt: skip
    print_table(columns, rows, whole=columns[:5])
    if len(found) > limit:
        say(f"More: add --after {shown[-1].id}")


def _about_action(
    one: Action, issues: Mapping[int, tuple[str, str]], paused: Mapping[str, str | None]
) -> str | None:
    """Return the title of the action's issue, or why the handler that it paused is paused now."""
    if one.id in issues:
        return issues[one.id][1]
    why = paused.get(one.which) if one.what == "pause" else None
    return why and f"paused now: {why}"
