"""The page of deliveries: a list by combinable filters, and the replay of selected deliveries.

The fields of its form become a filter, a URL and a command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from flask import Response, abort, request, url_for

from billhook.clock import parse_time
from billhook.dashboard.context import (
    DashboardContext,
    describe,
    parse_rate,
    read_not_before,
    replay_batches,
    stored_and_loaded,
)
from billhook.events import EVENT_TYPES
from billhook.handlers.registered import left_alone, missing_from, names_of
from billhook.inbox import DeliveryFilter, Inbox
from billhook.inbox.operating.operations import ReplayResult, later_option, replay
from billhook.inbox.reading.deliveries import count, id_batches, in_batches, with_runs
from billhook.inbox.reading.search_scope import page_with_unread, read_scope, search_bound
from billhook.inbox.running.filters import FILTERS, SHOWN_STATES, STATES
from billhook.inbox.watching.conditions import number_text
from billhook.inbox.watching.issues import of_issue

SEARCH_LIMIT = 100_000
"""How many of the newest deliveries a search for a text in bodies reads. In an inbox with as many, the list
does not count what matches filters that may have no index."""
_LONGEST = 200
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
"""What no database takes: NUL and parts of characters."""
_FLAGS = [one.option for one in FILTERS.values() if one.kind == "flag"]
PAGE = 50
MOST_REPLAYED = 10_000
"""The most deliveries in one replay of the page, which bounds the duration of the request."""


class FilterForm(NamedTuple):
    """Hold the form's fields as written, and their filter. `mistakes` are sentences for the visitor."""

    fields: dict[str, Any]
    filter: DeliveryFilter
    mistakes: tuple[str, ...]
    searched: str = ""

    @property
    def has_filters(self) -> bool:
        """Whether there are other filters than the state and the search."""
        return any(name not in ("search", "state") for name in self.fields)

    def with_absolute_times(self) -> FilterForm:
        """Return the form with times instead of ages, so that it selects the same deliveries later on."""
        given = self.filter.given()
        times = [name for name in given if FILTERS[name].kind == "time"]
        fixed = {FILTERS[name].option: given[name].isoformat() for name in times}
        return self._replace(fields={**self.fields, **fixed})

    @property
    def options(self) -> str:
        """The options of the commands for deliveries that select the same, with a space before each."""
        values = {name: "" if name in _FLAGS else f" {_quote(text)}" for name, text in self.fields.items()}
        return "".join(f" --{name}{value}" for name, value in values.items())

    @property
    def replay_commands(self) -> tuple[str | None, str | None]:
        """The command that replays the same deliveries, and the one that calls a handler again.

        `replay` does with `--handler` what succeeded too, so it is the second then, but for `--failed-since`;
        it has no `--twins`, and asks for a filter.
        """
        if not self.fields or "twins" in self.fields:
            return None, None
        command = f"deliveries replay{self.options}"
        calls_again = "handler" in self.fields and "failed-since" not in self.fields
        return (None, f"{command} --dry-run") if calls_again else (command, None)

    @property
    def first_runs_command(self) -> str | None:
        """The command that gives the same deliveries to the handler that has missed them."""
        name = self.fields.get("without-handler")
        if name is None or {"handler", "twins"} & self.fields.keys():
            return None
        return f"deliveries replay --handler {_quote(name)}{self.options} --dry-run"

    def within_search_limit(self, inbox: Inbox) -> FilterForm:
        """Return the form with a search for a text bounded to the newest of the selected deliveries."""
        selected = of_issue(inbox, self.filter)
        if selected.contains is None:
            return self._replace(filter=selected)
        bound = search_bound(inbox, selected, SEARCH_LIMIT)
        searched = f"Searched the newest {bound.number:,} deliveries{bound.since_text}."
        return self._replace(filter=replace(selected, from_id=bound.from_id), searched=searched)


def _quote(text: str) -> str:
    """Return a text as a word of a shell's command line, without characters that cannot be seen.

    Pages write these as escapes, which plain quotes would hand to the command as they are. bash, zsh and ksh
    read escapes in $'…'.
    """
    if text.isprintable():
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    shown = "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in escaped)
    return f"$'{shown}'"


def parse_filter_form(values: Mapping[str, str], now: datetime) -> FilterForm:
    """Parse the fields of a form or a query; an unreadable value is among the mistakes."""
    fields: dict[str, Any] = {}
    mistakes: list[str] = []
    given: dict[str, Any] = {}
    for name, one in FILTERS.items():
        value = values.get(one.option, "").strip()
        if not value:
            continue
        if len(value) > _LONGEST or _NO_TEXT.search(value):
            mistakes.append(f"{one.option}: no more than {_LONGEST} characters of text")
            continue
        fields[one.option] = "1" if one.kind == "flag" else value
        if one.kind == "state" and value not in STATES:
            mistakes.append(f"{one.option}: there is none that is named {value!r}")
            continue
        try:
            given[name] = parse_time(value, now) if one.kind == "time" else one.kind == "flag" or value
        except ValueError as error:
            mistakes.append(f"{one.option}: {error}")
    return FilterForm(fields, DeliveryFilter(**given), tuple(mistakes))


def read_filter_form(context: DashboardContext, values: Mapping[str, str]) -> FilterForm:
    """Parse the fields of a form or a query; a handler that is left out is so under its former names too."""
    form = parse_filter_form(values, context.now)
    without = form.filter.without_handler
    if not isinstance(without, str):
        return form
    names = names_of(context.state.handlers, without)
    return form._replace(filter=replace(form.filter, without_handler=names))


