"""The conditions: what holds, what is told once, and thirty days of a good service in which none does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from billhook.basics.engine_kinds import ENGINES, Place, names_at
from billhook.basics.type_names import READING
from billhook.errors import InboxUnavailable
from billhook.events import EVENT_TYPES
from billhook.inbox import RunState, WorkerRecord
from billhook.inbox.counting.counts import NO_DURATION, CountKey, Counts, Sum, hour_of
from billhook.inbox.running.leases import LOST
from billhook.inbox.running.lost_workers import read_lost_workers
from billhook.inbox.running.workers import record_stop
from billhook.inbox.watching.conditions import Facts, Thresholds
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.issues import IssueState, change_issue, list_issues
from billhook.inbox.watching.judgement import (
    CONDITIONS,
    LIMITS,
    Severity,
    condition_of,
    judge,
)
from billhook.inbox.watching.occurrences import REFUSED_LIMIT, IssueKind
from support.inbox_view import NOON, change, incoming, open_inbox, value
from support.runs import claim, planned, settle

SECOND, MINUTE, HOUR, DAY = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours", "days"))


def held(inbox, now, engine="inline"):
    return {one.condition.name: one.text for one in judge(Facts(inbox, now, engine)).holding}


def worker_ran(inbox, name, started_at, seen_at, *, stopped=False):
    record = WorkerRecord(name, "worker", 1, started_at)
    inbox.record_worker(record, started_at)
    inbox.record_worker(record, seen_at)
    if stopped:
        inbox.record_stop(name)


def seconds_of(at):
    return (at - NOON).total_seconds()


def claimed(inbox, owner, handler, at, key):
    """A run that a worker claimed, and neither settled nor released."""
    delivery_id = planned(inbox, handler, key=key, seconds=seconds_of(at), at=at)
    claim(inbox, 1, seconds_of(at), owner=owner, only=delivery_id)


def lose(inbox, owner, at, only=None):
    """Expire what was lost until then, as this worker does; with `only` it claims that delivery."""
    return claim(inbox, int(only is not None), seconds_of(at), owner=owner, only=only)


def crash_loop(inbox, handlers, each=10 * SECOND, number=5, lived=SECOND):
    """Workers that die one after another, while these handlers run; returns when the next one is seen."""
    for index in range(number):
        at = NOON + index * each
        worker_ran(inbox, f"w{index}", at, at + lived)
        for handler in handlers:
            claimed(inbox, f"w{index}", handler, at, f"{handler} {index}")
    return NOON + number * each


def died(inbox, where):
    """It is proven that all of them died when they were seen last."""
    change(where, "UPDATE billhook_worker SET died_at = seen_at WHERE died_at IS NULL")


def test_a_killer_that_an_operator_resolved_holds_only_if_it_kills_again(inbox):
    end = crash_loop(inbox, ["book"])
    now = end + 45 * SECOND
    worker_ran(inbox, "next", end, now)
    update_issues(inbox, now)
    (one,) = list_issues(inbox)

    change_issue(inbox, one.id, IssueState.RESOLVED, NOON, who="ada")
    assert "killer" in held(inbox, now)

    change_issue(inbox, one.id, IssueState.RESOLVED, now, who="ada")
    assert "killer" not in held(inbox, now)


def test_a_loop_in_which_a_handler_ran_in_two_of_five_workers_does_not_name_it(inbox):
    end = crash_loop(inbox, [])
    for owner in ("w3", "w4"):
        claimed(inbox, owner, "book", NOON, owner)
    now = end + MINUTE
    worker_ran(inbox, "next", end, now)

    found = held(inbox, now)

    assert "killer" not in found
    assert found["crash-loop"] == "workers die again and again: 5 in 2 min, while they run book"


def test_a_loop_of_one_handler_names_it_beside_what_was_queued_and_what_others_lost_before(inbox):
    """A run that waited for a thread was never called."""
    claimed(inbox, "long ago", "mail", NOON - HOUR, "lost")
    lose(inbox, "another", NOON - 30 * MINUTE)
    end = crash_loop(inbox, ["book"])
    for number in range(5):
        delivery_id = planned(inbox, "send", key=f"queued {number}")
        assert claim(inbox, 1, owner=f"w{number}", lease=HOUR, only=delivery_id, idle=0)
    now = end + 45 * SECOND
    worker_ran(inbox, "next", end, now)

    assert held(inbox, now)["killer"] == "workers die again and again: 5 in 2 min, while they run book"


def test_a_loop_of_several_handlers_is_reported_30_seconds_after_its_first_death(inbox, where):
    end = crash_loop(inbox, ["book", "mail"], each=4 * SECOND)
    died(inbox, where)
    for seconds, expected in (
        (30, None),
        (31, "workers die again and again: 5 in 1 min, while they run book or mail"),
    ):
        now = NOON + seconds * SECOND
        worker_ran(inbox, "next", end, now)
        assert held(inbox, now).get("crash-loop") == expected

    update_issues(inbox, now)
    (one,) = list_issues(inbox)
    assert (one.kind, one.last_at) == (IssueKind.CRASH_LOOP, end - 3 * SECOND)


def test_a_loop_of_several_handlers_names_what_ran_in_each(inbox, where):
    end = crash_loop(inbox, ["book"], each=8 * SECOND)
    claimed(inbox, "w3", "mail", NOON, "beside it")
    died(inbox, where)
    worker_ran(inbox, "next", end, end)

    text = "workers die again and again: 5 in 1 min, while they run book"
    assert held(inbox, end)["crash-loop"] == text


@pytest.mark.parametrize(
    ("ran", "handlers", "lived", "text"),
    [
        ("book", 1, 1, "workers die again and again: 3 in 1 min, while they run book"),
        (f"{READING}shop.Order", 1, 1, "workers die again and again: 3 in 1 min, while reading shop.Order"),
        (
            None,
            1,
            1,
            "workers die again and again: 3 in 1 min, soon after their start, while no handler runs",
        ),
        (None, 1, 12, "workers die again and again: 3 in 1 min, while no handler runs"),
        (None, None, 1, "workers die again and again: 3 in 1 min, before they have loaded the handlers"),
    ],
)
def test_three_deaths_that_are_proven_are_a_loop_at_once_and_named_by_what_ran(
    inbox, where, ran, handlers, lived, text
):
    end = crash_loop(inbox, [ran] if ran else [], each=(lived + 2) * SECOND, number=3, lived=lived * SECOND)
    change(where, "UPDATE billhook_worker SET handlers = ?", handlers)
    died(inbox, where)

    found = held(inbox, end)

    assert [found.get("killer"), found.get("crash-loop")] == ([text, None] if ran else [None, text])


@pytest.mark.parametrize(
    ("subject", "command"), [("book", "handlers pause book"), (f"{READING}shop.Order", "failures")]
)
def test_what_ends_workers_is_paused_if_it_is_a_handler(subject, command):
    (killer,) = (one for one in CONDITIONS if one.name == "killer")

    assert killer.first_command(subject) == command


def test_a_death_that_is_not_proven_is_one_of_a_loop_after_30_seconds(inbox):
    """As in another namespace of process ids: a worker that lived would have written its row."""
    crash_loop(inbox, ["book"], each=4 * SECOND)
    for seconds, expected in (
        (39, None),
        (40, "workers die again and again: 3 in 1 min, while they run book"),
    ):
        now = NOON + seconds * SECOND
        worker_ran(inbox, "next", NOON + 20 * SECOND, now)
        assert held(inbox, now).get("killer") == expected


def test_workers_that_die_at_one_moment_soon_after_their_start_are_no_loop(inbox, where):
    for number in range(4):
        worker_ran(inbox, f"w{number}", NOON + number * SECOND, NOON + number * SECOND)
    change(where, "UPDATE billhook_worker SET died_at = ?", "2026-01-15 12:00:09.000000")
    now = NOON + 3 * MINUTE
    worker_ran(inbox, "next", NOON + 11 * SECOND, now)

    assert "crash-loop" not in held(inbox, now)
    assert held(inbox, now)["lost-worker"] == "workers died 4 times in the last 15 minutes"


def test_workers_of_several_hosts_that_are_lost_at_one_moment_are_no_loop(inbox, where):
    for number in range(4):
        worker_ran(inbox, f"w{number}", NOON + number * SECOND, NOON + number * SECOND)
        change(where, "UPDATE billhook_worker SET host = owner WHERE owner = ?", f"w{number}")
    now = NOON + MINUTE
    worker_ran(inbox, "next", NOON + 11 * SECOND, now)

    assert {"crash-loop", "killer"}.isdisjoint(held(inbox, now))


@pytest.mark.parametrize("engine", [name for name in ENGINES if name not in names_at(Place.REQUEST)])
def test_workers_that_start_and_stop_in_order_every_few_seconds_are_no_loop(inbox, engine):
    """Deployments, autoscaling, and `worker --drain` from cron."""
    for number in range(60):
        at = NOON + number * 5 * SECOND
        inbox.record_worker(WorkerRecord(f"w{number}", engine, 1, at), at)
        inbox.record_stop(f"w{number}")

    now = NOON + 6 * MINUTE
    assert {"crash-loop", "killer", "lost-worker"}.isdisjoint(held(inbox, now))


def test_a_handler_that_kills_beside_a_known_killer_is_told_too(inbox, where):
    """A run of `book` was lost alone; now `mail` ends workers, which are no longer those of `book`."""
    end = crash_loop(inbox, ["book"], number=1)
    lose(inbox, "w8", end + MINUTE)
    lose(inbox, "w8", end + MINUTE, only=value(where, "SELECT min(delivery_id) FROM run"))
    lose(inbox, "w9", end + 2 * MINUTE)
    start = end + 6 * MINUTE
    for number in range(3):
        worker_ran(inbox, f"m{number}", start, start)
        claimed(inbox, f"m{number}", "mail", start, f"mail {number}")
        start += 5 * SECOND
    died(inbox, where)

    update_issues(inbox, start)

    titles = {one.title for one in list_issues(inbox) if one.kind is IssueKind.KILLER}
    assert titles == {
        "workers die while book runs",
        "workers die again and again: 3 in 1 min, while they run mail",
    }


@pytest.mark.parametrize(
    ("lives", "expected"),
    [
        ([(0, 900, True), (900, 1800, True), (1800, 1900, True)], None),  # deploys
        ([(0, 1700, False), (0, 1700, False), (0, 1700, False)], False),  # a machine was lost
        ([(0, 1700, False)], False),
        ([(1600, 1610, False), (1612, 1620, False), (1622, 1630, False)], True),
        ([(1612, 1620, False), (1622, 1630, False)], False),
        ([(0, 100, False), (200, 300, False), (400, 500, False)], None),  # long ago
    ],
)
def test_only_workers_that_died_one_after_another_are_a_crash_loop(inbox, lives, expected):
    for number, (start, end, stopped) in enumerate(lives):
        worker_ran(inbox, f"w{number}", NOON + start * SECOND, NOON + end * SECOND, stopped=stopped)
    now = NOON + 1830 * SECOND
    worker_ran(inbox, "alive", NOON + 1630 * SECOND, now)

    with inbox.database.read() as connection:
        found = read_lost_workers(connection, now)

    assert (found and found.is_loop) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(109, None), (111, "a worker died in the last 15 minutes")]
)
def test_a_worker_is_lost_after_110_seconds_while_another_lives(inbox, seconds, expected):
    """Before that it may be the first of a loop, which is told instead."""
    now = NOON + MINUTE + seconds * SECOND
    worker_ran(inbox, "w1", NOON, NOON + MINUTE)
    worker_ran(inbox, "stopped", NOON, NOON + MINUTE + 20 * SECOND, stopped=True)
    worker_ran(inbox, "alive", NOON, now)

    assert held(inbox, now).get("lost-worker") == expected
    update_issues(inbox, now)
    assert [one.last_at for one in list_issues(inbox)] == ([NOON + MINUTE] if expected else [])


def test_an_outage_of_the_database_is_no_death_of_workers(inbox):
    for number in range(3):
        worker_ran(inbox, f"w{number}", NOON, NOON + number * SECOND)

    with inbox.database.read() as connection:
        assert read_lost_workers(connection, NOON + 5 * MINUTE) is None


def test_a_run_that_was_lost_alone_names_its_handler_and_those_beside_it_are_no_issues(inbox, where):
    for owner, handler in (("w1", "book"), ("w1", "mail"), ("w1", "send"), ("another", "beside no one")):
        claimed(inbox, owner, handler, NOON, handler)
    update_issues(inbox, NOON + SECOND)
    at = NOON + MINUTE
    lose(inbox, "w2", at)
    update_issues(inbox, at)
    assert list_issues(inbox) == []
    # Two succeed alone, the third is lost again.
    change_id = value(where, "SELECT delivery_id FROM run WHERE handler = 'book'")
    (again,) = lose(inbox, "w2", at + MINUTE, only=change_id)
    lose(inbox, "w3", at + 3 * MINUTE)

    update_issues(inbox, at + 3 * MINUTE)

    assert again.handler == "book"
    (one,) = list_issues(inbox)
    assert (one.kind, one.title) == (IssueKind.KILLER, "workers die while book runs")
    assert one.place == "lost beside it: mail, send"
    assert value(where, "SELECT count(*) FROM failure WHERE error = '" + LOST + "'") == 5


@pytest.mark.parametrize("later", [2 * MINUTE, 20 * MINUTE])
def test_of_workers_that_a_known_handler_kills_no_other_issue_opens(inbox, where, later):
    """Neither of their loop, nor of the worker that is missing by then; later ones are issues again."""
    end = crash_loop(inbox, ["book", "mail"])
    at = end + MINUTE
    lose(inbox, "w8", at)
    lose(inbox, "w8", at, only=value(where, "SELECT min(delivery_id) FROM run WHERE handler = 'book'"))
    at += MINUTE
    lose(inbox, "w9", at)
    worker_ran(inbox, "next", end, at)

    update_issues(inbox, at + later)

    kinds = {one.kind for one in list_issues(inbox)}
    assert kinds == {IssueKind.KILLER} | ({IssueKind.WORKER} if later > 15 * MINUTE else set())


def put_counts(inbox, *rows, refused=()):
    counts = Counts()
    for what, at, number, event_type, handler, bucket in rows:
        counts.put(
            CountKey(hour_of(at), "default" if event_type else "", event_type, handler, what, "", bucket),
            Sum(number, 0.0, at),
        )
    for cause in refused:
        key = CountKey(hour_of(rows[0][1]), "default", "", "", "refused", cause, NO_DURATION)
        counts.put(key, Sum(1, 0.0, rows[0][1]))
    with inbox.database.write() as connection:
        counts.write(connection)


def test_what_cannot_be_judged_is_named_and_nothing_is_well_then(inbox, monkeypatch):
    inbox.put(incoming("k"))

    def unreadable():
        raise InboxUnavailable("no answer")

    monkeypatch.setattr(inbox.database, "row_security", unreadable)
    judgement = judge(Facts(inbox, NOON, "inline"))

    assert judgement.unjudged == {"row-security": "no answer"}
    assert judgement.sentence == "Not known: row-security could not be judged."
    assert "row-security" not in judgement.by_name()
    assert set(judgement.by_name().values()) == {False}


GIB = 1024**3


@pytest.mark.parametrize(
    ("free", "used", "expected"),
    [
        (GIB // 20, 0, {"disk-full"}),
        (GIB // 2, 0, {"disk"}),
        (2 * GIB, 3 * GIB, {"disk"}),
        (2 * GIB, GIB, set()),
    ],
)
def test_a_disk_that_is_nearly_full(inbox, monkeypatch, free, used, expected):
    monkeypatch.setattr(inbox.database, "free_bytes", lambda: (free, used))

    assert held(inbox, NOON).keys() & {"disk", "disk-full"} == expected
    update_issues(inbox, NOON)
    told = [one.title for one in list_issues(inbox) if condition_of(one.kind).is_notified]
    assert told == (["51 MiB are free beside the inbox of 0 MiB"] if "disk-full" in expected else [])


def test_a_disk_that_is_free_and_full_by_turns_is_told_once(inbox, monkeypatch):
    free = iter([GIB // 20, GIB // 8, GIB // 20, GIB // 2, 2 * GIB])
    states = []
    for minute, space in enumerate(free):
        monkeypatch.setattr(inbox.database, "free_bytes", lambda space=space: (space, 0))
        update_issues(inbox, NOON + timedelta(minutes=minute))
        (one,) = list_issues(inbox, [*IssueState])
        states.append((one.state, one.opened_at))

    assert states == [(IssueState.OPEN, NOON)] * 4 + [(IssueState.RESOLVED, NOON)]


def test_the_list_is_whole():
    assert len({one.name for one in CONDITIONS}) == len(CONDITIONS)
    kinds = [one.kind for one in CONDITIONS if one.kind is not None]
    assert sorted(kinds) == sorted(IssueKind)
    order = [[*Severity].index(one.severity) for one in CONDITIONS if one not in LIMITS]
    assert order == sorted(order)
    assert [one.name for one in CONDITIONS if one.kind is IssueKind.REFUSED and one.is_notified] == []


START = datetime(2026, 3, 1, tzinfo=UTC)


TYPES = list(EVENT_TYPES)


def came_in(hour):
    """What comes in an hour of a good service: types with their numbers."""
    if hour.weekday() < 5 and 8 <= hour.hour < 18:
        yield TYPES[0], 20
    if hour.hour >= 6:
        yield TYPES[1], 50
    if hour.day in (1, 29) and 2 <= hour.hour < 5:
        yield TYPES[2], 5_000
    if hour.hour == 3:
        yield TYPES[3], 10


@pytest.mark.slow
def test_thirty_days_of_bursts_deploys_pauses_and_scanners_raise_no_alarm(made_inbox):
    inbox, wrong = made_inbox, {}
    for number in range(30 * 24):
        hour = START + number * HOUR
        at = hour + MINUTE
        rows = [("accepted", at, count, name, "", NO_DURATION) for name, count in came_in(hour)]
        rows = rows or [("accepted", at, 1, "*", "", NO_DURATION)]
        rows += [("succeeded", at, count, "", "book", 5) for _, count in came_in(hour)]
        put_counts(inbox, *rows, refused=("missing", "malformed", "mismatch", "resources"))
        day, now = number // 24, hour + 30 * MINUTE
        if hour.hour == 0:  # a deploy: one worker stops in order, and the next one starts
            with inbox.database.write() as connection:
                record_stop(connection, f"v{day - 1}", hour)
        worker_ran(inbox, f"v{day}", hour, now)
        found = held(inbox, now, "worker")
        found and wrong.update({now: found})
        if hour.hour == 23:
            update_issues(inbox, now)

    assert wrong == {}
    assert list_issues(inbox) == []


def test_control_a_type_that_ends_is_notified_and_after_which_gap(made_inbox):
    name = next(iter(EVENT_TYPES))
    hours = [START + number * HOUR for number in range(30 * 24)]
    put_counts(made_inbox, *(("accepted", hour, 1, name, "", NO_DURATION) for hour in hours))

    assert "silence" not in held(made_inbox, hours[-1] + 3 * HOUR)
    update_issues(made_inbox, hours[-1] + 6 * HOUR)

    told = f"{name} has stopped coming: its longest gap in 30 days was at most 2 h"
    assert held(made_inbox, hours[-1] + 6 * HOUR)["silence"] == told
    (one,) = list_issues(made_inbox)
    assert (one.kind, one.title, one.state) == (IssueKind.SILENCE, told, IssueState.OPEN)


def test_a_type_that_ends_because_its_deliveries_are_refused_is_notified_with_that_cause(made_inbox):
    name = next(iter(EVENT_TYPES))
    hours = [START + number * HOUR for number in range(9 * 24)]
    put_counts(made_inbox, *(("accepted", hour, 1, name, "", NO_DURATION) for hour in hours))
    now = hours[-1] + 6 * HOUR
    none = ("refused", now, 0, "", "", NO_DURATION)

    put_counts(made_inbox, none, refused=("mismatch",) * REFUSED_LIMIT)  # a stranger may send as many
    assert held(made_inbox, now)["silence"].endswith("was at most 2 h")
    put_counts(made_inbox, none, refused=("mismatch",))
    assert held(made_inbox, now)["silence"].endswith("was at most 2 h; signed deliveries are refused")


@pytest.fixture
def made_inbox(tmp_path):
    inbox = open_inbox(tmp_path / "month.db")
    yield inbox
    inbox.close()


def test_what_is_retried_later_waits_for_no_worker_and_what_is_due_does(inbox):
    planned(inbox, "book", key="k", at=NOON)
    (one,) = claim(inbox, 1)
    settle(inbox, [one], RunState.DUE, due_at=NOON + 31 * MINUTE)

    assert "waiting" not in held(inbox, NOON + 30 * MINUTE)
    assert "waiting" not in held(inbox, NOON + 40 * MINUTE)
    assert held(inbox, NOON + 42 * MINUTE)["waiting"] == "a delivery has waited for a worker for 11 min"

    inbox.pause_handler("book", None, NOON)
    assert {"paused"} == {"paused", "waiting"} & held(inbox, NOON + 42 * MINUTE).keys()


def test_the_limit_of_age_is_of_all_that_is_unfinished(inbox):
    planned(inbox, "book", key="k", at=NOON)
    (one,) = claim(inbox, 1)
    settle(inbox, [one], RunState.DUE, due_at=NOON + 31 * MINUTE)
    limits = Thresholds(max_age=10 * MINUTE)

    judgement = judge(Facts(inbox, NOON + 30 * MINUTE, "inline", thresholds=limits))

    assert (judgement.holds("max-age"), judgement.holds("waiting")) == (True, False)
