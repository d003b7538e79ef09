"""Findings about a sample of stored deliveries, about their handlers, and about the engine that runs these.

Of the sample: what the models do not list yet, and whether clocks agree.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from shlex import quote
from typing import TYPE_CHECKING

from billhook.basics.engine_kinds import ENGINES, Place
from billhook.basics.printable import counted, first_line, printable
from billhook.basics.type_names import shown_type
from billhook.doctor.examined import Setup
from billhook.doctor.finding import Finding
from billhook.errors import InvalidJSON
from billhook.events import EVENT_TYPES
from billhook.events.inspection import Unlisted, event_source, unlisted
from billhook.fields import strict_json
from billhook.handlers.registered import missing_names, missing_remedy
from billhook.inbox.operating.subscriptions import list_subscriptions
from billhook.inbox.reading.deliveries import summaries, with_runs
from billhook.signing.source import DEFAULT_SOURCE

if TYPE_CHECKING:
    from billhook.inbox import StoredDelivery
    from billhook.inbox.watching.handler_backlogs import HandlerBacklog


TEST_USER_AGENT = "billhook-send"
"""What `billhook send` calls itself."""
_SERVICE = "billhook.events."
"""Where the classes of the billing service's types are, which list all that it sends."""
_MOST_FINDINGS = 50
_MOST_BODIES = 20
_EXAMPLE_CHARACTERS = 60
_FEWEST_FOR_A_CLOCK = 5
_SLOWEST_SECONDS = 60
_AHEAD_SECONDS = 5


def payload_findings(sample: Sequence[StoredDelivery]) -> Iterator[Finding]:
    """Report types, fields and enumeration values that no model lists, each with an example."""
    examples: dict[tuple[str, str, str], tuple[Unlisted, int]] = {}
    numbers: Counter[tuple[str, str, str]] = Counter()
    unknown_types: dict[str, list[StoredDelivery]] = {}
    for each in sample:
        if json.loads(each.headers).get("USER_AGENT") == TEST_USER_AGENT:
            continue  # its fields are not the service's
        model = EVENT_TYPES.get(each.event_type)
        if model is None:
            unknown_types.setdefault(each.event_type, []).append(each)
            continue
        try:
            data = strict_json.loads(each.body)
        except InvalidJSON:  # it is in quarantine, with its reason
            continue
        found = unlisted(model, data) if isinstance(data, dict) else ()
        # A class of the user's own lists what its handlers need, of bodies that often have far more.
        is_complete = model.__module__.startswith(_SERVICE)
        own = {
            (each.event_type, one.path, str(one.value) if one.kind == "value" else ""): one
            for one in found
            if is_complete or one.kind == "value"
        }
        for key, one in own.items():
            if key in examples or len(examples) < _MOST_FINDINGS:
                examples.setdefault(key, (one, each.delivery_id))
                numbers[key] += 1
    for key, (one, delivery_id) in examples.items():
        where = f"in {numbers[key]} of the newest deliveries, such as {delivery_id}"
        yield _unlisted_finding(key[0], one, where)
    # A sender may invent them. First those without a type, then by their number.
    by_number = sorted(unknown_types.items(), key=lambda each: (each[0] != "", -len(each[1]), each[0]))
    for event_type, deliveries in by_number[:_MOST_FINDINGS]:
        yield _unknown_type(event_type, deliveries)


def _unlisted_finding(event_type: str, one: Unlisted, where: str) -> Finding:
    example = first_line(json.dumps(one.value, ensure_ascii=False, default=str), _EXAMPLE_CHARACTERS)
    if one.kind == "value":
        return Finding(
            "note", "unknown-value", f"{event_type}: {one.path} is {example}, which is not listed, {where}",
            "handlers get it as a text; one that compares with the listed values only does not expect it",
            f"decide what handlers do with it; in the model: {one.change}",
        )  # fmt: skip
    return Finding(
        "note", "unknown-field", f"{event_type}: {one.path} is not listed, {where}; it is {example}",
        f"the service has begun to send it; handlers find it in model_extra of {one.model}",
        f"if you need it, upgrade billhook, or read model_extra; in the model: {one.change}",
    )  # fmt: skip


