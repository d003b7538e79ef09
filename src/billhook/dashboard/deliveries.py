"""The page of deliveries: a list by combinable filters, and the replay of what is selected in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flask import Response, abort, request, url_for

from billhook.dashboard.context import DashboardContext
from billhook.dashboard.replaying import describe, parse_rate, replay_batches
from billhook.dashboard.selection import FIELDS, FLAGS, Selection, parse_selection
from billhook.events import EVENT_TYPES
from billhook.inbox.admin import BATCH, count, handler_names, id_batches, page, with_runs
from billhook.inbox.replay import ReplayResult, replay
from billhook.inbox.states import DeliveryStatus

__all__ = ["parse_id", "preview_replay", "replay_selected", "show_list"]

PAGE = 50
MOST_REPLAYED = 10_000
"""Deliveries in one replay of the page: a request does not last for ever."""


def show_list(context: DashboardContext) -> Response:
    """Return the page of the list; filters and the last id of the page before are in the address."""
    inbox = context.inbox
    selection = parse_selection(request.args, context.now)
    before = parse_id(request.args.get("before"))
    found = []
    if not selection.mistakes:
        selection = selection.within_search_limit(inbox)
        found = page(inbox, selection.filter, PAGE + 1, before)
    shown = with_runs(inbox, found[:PAGE])
    return context.pages.render(
        "deliveries.html",
        selection=selection,
        listed=shown,
        first=url_for(".deliveries", **selection.fields) if before is not None else None,
        next=url_for(".deliveries", **selection.fields, before=shown[-1].summary.id)
        if len(found) > PAGE
        else None,
        command=selection.list_command(context.command)
        + (f" --after {before}" if before is not None else ""),
        types=sorted(EVENT_TYPES),
        states=list(DeliveryStatus),
        handlers=_known_handlers(context),
        now=context.now,
    )


def _known_handlers(context: DashboardContext) -> list[str]:
    loaded = {one.name for one in context.state.handlers.every()}
    return sorted(loaded | set(handler_names(context.inbox)))


def parse_id(text: str | None) -> int | None:
    """Return an id from an address or a form; None without one. One that is none is a bad request."""
    if not text:
        return None
    # isascii: isdecimal accepts digits of other scripts.
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and 0 < int(text) < 2**63):
        abort(400, "An id of a delivery is a number.")
    return int(text)


def preview_replay(context: DashboardContext) -> Response:
    """Return the page that says what a replay would do, and asks for the decision."""
    return _preview(context, *_chosen(context))


def _preview(
    context: DashboardContext, ids: list[int], selection: Selection, *, grown: bool = False
) -> Response:
    selection = selection.at_fixed_times()  # an age would select others by the time of the decision
    if ids:
        total, would = len(ids), ReplayResult()
        for batch in _batches(ids):
            would += replay(context.inbox, batch, context.now, dry_run=True)
    else:
        total, would = count(context.inbox, selection.filter), None
    return context.pages.render(
        "replay.html",
        ids=ids,
        selection=selection,
        total=total,
        would=would,
        most=MOST_REPLAYED,
        grown=grown,
        command=f"{context.command} deliveries replay {' '.join(map(str, ids))}"
        if ids
        else selection.replay_command(context.command),
    )


def replay_selected(context: DashboardContext) -> Response:
    """Replay what the page before counted, and return to the list; if it is more by now, ask again."""
    ids, selection = _chosen(context)
    rate = parse_rate(request.form.get("rate", ""))
    batches: Iterable[list[int]]
    if ids:
        batches, which = _batches(ids), ""
    else:
        number, counted = count(context.inbox, selection.filter), request.form.get("counted", "")
        if counted.isascii() and counted.isdecimal() and number > int(counted[:9]):
            return _preview(context, ids, selection, grown=True)
        if number > MOST_REPLAYED:
            abort(400, f"These are more than {MOST_REPLAYED:,} deliveries: use the command, or more filters.")
        batches, which = id_batches(context.inbox, selection.filter), _conditions(selection)
    done = replay_batches(context, batches, which, rate=rate)
    tone = "good" if done.deliveries else "warn"
    return context.pages.redirect(url_for(".deliveries", **selection.fields), describe(done), tone)


def _chosen(context: DashboardContext) -> tuple[list[int], Selection]:
    """Return the ids that the form names; without any, the selection is what its filters select."""
    ids = sorted({found for one in request.form.getlist("id") if (found := parse_id(one)) is not None})
    selection = parse_selection(request.form, context.now)
    if selection.mistakes:
        abort(400, f"The filters cannot be read: {'; '.join(selection.mistakes)}.")
    if not ids and request.form.get("scope") != "all":
        abort(400, "No delivery is selected: mark some in the list, or choose all that the filters select.")
    if len(ids) > MOST_REPLAYED:
        abort(400, f"These are more than {MOST_REPLAYED:,} deliveries.")
    selection = selection.within_search_limit(context.inbox)
    # Deliveries whose type an operator has to decide are replayed one by one, or with the command.
    decided = not selection.filter.conflicts
    return ids, replace(selection, filter=replace(selection.filter, decided=decided))


def _batches(ids: list[int]) -> list[list[int]]:
    return [ids[start : start + BATCH] for start in range(0, len(ids), BATCH)]


def _conditions(selection: Selection) -> str:
    """Return the filters for the record, without texts that were searched for: they may name a customer."""
    return (
        ", ".join(
            name if name in (*FLAGS, "contains", "error") else f"{name} {value}"
            for name, value in selection.fields.items()
            if name in (*FIELDS, *FLAGS)
        )
        or "all"
    )
