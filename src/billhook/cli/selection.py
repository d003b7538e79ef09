"""Select the deliveries that a command works on, by ids or by options, confirm a change, and record it."""

from __future__ import annotations

import functools
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import click

from billhook.basics.printable import counted
from billhook.cli.context import load_subscribers, operator
from billhook.cli.events import suggest
from billhook.cli.output import CliError, print_json, printable, progress, say
from billhook.cli.params import DELIVERY_ID, FC, FiniteNumber, as_json, flag, moment, option
from billhook.errors.program import in_program
from billhook.events import EVENT_TYPES
from billhook.handlers import ConnectedHandlers
from billhook.handlers.registered import missing_names, names_of
from billhook.inbox import DeliveryFilter, DeliveryState, Inbox
from billhook.inbox.operating.actions import ids_text, recorded
from billhook.inbox.operating.operations import DiscardResult, EraseResult, ReplayResult
from billhook.inbox.operating.postpone import PostponeResult
from billhook.inbox.reading.deliveries import count, details, handler_names, id_batches, in_batches
from billhook.inbox.reading.search_scope import read_scope, search_bound
from billhook.inbox.running.filters import FILTERS, SHOWN_STATES, STATES
from billhook.inbox.watching.issues import find_issue, of_issue

_SEARCH_LIMIT = 100_000
"""How many bodies a search for a text reads: some seconds' work for the database."""

_LIMIT = option(
    "--search-limit N",
    f"How many deliveries --contains reads, the newest first. Default: {_SEARCH_LIMIT}.",
    click.IntRange(1),
)
_STATE = click.Choice(STATES, case_sensitive=False)
_STATE_METAVAR = f"[{'|'.join(SHOWN_STATES)}]"
MOST_FILTERS = tuple(name for name in FILTERS if name != "twins")
_IDS = click.argument("ids", type=DELIVERY_ID, nargs=-1, metavar="[ID]...")

_HOW = ("ids", "dry_run", "yes", "as_json", "rate")

Command = Callable[..., None]
R = TypeVar("R", DiscardResult, EraseResult, PostponeResult, ReplayResult)


def selecting(
    *names: str, ids: bool = False, other: str | None = None, limit: bool = True
) -> Callable[[Command], Command]:
    """Add the options that select deliveries, all or those named; the command gets a Selection instead.

    Without `limit` the command bounds a search for a text itself. With `ids` it changes deliveries: either
    ids or an option has to be given, or the argument `other`, which selects too.
    """
    names = names or MOST_FILTERS

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def select(**arguments: Any) -> None:
            given = {name: value for name in names if (value := arguments.pop(name)) != ()}
            if without := given.get("without_handler"):
                given["without_handler"] = _every_name(without)
            bound = arguments.pop("search_limit", None)
            if bound is not None and given["contains"] is None:
                raise click.UsageError("--search-limit is for --contains TEXT")
            how = {name: arguments.pop(name) for name in _HOW if name in arguments}
            selection = Selection(DeliveryFilter(**given), bound or _SEARCH_LIMIT, **how)
            if ids:
                selection.check(is_enough=other is not None and arguments[other] is not None)
            command(selection, **arguments)

        for name in reversed(names):
            if name == "contains" and limit:
                select = _LIMIT(select)
            select = _option(name)(select)
        return _IDS(select) if ids else select

    return decorate


def _every_name(given: Iterable[str]) -> tuple[str, ...]:
    """Return these names of handlers, with their former ones; say which name no loaded handler has."""
    connected, names = load_subscribers(), dict[str, None]()
    for name in given:
        names |= dict.fromkeys(names_of(connected, name))
        if connected.count() and missing_names(connected, [name]):
            say(f"{not_loaded(connected, name)}; this selects by the name alone")
    return tuple(names)


def not_loaded(connected: ConnectedHandlers, name: str) -> str:
    """Return that no loaded handler has a name, with the one that was probably meant."""
    known = sorted(each.name for each in connected.every())
    hint = suggest(name, known, most=1) or f"there are {', '.join(known) or 'none'}"
    return printable(f"no handler is named {name} here: {hint}")


