"""The overview, with the clock and next jobs; the timeline of events; addresses with their subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flask import Response, request, url_for
from sqlalchemy import Row, func, select
from werkzeug.exceptions import NotFound

from billhook.errors import SandboxError
from billhook.events import EVENT_TYPES
from billhook.pages.text import indented_json
from billhook.sandbox import scheduled_jobs
from billhook.sandbox.pages.context import PAGE_ROWS, error_sentence, page_cursor, query_choice, route, site
from billhook.sandbox.pages.texts import (
    described_cause,
    event_sentences,
    first_sentence,
    subject_names,
)
from billhook.sandbox.scenario import seed_demo_data
from billhook.sandbox.storage import tables
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.repository import MAX_PAGE, fetch_page, matching
from billhook.sandbox.storage.tables import delivery, raised_event, subscription
from billhook.sandbox.webhooks import outbox
from billhook.sandbox.webhooks.outbox import EventGroup

_ROWS = 8
"""On the overview: of what happens next, and of the latest events."""


@route("/timeline")
def events() -> Response:
    """Show the events, newest first, under what raised them."""
    event_type, state = query_choice("type", EVENT_TYPES), query_choice("state", outbox.STATES)
    where = matching((raised_event.c.event_type, event_type))
    if state is not None:
        found = select(delivery.c.raised_id).where(delivery.c.state == state)
        where.append(raised_event.c.id.in_(found))
    with site.reading() as tx:
        page = outbox.timeline(tx, PAGE_ROWS, page_cursor(), *where)
        told = _timeline_texts(tx, page.items)
    return site.render(
        "timeline.html",
        page=page,
        told=told,
        types=sorted(EVENT_TYPES),
        states=outbox.STATES,
        chosen={"type": event_type, "state": state},
    )


def _timeline_texts(tx: Transaction, groups: Sequence[EventGroup]) -> dict[str, Any]:
    """Return what the timeline shows beside its rows: sentences, deliveries, causes, names for ids."""
    causes = {one.cause: described_cause(one.cause) for one in groups}
    shown = [event for one in groups for event in one.events]
    return {
        "sentences": event_sentences(tx, shown),
        "deliveries": outbox.deliveries_of(tx, [event.id for event in shown]),
        "causes": causes,
        "names": subject_names(tx, [cause.detail for cause in causes.values()]),
        "dashboard": tx.options.dashboard_url,
    }


@route("/timeline/<event_id>")
def event(event_id: str) -> Response:
    """Show one event with its body, its deliveries and all attempts."""
    with site.reading() as tx:
        found = tx.execute(select(raised_event).where(raised_event.c.id == event_id)).first()
        if found is None:
            raise NotFound("There is no event with this id; the sandbox keeps the newest 100,000.")
        told = _timeline_texts(tx, [EventGroup(found.cause, found.raised_at, [found])])
    return site.render("event.html", event=found, body=indented_json(found.body.decode()), told=told)


@route("/trigger")
def trigger() -> Response:
    """Show the types of events, each with a link to the form that raises one."""
    types = {name: first_sentence(EVENT_TYPES[name].__doc__ or "") for name in sorted(EVENT_TYPES)}
    return site.render("trigger.html", types=types)


@route("/")
def overview() -> Response:
    """Show the clock, the next jobs, counts, and the latest events."""
    with site.reading() as tx:
        jobs, latest = scheduled_jobs.upcoming(tx, _ROWS), outbox.timeline(tx, _ROWS, None).items
        counted = {
            "customers": select(func.count()).select_from(tables.customer),
            "contracts": select(func.count()).where(tables.contract.c.deleted_at.is_(None)),
            "invoices": select(func.count()).select_from(tables.invoice),
            "subscriptions": select(func.count()).select_from(tables.subscription),
            "faults": select(func.count()).select_from(tables.fault),
        }
        return site.render(
            "overview.html",
            jobs=jobs,
            names=subject_names(tx, [job.subject_id for job in jobs]),
            counts={name: tx.scalars(query).one() for name, query in counted.items()},
            states=outbox.count_states(tx),
            latest=latest,
            told=_timeline_texts(tx, latest),
        )


@route("/demo", "POST")
def fill_with_demo() -> Response:
    """Create the demo's customers, contracts and meters, and send its usage."""
    created = seed_demo_data(site.send, site.service.clock.now())
    done = "The demo's data is there: move the clock to see its invoices."
    return site.redirect_to(url_for(".overview"), done if created else "The demo's data was there already.")


@route("/webhooks")
def webhooks() -> Response:
    """Show each address with its subscriptions."""
    with site.reading() as tx:
        return site.render(
            "webhooks.html",
            addresses=_addresses(tx),
            states=outbox.count_states(tx),
            types=sorted(EVENT_TYPES),
            allow_private=tx.options.allow_private,
        )


def _addresses(tx: Transaction) -> dict[str, list[Row[Any]]]:
    """Return the subscriptions of each address, oldest first."""
    found: dict[str, list[Row[Any]]] = {}
    for row in fetch_page(tx, select(subscription), MAX_PAGE, None, subscription.c.seq).items:
        found.setdefault(row.callback_url, []).append(row)
    return found


@route("/webhooks", "POST")
def subscribe() -> Response:
    """Subscribe an address to each type of event."""
    body = {"callbackUrl": request.form.get("url", "").strip()}
    try:
        for event_type in EVENT_TYPES:
            site.run("POST /webhook", {**body, "eventType": event_type})
    except SandboxError as error:
        return site.redirect_to(url_for(".webhooks"), error_sentence(error), good=False)
    done = f"The address is subscribed to all {len(EVENT_TYPES)} types of events."
    return site.redirect_to(url_for(".webhooks"), done)


@route("/webhooks/end", "POST")
def end_address() -> Response:
    """End all subscriptions of an address."""
    with site.reading() as tx:
        ids = [row.id for row in _addresses(tx).get(request.form.get("url", ""), ())]
    for subscription_id in ids:
        site.run("DELETE /_sandbox/subscriptions/{subscriptionId}", subscriptionId=subscription_id)
    ended = "1 subscription is" if len(ids) == 1 else f"{len(ids):,} subscriptions are"
    return site.redirect_to(
        url_for(".webhooks"), f"{ended} ended, and their pending deliveries are cancelled."
    )