def _unknown_type(event_type: str, deliveries: Sequence[StoredDelivery]) -> Finding:
    count = len(deliveries)
    if not event_type:
        return Finding(
            "warning", "no-type", f"{count} of the newest deliveries name no usable event type",
            "they wait in quarantine, and no handler gets them",
            "name the sender's header in BILLHOOK_TYPE_HEADER or type_header=… of its Source, or the field "
            "of the body in BILLHOOK_TYPE_FIELD or type_field=…; then `billhook deliveries replay --state "
            "quarantined --type-field FIELD`, or `billhook deliveries replay ID --as TYPE`; or, for what has "
            "no type, such as a sender's test, `billhook deliveries discard ID`",
        )  # fmt: skip
    bodies = []
    for each in deliveries[:_MOST_BODIES]:
        with suppress(InvalidJSON):
            body = strict_json.loads(each.body)
            bodies += [body] if isinstance(body, dict) else []
    return Finding(
        "note", "unknown-type",
        f"{count} of the newest deliveries are of the unknown type {shown_type(event_type)}",
        "only handlers of on_unknown() and on_any() get them",
        "upgrade billhook, or declare the type: save this file, and name it with your handlers; then "
        f"`billhook deliveries replay --type {quote(event_type)}`",
        event_source(event_type, bodies),
    )  # fmt: skip


def clock_findings(sample: Sequence[StoredDelivery]) -> Iterator[Finding]:
    """Compare the times of signing with the times of receipt: a delivery takes seconds, not minutes."""
    ages = sorted(
        (each.received_at - each.signed_at).total_seconds() for each in sample if each.signed_at is not None
    )
    if len(ages) < _FEWEST_FOR_A_CLOCK:
        return
    # Use the smallest age: queues and retries only make ages larger.
    behind, ahead = -ages[-1], ages[0]
    if ahead > _SLOWEST_SECONDS or behind > _AHEAD_SECONDS:
        seconds, which = (ahead, "ahead of") if ahead > _SLOWEST_SECONDS else (behind, "behind")
        yield Finding(
            "warning", "clock", f"the receiver's clock is {seconds:.0f} s {which} the sender's",
            "beyond BILLHOOK_TOLERANCE_SECONDS every delivery is refused, with 401",
            "set the clock by NTP (`timedatectl`), that of a database server too; if it is right, tell the "
            "sender",
        )  # fmt: skip


_STANDALONE = (
    "worker: `billhook serve` starts one, and handlers run in it; under a gunicorn of your own they run in "
    "threads of its processes"
)


def about_handlers(setup: Setup) -> Iterator[Finding]:
    """Ask whether a handler is registered, here or in a worker that runs."""
    if number := setup.handlers.count():
        yield Finding("ok", "handlers", f"{number} registered here")
    elif setup.workers:
        yield Finding(
            "note", "handlers-not-named",
            "this command was given no handlers, so none was examined",
            f"a worker that runs has {setup.workers[0].handlers} of them",
            "name the modules or files, as in `billhook doctor FILE` and `billhook check FILE`",
        )  # fmt: skip
    else:
        files = setup.settings.handlers
        where = f" in {', '.join(files)}" if files else ""
        yield Finding(
            "warning", "no-handlers",
            f"no handler is registered{where}" if files or setup.own_app else
            "no handler was examined: no file was named",
            "a receiver or worker that has none marks deliveries as done, and nothing happens",
            "register one there: @handlers.on(…)" if files else
            "name your modules or files as arguments, or in BILLHOOK_HANDLERS; or Billhook(handlers=[…])",
        )  # fmt: skip


def about_missing(setup: Setup) -> Iterator[Finding]:
    """Name the handlers that runs wait for, or are dead of, and that are not registered under this name."""
    if not setup.handlers.count():  # then none was examined
        return
    backlogs = {one.name: one for one in setup.overview.handler_backlogs if one.unfinished or one.dead}
    for name in missing_names(setup.handlers, backlogs):
        yield missing_handler(backlogs[name])