def _option(name: str) -> Callable[[FC], FC]:
    """Return the option of a filter."""
    one = FILTERS[name]
    if one.kind == "flag":
        return flag(f"--{one.option} {name}", one.told)
    if one.kind == "time":
        return moment(f"--{one.option}", one.told)
    if one.kind == "state":
        return click.option(f"--{one.option}", type=_STATE, metavar=_STATE_METAVAR, help=one.told)
    return option(f"--{one.option} {one.metavar} {name}", one.told, multiple=one.kind == "texts")


def confirming(command: Command) -> Command:
    """Add --dry-run, --yes and --json."""
    dry_run = flag("--dry-run", "Show what would be done without doing it.")
    return dry_run(YES(as_json(command)))


YES = flag("--yes", "Do not ask for confirmation.")
RATE = option("--rate N", "At most N deliveries per second.", FiniteNumber(0.01, 100_000))


class Found(NamedTuple):
    """Hold ids of deliveries in batches, their number, and what selected them, for the record of actions."""

    batches: Iterable[list[int]]
    total: int
    which: str
    is_named: bool = False
    """Whether `which` are the ids."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which deliveries a command works on, and how."""

    filter: DeliveryFilter
    search_limit: int
    ids: tuple[int, ...] = ()
    dry_run: bool = False
    yes: bool = False
    as_json: bool = False
    rate: float | None = None

    @property
    def asks(self) -> bool:
        """Whether the user is asked before something is changed."""
        return not (self.dry_run or self.yes or self.as_json)

    def check(self, *, is_enough: bool) -> None:
        """Raise UsageError unless there are either ids or options, or something else `is_enough`."""
        if not (self.ids or is_enough) and self.filter.is_everything:
            also = "--customer " if _verb() == "erase" else ""
            options = " ".join(f"--{FILTERS[name].option}" for name in MOST_FILTERS)
            raise click.UsageError(f"nothing to {_verb()} is selected: give ids, or one of {also}{options}")
        if self.ids and not self.filter.is_everything:
            raise click.UsageError("give ids or filters, not both")

    def find(self, inbox: Inbox, question: str = "") -> Found:
        """Find the deliveries, and ask the user whether to go on; end the command if there are none.

        `question` has {} for their number; with --json nothing is asked, and none is a result too. Raises
        CliError for an unknown id.
        """
        if self.ids:
            ids = _check_ids(inbox, self.ids)
            found = Found(in_batches(ids), len(ids), ids_text(ids), is_named=True)
        else:
            bounded = self.bounded(inbox)
            found = Found(id_batches(inbox, bounded), count(inbox, bounded), self.filter.as_options)
        if not found.total:
            if self.filter.search is not None or not self.as_json:
                click.echo(no_match(inbox, self.filter), err=self.as_json)
            if not self.as_json:
                raise click.exceptions.Exit
        if question and self.asks:
            confirm(question.format(counted(found.total, "delivery")))
        if self.rate is None or self.dry_run:
            return found
        return found._replace(batches=paced(found.batches, self.rate))

    def bounded(self, inbox: Inbox) -> DeliveryFilter:
        """Bound a search for a text to the newest of the selected deliveries; print the bound on stderr.

        Raises CliError for an unknown issue.
        """
        issue_id = self.filter.issue
        if issue_id is not None and find_issue(inbox, issue_id) is None:
            raise CliError(f"there is no issue {printable(issue_id)}: see `billhook failures list`")
        selected = of_issue(inbox, self.filter)
        if selected.contains is None:
            return selected
        bound = search_bound(inbox, selected, self.search_limit)
        newest, more = "", ""
        if bound.number == self.search_limit:
            newest, more = "the newest ", "; --search-limit N searches more"
        say(f"searched {newest}{counted(bound.number, 'delivery')}{bound.since_text}{more}")
        return replace(selected, from_id=bound.from_id)

    def apply(self, inbox: Inbox, found: Found, change: Callable[..., R], start: R) -> R:
        """Call `change` with each batch and `dry_run`, record it, and return the sum of its results."""
        what, done = _verb(), start
        label = "counting" if self.dry_run else f"{what.removesuffix('e')}ing"
        with (
            progress(label, found.total) as steps,
            recording(inbox, what, found.which, dry_run=self.dry_run or not found.total) as add,
        ):
            for batch in found.batches:
                changed = change(batch, dry_run=self.dry_run)
                done += changed
                add(changed.deliveries, () if found.is_named else batch)
                steps(len(batch))
                # After each batch: a worker may begin with what is due now while others follow.
                if not self.dry_run:
                    inbox.waker.wake()
        return done

    @property
    def would(self) -> str:
        """What stands before "replayed" or the like: with --dry-run it was not done."""
        return "would be " if self.dry_run else ""

    def report(self, figures: Mapping[str, object], *sentences: str) -> None:
        """Print what was done: the figures as JSON, or the sentences."""
        if self.as_json:
            print_json({**figures, "dry_run": self.dry_run})
        else:
            click.echo("\n".join(filter(None, sentences)))


