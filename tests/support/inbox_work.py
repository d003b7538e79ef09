"""All that is done to an inbox, once: for tests of what that executes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from billhook.basics.process_identity import own_process
from billhook.inbox import (
    Counted,
    Deliveries,
    DeliveryFilter,
    HandlerLimits,
    Inbox,
    NextTimes,
    PollStart,
    RunOptions,
    RunPlan,
    RunState,
    WorkerRecord,
)
from billhook.inbox.counting import unconsumed
from billhook.inbox.counting.counts import Counts
from billhook.inbox.counting.retention import Cutoffs
from billhook.inbox.operating import actions, holds, operations, postpone, subscriptions, takeover
from billhook.inbox.reading import deliveries, search_scope, searches, worker_list
from billhook.inbox.reading import handler_shares as shares
from billhook.inbox.reading.compared_deliveries import read_compared
from billhook.inbox.running import handler_lists, lost_workers, workers
from billhook.inbox.running.filters import STATES
from billhook.inbox.running.handler_lists import HandlerList, Lacking, ListNote, TypeFilter
from billhook.inbox.running.unread import RoundRobin
from billhook.inbox.tables.records import ContentKey
from billhook.inbox.tables.states import DeliveryState
from billhook.inbox.watching import backlog_pace as pace
from billhook.inbox.watching import (
    deaths,
    disagreements,
    issue_hours,
    issue_updates,
    issues,
    notifications,
    overview,
    snoozes,
    stalled,
)
from billhook.inbox.watching.success import read_success
from support.inbox_view import NOON, incoming
from support.runs import LEASE, OWNER, at, claim, planned, result_of, settle

LIMITS = {
    name: HandlerLimits(("limited", "former"), at_most=1, pause_after=2) for name in ("limited", "former")
} | {"rated": HandlerLimits(("rated",), rate=(60, 60.0))}
DAY = 86_400.0


def do_everything(inbox: Inbox) -> None:
    """Store, plan, run and end deliveries in every way, look at them, change them, and delete them."""
    store(inbox)
    run_by_workers(inbox)
    read_by_workers(inbox)
    limit_handlers(inbox)
    look(inbox)
    change(inbox)
    maintain(inbox)


def store(inbox: Inbox) -> None:
    """Deliveries that are new, duplicates, in conflict, and with their type in the body."""
    counts = Counts()
    counts.add(Counted.REFUSED, at(0), source="default", cause="mismatch")
    for new in (
        incoming("c1"),
        incoming("c1"),
        incoming("c1", body=b"other"),
        _new("c1", event_type="Other"),
        _new("c1", event_type="Third"),
        _new("u1", event_type="", type_field="type", body=b'{"type": "PingTest"}'),
        _new("u2", event_type="", untyped="no type"),
    ):
        inbox.put(new)
    inbox._write_counts(counts)
    inbox.check_writable()
    inbox._count_unfinished(10)
    inbox.received(10)
    inbox.poll(10)
    inbox.poll(2, turns=RoundRobin(lambda _: None))
    inbox.poll(2, turns=RoundRobin(lambda _: None), start=PollStart(2, at(0), at(0), ("h",)))
    inbox.pending({}, received_before=at(300), now=at(0), limit=2)
    search_scope.read_scope(inbox, DeliveryFilter(search="c1"))
    with inbox.transaction(OWNER) as transaction:
        first, *others = inbox.received(10)
        transaction.plan([RunPlan(first.delivery_id, ("plain",))], at(0))
        transaction.plan(
            [RunPlan(one.delivery_id, (), "unreadable", event_type="PingTest") for one in others], at(0)
        )


def _new(key: str, **values: Any) -> Any:
    return replace(incoming(key), **values)


def run_by_workers(inbox: Inbox) -> None:
    """Claims, results, lost leases and suspects; ordered runs, the newest of them only, and duplicates."""
    settle(inbox, claim(inbox))
    for number in range(3):
        delivery_id = inbox.put(incoming(f"o{number}")).delivery_id
        content = ContentKey("digest", ("invoice_id",), at(0), 60.0)
        options = {
            "ordered": RunOptions("key"),
            "newest": RunOptions("key", newest_only=True),
            "newest by": RunOptions("key", newest_only=True, newest_key="23"[number % 2]),
            "once": RunOptions(content_key=content),
        }
        with inbox.transaction(OWNER) as transaction:
            transaction.plan([RunPlan(delivery_id, tuple(options), options=options)], at(1))
    ordered = claim(inbox, seconds=2)
    settle(inbox, ordered, RunState.DUE, 3, due=4, group="bug", duration_seconds=0.5)
    settle(inbox, claim(inbox, seconds=5), RunState.DEAD, 6, group="bug", traceback="Traceback")
    lost = planned(inbox, "lost", "queued", key="lost", seconds=10)
    inbox.poll(10, only=lost)
    claimed = claim(inbox, seconds=10, idle=1, only=lost)
    held = [one.lease for one in claimed]
    with inbox.transaction(OWNER) as transaction:
        transaction.renew(held, at(40))
        transaction.mark_not_alone(held)
        transaction.next_times(lost)
        transaction.next_times()
    inbox.held.update(held)
    claim(inbox, seconds=100, suspects=False)
    inbox.held.clear()
    claim(inbox, seconds=100, only=lost, suspects=False)
    claim(inbox, seconds=100, suspects=False, times=NextTimes(None, None, due={"h": at(0)}, due_from=at(0)))
    with inbox.transaction(OWNER) as transaction:
        suspect = transaction.claim_suspect(at(200), at(200) + LEASE)
        assert suspect is not None
        transaction.mark_not_alone([suspect.lease])
        transaction.release([suspect.lease], at(200))
        transaction.claim_suspect(at(201), at(201) + LEASE, only=lost)
    with inbox.transaction(OWNER) as transaction:
        transaction.release_orphaned([], at(201))
    at_once = inbox.put(incoming("at once")).delivery_id
    with inbox.transaction(OWNER) as transaction:
        stored = next(one for one in inbox.received(10) if one.delivery_id == at_once)
        transaction.plan([RunPlan(at_once, ("plain",), claimable=stored)], at(201))
        (new,) = transaction.claim(1, at(201), at(201) + LEASE, only=at_once)
    inbox.count_skipped([at_once], [new.lease])
    with inbox.transaction(OWNER) as transaction:
        transaction.lock([result_of(new)], [])
        transaction.settle([result_of(new, seconds=202)], lambda: at(202))


def read_by_workers(inbox: Inbox) -> None:
    """A reading that is tried again alone, and ends with the plan of its delivery."""
    delivery_id = plan_reading(inbox, "read", 203)
    (first,) = claim(inbox, seconds=203, only=delivery_id)
    with inbox.transaction(OWNER) as transaction:
        transaction.settle([result_of(first, RunState.DUE, 203, due=204, error="e")])
        transaction.end_readings({}, [first.lease], at(203))
    (second,) = claim(inbox, seconds=204, only=delivery_id)
    with inbox.transaction(OWNER) as transaction:
        transaction.end_readings({second.lease: RunPlan(delivery_id)}, [], at(204))


def plan_reading(inbox: Inbox, key: str, seconds: float) -> int:
    delivery_id = inbox.put(incoming(key)).delivery_id
    options = {"reading A": RunOptions("source")}
    with inbox.transaction(OWNER) as transaction:
        transaction.plan([RunPlan(delivery_id, tuple(options), options=options)], at(seconds))
    return delivery_id


def limit_handlers(inbox: Inbox) -> None:
    """Handlers with limits, and one that is paused because of its failures."""
    for number in range(3):
        planned(inbox, "limited", "rated", key=f"limited {number}", seconds=210)
    limited = claim(inbox, seconds=211, limits=LIMITS)
    inbox.next_times(LIMITS)
    inbox.pending(LIMITS, received_before=at(300), now=at(300), limit=10)
    with inbox.transaction(OWNER, LIMITS) as transaction:
        transaction.settle([result_of(one, RunState.DUE, 212, error="e", due=213) for one in limited])
    with inbox.transaction(OWNER, LIMITS) as transaction:
        again = transaction.claim(10, at(214), at(214) + LEASE)
        transaction.settle([result_of(one, RunState.DUE, 215, error="e", due=216) for one in again])
        transaction.claim_suspect(at(214), at(214) + LEASE)
    inbox.pause_handler("new", "away", at(217))
    inbox.pause_handler("rated", "away", at(217))
    inbox.pause_handler("rated", "still away", at(217))
    inbox.paused_handlers()
    inbox.resume_handler("rated")
    inbox.record_worker(WorkerRecord("a", "worker", 1, NOON), at(217))
    inbox.worker_seen_at()
    holds.hold_worker(inbox, "a", at(217))
    holds.hold_worker(inbox, "a", at(217), "a leak")
    holds.resume_worker(inbox, "a")
    inbox.record_stopping("a")
    inbox.record_stop("a")
    inbox.record_worker(WorkerRecord("b", "worker", 1, NOON), at(218))
    compare_lists(inbox)


def compare_lists(inbox: Inbox) -> None:
    """Processes with other handlers than others, and what they leave to each other."""
    lists = [HandlerList({"PingTest": {name: ()}, "": {}}, {}) for name in ("plain", "other")]
    numbers = [inbox.record_list(each, at(218)) for each in (*lists, *lists)]
    for number, each in enumerate(lists):
        inbox.record_worker(WorkerRecord(f"listed {number}", "worker", 1, NOON), at(218), each)
    inbox.live_lists(at(219))
    with inbox.database.read() as connection:
        workers.read_sharing(connection, "worker", numbers[0], at(219))
    rename_a_handler(inbox)
    for types in (lists[0].plans_as(lists[1]), TypeFilter(frozenset({"PingTest"}))):
        inbox.poll(2, types=types, alive_since=at(218))
        inbox.waits_since(types)
        inbox.pending({}, received_before=at(300), now=at(300), limit=2, types=types)
        deliveries.is_busy(inbox, at(300), types=types)
        with inbox.database.read() as connection:
            handler_lists.count_left_out(connection, types)
    with inbox.transaction(OWNER) as transaction:
        transaction.note = ListNote(numbers[0], at(219), {numbers[1]: Lacking(1, {"other": 1})})


def rename_a_handler(inbox: Inbox) -> None:
    """A handler with runs in one order under its former name and under its own, which then has another."""
    newest = RunOptions("renamed", newest_only=True, newest_key="")
    names = {"renamed": HandlerLimits(("renamed", "former")), "former": HandlerLimits(("renamed", "former"))}
    inbox.pause_handler("former", None, at(219))
    inbox.record_list(HandlerList({"PingTest": {"renamed": ()}, "": {}}, {"renamed": ("former",)}), at(219))
    inbox.resume_handler("former")
    for number, name in enumerate(("former", "renamed", "renamed")):
        delivery_id = inbox.put(incoming(f"renamed {number}")).delivery_id
        with inbox.transaction(OWNER, names) as transaction:
            transaction.plan([RunPlan(delivery_id, (name,), options={name: newest})], at(219))
    inbox.record_list(HandlerList({"PingTest": {"renamed": ()}, "": {}}, {}), at(219))


FILTERS: dict[str, list[Any]] = {
    "event_type": ["PingTest", ("PingTest", "Other")],
    "state": [*STATES],
    "error": ["e"],
    "source": ["default", ("default", "eu")],
    "key": ["c1"],
    "search": ["c1", "1"],
    "since": [at(0)],
    "until": [at(0)],
    "handled_since": [at(0)],
    "handled_until": [at(0)],
    "release": ["r"],
    "failed_since": [at(0)],
    "contains": ["inv_1"],
    "handler": ["plain"],
    "without_handler": ["plain", ("plain", "former")],
    "twins": [True],
    "conflicts": [True],
    "decided": [True],
    "from_id": [1],
}


def look(inbox: Inbox) -> None:
    """What status, metrics, lists and pages read."""
    inbox.limits = lambda: LIMITS
    overview.read_overview(inbox, at(300))
    state = overview.read_state(inbox, at(300))
    waits = overview.HandlerBacklog("plain", waiting=100, oldest_due_at=at(0))
    for is_open in (False, True):
        pace.grows(inbox, replace(state, handler_backlogs=[waits]), at(3_600), is_open=is_open)
    overview.read_totals(inbox)
    read_success(inbox, at(300))
    overview.read_periods(inbox, at(0), at(300), timedelta(minutes=1), handlers=["plain"])
    overview.read_refused_since(inbox, at(0), ["mismatch"])
    issue_updates.update_issues(inbox, at(300))
    issues.count_issues(inbox)
    issues.list_open(inbox, at(300))
    worker_list.list_workers(inbox, at(300))
    lost_workers_of(inbox)
    with inbox.database.read() as connection:
        disagreements.read_disagreement(connection, at(219))
        unconsumed.read_unconsumed(connection, at(219))
        disagreements.read_left_out(connection, at(219))
        disagreements._unhandled(connection, "InvoiceApproved")  # of a handler that no list has any more
        disagreements.read_lacking(connection, at(0))
        disagreements.read_gone(connection, at(219))
        disagreements._unhandled(connection, "plain")
        stalled.read_hanging(connection, at(219), timedelta(minutes=1))
        stalled._longest_seconds(connection, {})
        stalled.read_held(connection, at(219))
    found = issues.list_issues(inbox, list(issues.IssueState), ids=None)
    issues.list_issues(inbox, subject="plain")
    issue_hours.by_hour(inbox, found, at(300))
    for one in found:
        issues.find_issue(inbox, one.id)
        shares.read_share(inbox, one)
        read_compared(inbox, one)
        shares.first_release(inbox, one.id)
        issues.newest_traceback(inbox, one.id)
        list(issues.failing_delivery_ids(inbox, one))
        issues.count_replayable(inbox, one)
        issues.of_issue(inbox, DeliveryFilter(issue=one.id))
        deliveries.page(inbox, DeliveryFilter(issue=one.id), 10)
        issues.change_issue(inbox, one.id, issues.IssueState.ACKNOWLEDGED, at(301), who="alice")
        issues.change_issue(inbox, one.id, issues.IssueState.SNOOZED, at(301), who="alice", more=2)
    snoozes.snoozed_ids(inbox)
    snoozes.count_dead_of_snoozed(inbox, 10)
    snoozes.count_quarantined_of_snoozed(inbox)
    issue_updates.update_issues(inbox, at(301))
    for one in found:
        issues.change_issue(inbox, one.id, issues.IssueState.OPEN, at(301), who="alice")
    issues.issue_ids(inbox, found[0].id[:4])
    shares.known_issues(inbox, [one.id for one in found])
    assert notifications.take_lease(inbox, OWNER, at(302))
    due = notifications.read_due(inbox)
    told = notifications.AddressState(frozenset(map(notifications.key_of, due.issues)))
    notifications.record_state(inbox, 0, told, due.issues, [0])
    notifications.record_look(inbox, at(302))
    notifications.release_lease(inbox, OWNER, at(303))
    for one in (one for one in found if one.kind is not issues.IssueKind.QUARANTINE):
        issues.change_issue(inbox, one.id, issues.IssueState.RESOLVED, at(304), who="alice")
    still_open = [one.id for one in issues.list_issues(inbox, [issues.IssueState.OPEN], ids=None)]
    for state in (issues.IssueState.RESOLVED, issues.IssueState.OPEN):
        for its_id in still_open:
            issues.change_issue(inbox, its_id, state, at(304), who="alice")
        notifications.read_due(inbox)
    for name, values in FILTERS.items():
        for value in values:
            deliveries.page(inbox, DeliveryFilter(**{name: value}), 10, below=1_000)
    deliveries.page(inbox, DeliveryFilter(search="1", state="dead"), 10)
    deliveries.page(inbox, DeliveryFilter(search="1", error="e"), 10)
    search_scope.search_bound(inbox, DeliveryFilter(contains="inv_1"), 10)
    deliveries.handler_names(inbox)
    deliveries.is_busy(inbox, at(300))
    deliveries.count(inbox, DeliveryFilter())
    listed = deliveries.page(inbox, DeliveryFilter(), 10)
    list(deliveries.export(inbox, DeliveryFilter(state="dead")))
    list(Deliveries(inbox).follow(DeliveryFilter(event_type="PingTest"), after=1, idle_seconds=0))
    list(Deliveries(inbox).follow(idle_seconds=0))
    searches.related_deliveries(inbox, listed[0], [("ordered", "key")])
    searches.neighbours(inbox, DeliveryFilter(), listed[0].id)
    list(searches.read_bodies(inbox, ["PingTest"], at(0)))
    searches.search_bodies(inbox, DeliveryFilter(), [b"inv_1"], lambda *_: None)
    inbox.database.facts()
    searches.newest_deliveries(inbox, 10, 1_000)
    with actions.recorded(inbox, "alice", "acknowledge", f"issue {found[0].id}", at(300)) as action:
        action.add(1, [1])
    actions.issues_acted_on(inbox, actions.list_actions(inbox, 10, below=100, since=at(0)))
    terms = subscriptions.terms_of("https://api.example", "https://shop.example", {"event_type": "PingTest"})
    subscriptions.remember(inbox, "alice", terms, at(300))
    subscriptions.forget(inbox, [one.id for one in subscriptions.list_subscriptions(inbox)])


def lost_workers_of(inbox: Inbox) -> None:
    """Workers that died, and what they ran."""
    for number in range(4):
        inbox.record_worker(WorkerRecord(f"lost {number}", "worker", 1, at(150 + number)), at(151 + number))
    with inbox.database.read() as connection:
        lost_workers.read_lost_workers(connection, at(400))
        lost_workers.read_lost_beside(connection, "lost")
        workers.expects_worker(connection)
    process = own_process()._replace(pid_ticks=1)._asdict()
    inbox.record_worker(WorkerRecord("ended", "worker", 1, at(380), **process), at(380))
    deaths.record_deaths(inbox, at(381))
    deaths.record_death_of_child(inbox, 7, at(380), at(381))
    deaths.lost_before(inbox, OWNER, at(382))


def change(inbox: Inbox) -> None:
    """What operators do."""
    ids = [summary.id for summary in deliveries.page(inbox, DeliveryFilter(), 100)]
    operations.replay(inbox, ids, at(400), due=lambda number: at(400 + number))
    operations.replay(inbox, ids, at(400), handler="plain", only_failed=True)
    operations.replay(inbox, ids, at(400), handler="plain", only_failed=True, failed_since=at(0))
    operations.replay(
        inbox, ids, at(400), handler="later", backfill=lambda *_: RunOptions("key"), not_before=at(401)
    )  # fmt: skip
    operations.replay(inbox, ids, at(400), as_type="PingTest")
    operations.replay(inbox, ids, at(400), type_field="type", dry_run=True)
    stored = inbox.received(1)[0]
    operations.store_edited(inbox, stored._replace(key="edited"), RunPlan(0, ("plain",)), stored.delivery_id)
    postpone.postpone(inbox, ids, at(401), at(450), handler="plain")
    postpone.postpone(inbox, ids, at(401), at(401))
    dead = claim(inbox, 100, seconds=500)
    with inbox.database.read() as connection:
        stalled.read_hanging(connection, at(5_000), timedelta(minutes=1))
        stalled.read_held(connection, at(501))
    settle(inbox, dead[:1], RunState.DEAD, 501, error="e")
    settle(inbox, dead[1:], RunState.DEAD, 501, group="bug")
    issue_updates.update_issues(inbox, at(502))
    issues.list_issues(inbox, list(issues.IssueState), ids=None)
    operations.replay(inbox, ids, at(502), all_handlers=True, is_missing=lambda *_: True)
    takeover.take_over(
        inbox, [dead[0].delivery.delivery_id], at(502), handler=dead[0].handler, to="other",
        to_names=("other",), options=lambda *_: RunOptions("key", newest_only=True),
    )  # fmt: skip
    operations.discard(inbox, ids[:2], "lost", at(502))
    operations.erase(inbox, ids[:4], at(503), discard_unfinished=True)
    issue_updates.update_issues(inbox, at(503))


def maintain(inbox: Inbox) -> None:
    """What a worker does beside its work: counts, retention, and what is forgotten."""
    plan_reading(inbox, "being read", 600)
    for seconds in (600, 620, 640):
        inbox.advance_watermark(at(seconds))
    inbox.compact_counts(at(30 * DAY))
    ids = [summary.id for summary in deliveries.page(inbox, DeliveryFilter(), 100)]
    operations.discard(inbox, ids[4:], "over", at(700))
    unreadable = inbox.put(incoming("unreadable")).delivery_id
    with inbox.transaction(OWNER) as transaction:
        transaction.plan([RunPlan(unreadable, (), "unreadable")], at(700))
    for days in (2, 40):
        inbox.prune(Cutoffs.of(at(days * DAY), 1), states=list(DeliveryState))
    issue_updates.update_issues(inbox, at(41 * DAY))
    actions.prune_actions(inbox, at(800 * DAY))
    inbox.record_worker(WorkerRecord("c", "worker", 1, NOON), at(900 * DAY))