def show_list(context: DashboardContext) -> Response:
    """Render the list of deliveries; the URL has the filters and the last id of the previous page."""
    inbox = context.inbox
    form = read_filter_form(context, request.args)
    previous_id = parse_id(request.args.get("before"))
    found = []
    if not form.mistakes:
        form = form.within_search_limit(inbox)
        found = page_with_unread(inbox, form.filter, PAGE + 1, previous_id)
    shown = with_runs(inbox, found[:PAGE])
    more = len(found) > PAGE or previous_id is not None
    return context.render(
        "deliveries.html",
        form=form,
        listed=shown,
        scope=None if form.mistakes else read_scope(inbox, form.filter),
        matching=_number(inbox, form) if more and form.fields else len(shown),
        here=form.fields if previous_id is None else {**form.fields, "before": previous_id},
        selected=request.args.get("select") == "all",
        first=url_for(".deliveries", **form.fields) if previous_id is not None else None,
        next=url_for(".deliveries", **form.fields, before=shown[-1].summary.id)
        if len(found) > PAGE
        else None,
        command=f"deliveries list{form.options}{f' --after {previous_id}' if previous_id else ''}",
        filters=FILTERS.values(),
        types=sorted(EVENT_TYPES),
        states=SHOWN_STATES,
        handlers=stored_and_loaded(context),
    )


def _number(inbox: Inbox, form: FilterForm) -> str:
    """Return how many deliveries match, as shown; empty where counting them would take long."""
    if form.has_filters and count(inbox, DeliveryFilter(), SEARCH_LIMIT) == SEARCH_LIMIT:
        return ""
    return number_text(count(inbox, form.filter, MOST_REPLAYED), MOST_REPLAYED)


def parse_id(text: str | None) -> int | None:
    """Parse the id of a delivery in a URL or a form; None without one, a bad request if it is invalid."""
    if not text:
        return None
    # isascii: isdecimal accepts digits of other scripts.
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and 0 < int(text) < 2**63):
        abort(400, "An id of a delivery is a number.")
    return int(text)


def preview_replay(context: DashboardContext) -> Response:
    """Render the page that shows what a replay would do, and asks for confirmation."""
    return _preview(context, *_chosen(context))


def _preview(context: DashboardContext, ids: list[int], form: FilterForm, *, grown: bool = False) -> Response:
    form = form.with_absolute_times()  # an age would select other deliveries by the time of the confirmation
    total, would = len(ids), None
    command, again = form.replay_commands
    if ids:
        command, again = f"deliveries replay {' '.join(map(str, ids))}", None
        would, is_missing = ReplayResult(), missing_from(context.state.handlers)
        for batch in in_batches(ids):
            would += replay(context.inbox, batch, context.now, is_missing=is_missing, dry_run=True)
    else:
        total = count(context.inbox, form.filter)
    return context.render(
        "replay.html",
        ids=ids,
        form=form,
        total=total,
        would=would,
        left=[] if would is None else left_alone(context.state.handlers, would.missing),
        most=MOST_REPLAYED,
        grown=grown,
        again=again,
        command=command,
    )


def replay_selected(context: DashboardContext) -> Response:
    """Replay the previewed deliveries, and redirect to the list; ask again if there are more now."""
    ids, form = _chosen(context)
    rate = parse_rate(request.form.get("rate", ""))
    if ids:
        batches, which = in_batches(ids), ""
    else:
        number, counted = count(context.inbox, form.filter), request.form.get("counted", "")
        if counted.isascii() and counted.isdecimal() and number > int(counted[:9]):
            return _preview(context, ids, form, grown=True)
        if number > MOST_REPLAYED:
            abort(400, f"These are more than {MOST_REPLAYED:,} deliveries: use the command, or more filters.")
        batches, which = id_batches(context.inbox, form.filter), form.filter.as_options or "all"
    since = None if ids else form.filter.failed_since
    handler = None if since is None else form.filter.handler
    not_before = read_not_before(context)
    which = f"{which}{later_option(not_before)}".strip()
    done = replay_batches(
        context, batches, which, rate=rate, handler=handler, failed_since=since, not_before=not_before
    )
    told = describe(context, done, not_before=not_before)
    tone = "good" if done.deliveries else "warn"
    return context.pages.redirect(url_for(".deliveries", **form.fields), told, tone)


def _chosen(context: DashboardContext) -> tuple[list[int], FilterForm]:
    """Return the ids in the form, and its filters, which select if there are no ids."""
    ids = sorted({found for value in request.form.getlist("id") if (found := parse_id(value)) is not None})
    form = read_filter_form(context, request.form)
    if form.mistakes:
        abort(400, f"The filters cannot be read: {'; '.join(form.mistakes)}.")
    if not ids and request.form.get("scope") != "all":
        abort(400, "No delivery is selected: select some in the list, or replay all that match.")
    if len(ids) > MOST_REPLAYED:
        abort(400, f"These are more than {MOST_REPLAYED:,} deliveries.")
    form = form.within_search_limit(context.inbox)
    # Deliveries whose type an operator has to choose are replayed one by one, or with the command.
    decided = not form.filter.conflicts
    return ids, form._replace(filter=replace(form.filter, decided=decided))