def _verb() -> str:
    """Return the name of the command."""
    return str(click.get_current_context().info_name)


@contextmanager
def recording(
    inbox: Inbox, what: str, which: str, *, dry_run: bool = False
) -> Iterator[Callable[[int, Iterable[int]], None]]:
    """Record an action of this user, which the block carries out; a `dry_run` is not recorded.

    SIGTERM and a closed terminal end the block as Ctrl-C does, so that it can still note what it did. Gives
    what adds a number of changed deliveries, and the ids of those that conditions selected.
    """
    if dry_run:
        yield lambda number, delivery_ids: None
        return
    with recorded(inbox, operator(), what, which, inbox.now()) as recorder, ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGHUP):
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:  # as nohup sets it for SIGHUP
                stack.callback(signal.signal, number, before or signal.SIG_DFL)
                signal.signal(number, signal.default_int_handler)
        yield recorder.add


def _check_ids(inbox: Inbox, delivery_ids: tuple[int, ...]) -> list[int]:
    """Return the ids in order. Raises CliError for one that is unknown or has no content any more.

    All are checked first: a typing error among them must not leave the work half done.
    """
    wanted = sorted(set(delivery_ids))
    states = {found.summary.id: found.summary.state for found in details(inbox, wanted)}
    for one in wanted:
        if one not in states:
            wrong = f"there is no delivery {one} in this inbox"
        elif states[one] == DeliveryState.PRUNED:
            wrong = f"delivery {one} is past its retention, only its key is left"
        elif states[one] == DeliveryState.ERASED:
            wrong = f"delivery {one} was erased, its body is gone"
        else:
            continue
        raise CliError(f"{wrong}; nothing was {_verb().removesuffix('e')}ed")
    return wanted


def paced(batches: Iterable[list[int]], rate: float) -> Iterator[list[int]]:
    """Yield smaller batches, each when it is due: `rate` ids per second."""
    # A quarter of a second's worth at a time: smooth enough, and one transaction for several deliveries.
    size, sent, started = max(1, int(rate / 4)), 0, time.monotonic()
    for batch in batches:
        for part in in_batches(batch, size):
            # From the start, not from the last batch: delays do not add up, the rate holds on average.
            time.sleep(max(0.0, started + sent / rate - time.monotonic()))
            yield part
            sent += len(part)


def no_match(inbox: Inbox, selection: DeliveryFilter) -> str:
    """Return that nothing matches; for an unknown type or handler with the known names.

    For a value that was searched for, with what was searched and the commands that come next.
    """
    types = selection.event_type or ()
    types = types if isinstance(types, tuple) else (types,)
    told = ["no deliveries match"]
    told += [suggest(each, EVENT_TYPES, most=1) for each in types if each not in EVENT_TYPES]
    if selection.handler is not None and not count(inbox, DeliveryFilter(handler=selection.handler)):
        told.append(f"none has a run of {printable(selection.handler)}")
        names = handler_names(inbox)
        told.append(f"known handlers: {printable(', '.join(names))}" if names else "")
    answer = "; ".join(filter(None, told))
    scope = read_scope(inbox, selection)
    if scope is None:
        return answer
    steps = [(reason, in_program(f"billhook {command}")) for reason, command in scope.next_steps]
    return "\n".join([answer, scope.text, *(f"  {reason}: {command}" for reason, command in steps)])


def confirm(question: str) -> None:
    """Ask the user, and return only after a yes. Raises CliError without a terminal to answer on."""
    try:
        # On stderr: the question must be seen although stdout goes to a file.
        yes = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():  # Ctrl-C, or the end of the input by hand
            raise
        say()
        raise CliError(
            "nothing was changed: there is no terminal to confirm on; add --yes to skip the question"
        ) from None
    if not yes:
        raise click.Abort
