"""Taking usage events in: a batch is judged, matched, metered and stored in a few statements.

Source: spec, "Endpoints", PUT /events; "States and transitions"; "Events", rule 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select

from billhook.sandbox.billing import customers, meters, usage_changes, usage_cuts
from billhook.sandbox.billing.batch import Sent
from billhook.sandbox.billing.judging import Used, judge
from billhook.sandbox.billing.metering import Contribution, Metering
from billhook.sandbox.billing.rollups import Rollups
from billhook.sandbox.storage.bulk import among, insert_rows
from billhook.sandbox.storage.tables.usage import event
from billhook.sandbox.transaction import Transaction

__all__ = ["Sifted", "counted_by", "ingest", "looked_at_by", "meterings", "sift"]

_COLUMNS = ("ref", "name", "alias", "customer_id", "at", "meter_ids", "body")


@dataclass(slots=True)
class Sifted:
    """A batch once it is judged, each part in the order in which it was sent."""

    taken: list[Used] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    """The JSON that was sent, and why it was not taken."""


def sift(tx: Transaction, batch: Sequence[Sent]) -> Sifted:
    """Tell the events that can be taken from the others. Of two with one ref, the first can."""
    judged = [judge(sent) for sent in batch]
    stored = _stored_refs(tx, (used.ref for used in judged if isinstance(used, Used)))
    sifted, refs = Sifted(), set[str]()
    for sent, used in zip(batch, judged, strict=True):
        if isinstance(used, str):
            sifted.refused.append((sent.text, used))
        elif used.ref in stored:
            sifted.refused.append((sent.text, "an event with this ref exists already"))
        elif used.ref in refs:
            sifted.refused.append((sent.text, "an event before it in this batch has this ref already"))
        else:
            refs.add(used.ref)
            sifted.taken.append(used)
    return sifted


def ingest(tx: Transaction, batch: Sequence[Sent]) -> Sifted:
    """Take what can be taken. Makes anonymous customers, and tells on what usage has come to.

    No meter counts what comes for a customer that is Inactive.
    """
    sifted = sift(tx, batch)
    if not sifted.taken:
        return sifted
    owners = _owners(tx, [used.alias for used in sifted.taken])
    metered, rollups, rows = meterings(tx, sifted.taken), Rollups(), []
    inactive = customers.inactive(tx, set(owners.values()))
    cuts = usage_cuts.cuts(tx, set(owners.values()), [used.day for used in sifted.taken])
    for used in sifted.taken:
        customer_id, day = owners[used.alias], used.day
        counted = [] if customer_id in inactive else counted_by(metered, used)
        since = usage_cuts.since(cuts.get((customer_id, day), ()), used.at)
        for metering, contribution in counted:
            rollups.add((customer_id, metering.id, day, since), contribution, used.at)
        meter_ids = " ".join(sorted([metering.id for metering, (value, _) in counted if value is not None]))
        rows.append((used.ref, used.name, used.alias, customer_id, used.at, meter_ids, used.text))
    insert_rows(tx.connection, event, _COLUMNS, rows)
    usage_changes.follow(tx, rollups.write(tx))
    return sifted


def meterings(tx: Transaction, events: Iterable[Used]) -> dict[str, list[Metering]]:
    """The meters that look at these events, by eventName."""
    found = meters.by_event_name(tx, {used.name for used in events})
    return {name: [Metering(meter) for meter in of_name] for name, of_name in found.items()}


def counted_by(metered: dict[str, list[Metering]], used: Used) -> list[tuple[Metering, Contribution]]:
    """The meters whose filters let an event through, each with what it adds."""
    found = []
    for metering in metered.get(used.name, ()):
        contribution = metering.contribution(used.data)
        if contribution is not None:
            found.append((metering, contribution))
    return found


def looked_at_by(
    metered: dict[str, list[Metering]], used: Used, *, is_counted: bool
) -> list[tuple[Metering, Contribution]]:
    """All meters of events of this name, each with what it adds: nothing, where a filter keeps it out.

    Nothing at all, where the event is of a customer that is not metered: `is_counted` is false then.
    """
    return [
        (metering, (metering.contribution(used.data) if is_counted else None) or Contribution(None))
        for metering in metered.get(used.name, ())
    ]


def _stored_refs(tx: Transaction, refs: Iterable[str]) -> set[str]:
    return set(tx.connection.scalars(select(event.c.ref).where(among(tx.connection, event.c.ref, refs))))


def _owners(tx: Transaction, aliases: Iterable[str]) -> dict[str, str]:
    """Customers by alias; those that nobody had are made up, in the order in which they came."""
    names = dict.fromkeys(aliases)
    owners = customers.match(tx, names)
    return owners | {name: customers.make_anonymous(tx, name) for name in names if name not in owners}