def missing_handler(backlog: HandlerBacklog) -> Finding:
    """Return the finding that runs wait for a handler, or are dead, and that none has its name."""
    waiting, dead, name = backlog.unfinished, backlog.dead, printable(backlog.name)
    told, effects = [], []
    if waiting:
        told.append(f"{counted(waiting, 'run')} {'waits' if waiting == 1 else 'wait'} for {name}")
        effects.append("each attempt fails, and after the last one the run is dead")
    if dead:
        told.append(f"{counted(dead, 'run')} of {name} {'is' if dead == 1 else 'are'} dead")
        effects.append("a replay leaves dead runs as they are")
    return Finding(
        "warning", "handler-missing", f"{' and '.join(told)}, and no handler has this name",
        "; ".join(effects),
        missing_remedy(backlog.name)
        + ("; with the alias, replay what is dead: `billhook deliveries replay --state dead --handler "
           f"{quote(backlog.name)}`" if dead else ""),
    )  # fmt: skip


def about_time_outs(setup: Setup) -> Iterator[Finding]:
    """Name the handlers without a time-out."""
    unlimited = sorted(each.name for each in setup.handlers.every() if each.timeout_seconds is None)
    if unlimited:
        yield Finding(
            "warning", "handler-without-timeout", f"{_listed(unlimited)} without timeout_seconds",
            "a call that never returns keeps one of the worker's threads for ever",
            "@handlers.on(…, timeout_seconds=30), and time-outs for what the handler calls",
        )  # fmt: skip


def about_types(setup: Setup) -> Iterator[Finding]:
    """Name the types that have no handler, with the number of deliveries that got none.

    What was handled before the handler was removed is not counted.
    """
    types = {each.event_type for each in setup.sample if each.event_type}
    without = {name for name in types if not setup.handlers.names(name)}
    if not without or not setup.handlers.count():
        return
    ids = [each.delivery_id for each in setup.sample if each.event_type in without]
    found = with_runs(setup.inbox, summaries(setup.inbox, ids))
    arrived = Counter(one.summary.event_type for one in found if not one.runs)
    lost = [f"{shown_type(name)} ({count})" for name, count in arrived.most_common()]
    if lost:
        yield Finding(
            "warning", "type-unhandled", f"deliveries arrived of types without a handler: {_listed(lost)}",
            "they are stored and marked as done, and nothing happens",
            "register a handler, or unsubscribe from the type; `billhook handlers` lists them all",
        )  # fmt: skip


def about_subscriptions(setup: Setup) -> Iterator[Finding]:
    """Name the types that have a handler, that billhook never subscribed, and that never came.

    Asked where billhook has subscribed anything. A handler of all types asks for none of them.
    """
    subscribed = {one.event_type for one in list_subscriptions(setup.inbox)}
    if not subscribed:
        return
    came = {one.event_type for one in setup.overview.types if one.last_at is not None}
    handlers = {
        name: {
            one.name
            for one in setup.handlers.by_name(name, unique=False).values()
            if one.handles(DEFAULT_SOURCE)
        }
        for name in EVENT_TYPES
    }
    of_all = set.intersection(*handlers.values())
    missing = [name for name, own in handlers.items() if own - of_all and name not in subscribed | came]
    if missing:
        types = " ".join(f"--type {quote(name)}" for name in missing)
        yield Finding(
            "note", "type-unsubscribed",
            f"billhook has subscribed other types, and not these, which have a handler: {_listed(missing)}",
            "no delivery of them has come; the service sends them only if they were subscribed elsewhere",
            f"`billhook subscribe {types} --callback-url URL`",
        )  # fmt: skip


def about_engine(setup: Setup) -> Iterator[Finding]:
    """Say which engine runs the handlers."""
    # An app's own option decides. Standalone, `serve` chooses the engine, as its worker tells.
    engine = setup.settings.engine if setup.own_app or not setup.workers else setup.workers[0].engine
    kind = ENGINES.get(engine)
    if kind is None:  # a worker of another release
        text = f"{printable(engine)}: this release does not know the engine of the worker that runs"
    else:
        text = _STANDALONE if kind.place is Place.WEB and not setup.own_app else kind.text
    yield Finding("ok", "engine", text)


def _listed(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
