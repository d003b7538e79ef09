"""The workers of the last day: in which state each is, how often its place was restarted, what it runs."""

from __future__ import annotations

from billhook.inbox import WorkerRecord
from billhook.inbox.reading.worker_list import WorkerRun, list_workers
from billhook.inbox.running.workers import record_stop
from support.runs import at, claim, planned, settle


def seen(inbox, owner, started, *, last=None, host="a", engine="worker", threads=4):
    record = WorkerRecord(owner, engine, 2, at(started), host=host, pid=7, threads=threads)
    inbox.record_worker(record, at(started if last is None else last))


def stop(inbox, owner, seconds):
    with inbox.database.write() as connection:
        record_stop(connection, owner, at(seconds))


def listed(inbox, seconds):
    return {one.owner: one for one in list_workers(inbox, at(seconds))}


def test_a_worker_runs_stopped_in_order_or_is_lost(inbox):
    seen(inbox, "stops", 0)
    stop(inbox, "stops", 30)
    seen(inbox, "is lost", 10)
    seen(inbox, "runs", 20, last=90)

    before, after = listed(inbox, 69), listed(inbox, 71)

    for found, state in ((before, "running"), (after, "lost")):
        states = [(one.owner, one.state.value) for one in found.values()]
        assert states == [("runs", "running"), ("is lost", state), ("stops", "stopped")]
    assert [one.ended_at for one in after.values()] == [None, at(10), at(30)]


def test_the_restarts_are_of_one_place_on_one_host(inbox):
    for number in range(4):  # two at once, each restarted once
        seen(inbox, f"w{number}", 100 * (number // 2), last=90 + 100 * (number // 2))
    for number in range(3):  # one that crashes
        seen(inbox, f"b{number}", 10 * number, last=10 * number + 5, host="b")
    seen(inbox, "a thread", 500, engine="thread")
    seen(inbox, "c0", 0, host="c")
    stop(inbox, "c0", 5)
    seen(inbox, "c1", 10, host="c")  # after one that stopped in order

    found = {owner: one.restarts for owner, one in listed(inbox, 1000).items()}

    assert found == {
        "w0": 0,
        "w1": 0,
        "w2": 1,
        "w3": 1,
        "b0": 0,
        "b1": 1,
        "b2": 2,
        "a thread": 0,
        "c0": 0,
        "c1": 0,
    }


def test_it_has_what_it_runs_no_more_at_once_than_its_threads(inbox):
    seen(inbox, "host:1", 0, threads=2)
    ids = [planned(inbox, "book", key=f"k{number}") for number in range(3)]
    planned(inbox, "book", key="waits")
    claims = claim(inbox, 3, 5)

    one = listed(inbox, 10)["host:1"]

    assert (one.claimed, one.running) == (3, 2)
    assert one.runs == tuple(WorkerRun(each, "book", at(5)) for each in ids)
    settle(inbox, claims, seconds=8)
    assert listed(inbox, 10)["host:1"].claimed == 0
