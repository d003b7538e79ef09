"""Storing: durable, once per key, in groups, under threads, within the deadline. On every database."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta, timezone

import pytest

from billhook.errors import DeadlinePassed, Draining, InboxUnavailable
from billhook.inbox import NewDelivery, PutStatus, Receipt
from billhook.inbox.sqlite.library import sqlite3
from billhook.inbox.storing import committer
from billhook.inbox.storing.committer import Committer
from support.inbox_view import NOON, Foreigner, change, hung, incoming, is_writable, open_inbox, rows, value
from support.postgres import only_sqlite
from support.processes import together, until
from support.timeouts import scaled


def test_put_stores_every_field_of_a_delivery(inbox, where):
    body = bytes(range(256))
    zone = timezone(timedelta(hours=5, minutes=30))
    signed_at = datetime(2026, 1, 15, 17, 30, tzinfo=zone)

    stored = ("eu", "k\u00e9y 1", "Some.Type", body, '{"A": "\u00fc"}')

    receipt = inbox.put(NewDelivery(*stored, signed_at, NOON))

    columns = "id, source, key, event_type, body, headers, state, signed_at, received_at"
    (row,) = rows(where, f"SELECT {columns} FROM delivery")
    assert receipt == Receipt(PutStatus.ACCEPTED, row[0], "Some.Type")
    assert row[1:] == (*stored, "received", *["2026-01-15 12:00:00.000000"] * 2)


def test_received_returns_deliveries_as_they_were_put(inbox):
    at = datetime(2026, 1, 15, 12, 0, 0, 123456, tzinfo=UTC)
    given = [incoming("k", body=b"\x00\xff", at=at), NewDelivery("s", "k", "T", b"", "{}", None, NOON)]
    ids = [inbox.put(one).delivery_id for one in given]

    received = inbox.received(10)

    names = ("source", "key", "event_type", "body", "headers", "signed_at", "received_at")
    assert [one.delivery_id for one in received] == ids
    for stored, one in zip(received, given, strict=True):
        assert [getattr(stored, name) for name in names] == [getattr(one, name) for name in names]


def test_received_returns_the_oldest_first_or_a_single_delivery(inbox):
    receipts = [inbox.put(incoming(f"k{n}")) for n in range(3)]

    assert [stored.key for stored in inbox.received(2)] == ["k0", "k1"]
    assert [stored.key for stored in inbox.poll(10, only=receipts[2].delivery_id)[0].deliveries] == ["k2"]


@pytest.mark.parametrize("known", [(), ("k3",)], ids=["all new", "one known"])
def test_a_batch_has_its_ids_in_the_order_in_which_it_came(inbox, where, known):
    """Whatever order the rows are locked in: the newest of a key's order is found by its id."""
    for key in known:
        inbox.put(incoming(key))
    keys = ["z", "a", "k9", "k3", "m", "b"]

    ids = inbox.database.insert_new([incoming(key) for key in keys])

    new = [key for key in keys if key not in known]
    assert rows(where, "SELECT key FROM delivery ORDER BY id") == [(key,) for key in (*known, *new)]
    assert list(ids) == sorted(ids)
    assert len(ids) == len(new)


# --- once per key ---------------------------------------------------------------------------------


def test_a_repeated_key_is_a_duplicate_of_its_own_source_alone(inbox):
    deliveries = [incoming("k", source=source, body=source.encode()) for source in ("eu", "us")]
    stored = [inbox.put(one) for one in deliveries]

    repeated = [inbox.put(one) for one in deliveries]

    assert [receipt.status for receipt in stored + repeated] == [PutStatus.ACCEPTED] * 2 + [
        PutStatus.DUPLICATE
    ] * 2
    assert [receipt.delivery_id for receipt in repeated] == [receipt.delivery_id for receipt in stored]


def test_concurrent_new_repeated_and_conflicting_keys_each_get_their_own_receipt(inbox, where):
    inbox.put(incoming("old"))

    def put(number):
        key = ["old", "old", "mixed", f"k{number}"][number % 4]
        body = b"%d" % number if number % 4 == 3 else b"{}"
        event_type = "Other" if number % 4 == 1 else "PingTest"
        return key, inbox.put(incoming(key, event_type=event_type, body=body))

    results = together(48, put)

    for number, (key, receipt) in enumerate(results):
        variant = "*" if number % 4 == 1 else ""
        expected = value(where, "SELECT id FROM delivery WHERE key = ? AND variant = ?", key, variant)
        assert receipt.delivery_id == expected
        if number % 4 == 0:
            assert receipt.status is PutStatus.DUPLICATE
        if number % 4 == 3:
            assert receipt.status is PutStatus.ACCEPTED
            assert value(where, "SELECT body FROM delivery WHERE key = ?", key) == b"%d" % number
    mixed = [receipt.status for key, receipt in results if key == "mixed"]
    assert mixed.count(PutStatus.ACCEPTED) == 1
    others = [receipt.status for number, (_, receipt) in enumerate(results) if number % 4 == 1]
    assert (others.count(PutStatus.CONFLICT), others.count(PutStatus.DUPLICATE)) == (1, 11)


# --- in groups ------------------------------------------------------------------------------------


class Recorded(sqlite3.Connection):
    """A connection that keeps the statements SQLite ran."""

    statements: list[str]

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.set_trace_callback(type(self).statements.append)


@pytest.fixture
def batches(where, monkeypatch):
    """How many transactions have stored what is there."""
    Recorded.statements = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **{**k, "factory": Recorded}))

    def count():
        if isinstance(where, str):
            return value(where, "SELECT count(DISTINCT xmin::text) FROM delivery")
        # Each batch once: one that found the file locked was tried again.
        return len({text for text in Recorded.statements if text.startswith("INSERT INTO delivery")})

    return count


def putting(inbox, number, receipts):
    """So many threads that each store a delivery, and note what became of it."""
    threads = [
        threading.Thread(target=lambda n=n: receipts.append(inbox.put(incoming(f"k{n}"))))
        for n in range(number)
    ]
    for thread in threads:
        thread.start()
    return threads


@only_sqlite
def test_puts_one_after_the_other_do_not_wait_for_company(inbox, batches):
    started = time.monotonic()

    for number in range(20):
        inbox.put(incoming(f"k{number}"))

    assert batches() == 20
    assert time.monotonic() - started < scaled(2)


# --- the deadline ---------------------------------------------------------------------------------


def test_a_foreign_lock_makes_a_put_give_up_within_the_deadline_and_recover(where):
    inbox = open_inbox(where, deadline_seconds=0.5)

    with Foreigner(where):
        started = time.monotonic()
        with pytest.raises(InboxUnavailable, match=r"locked|no commit within"):
            inbox.put(incoming("k"))
        seconds = time.monotonic() - started
    status = until(lambda: _accepted(inbox, "k")).status

    assert seconds < scaled(2)
    assert status in (PutStatus.ACCEPTED, PutStatus.DUPLICATE)
    assert value(where, "SELECT count(*) FROM delivery") == 1


@only_sqlite
def test_the_time_that_is_left_is_the_time_that_is_waited(where):
    inbox = open_inbox(where, deadline_seconds=5)

    with Foreigner(where):
        started = time.monotonic()
        for left, told in ((0.1, r"0\.1"), (0.0, r"0\.0"), (-1.0, r"-1\.0")):
            with pytest.raises(DeadlinePassed, match=f"no commit within {told} s"):
                inbox.put(incoming("k"), timeout_seconds=left)
        seconds = time.monotonic() - started

    assert seconds < scaled(2)


def test_a_hanging_commit_does_not_delay_later_puts(where):
    inbox = open_inbox(where, deadline_seconds=1)
    inbox.put(incoming("before"))
    with hung(where):
        with pytest.raises(DeadlinePassed, match="no commit within"):
            inbox.put(incoming("k1"))
        until(lambda: _is_known_to_hang(inbox))
        started = time.monotonic()
        with pytest.raises(DeadlinePassed, match="the inbox does not answer"):
            inbox.put(incoming("k2"))
        seconds = time.monotonic() - started

    assert seconds < scaled(0.8)
    until(lambda: _accepted(inbox, "k3"))


def _is_known_to_hang(inbox):
    """The committer has hung for longer than a deadline: on a busy machine it begins late."""
    with pytest.raises(DeadlinePassed) as caught:
        inbox.put(incoming("k2"))
    return "the inbox does not answer" in str(caught.value)


def _accepted(inbox, key):
    with contextlib.suppress(InboxUnavailable):
        return inbox.put(incoming(key))
    return None


def test_a_statement_that_cannot_run_is_a_failure_of_storage_until_it_can(inbox, where):
    inbox.put(incoming("before"))
    change(where, "ALTER TABLE delivery RENAME TO lost")
    with pytest.raises(InboxUnavailable, match=r"no such table: delivery|\.delivery\" does not exist"):
        inbox.put(incoming("during"))
    change(where, "ALTER TABLE lost RENAME TO delivery")

    assert until(lambda: _accepted(inbox, "during")).status is PutStatus.ACCEPTED


@only_sqlite
def test_puts_past_their_deadline_do_not_block_others(inbox, where):
    with Foreigner(where) as foreigner:
        first = threading.Thread(target=inbox.put, args=(incoming("first"),))
        first.start()
        time.sleep(0.1)
        gave_up = together(5, lambda n: inbox.put(incoming(f"gave up {n}"), timeout_seconds=0.05))
        patient = threading.Thread(target=inbox.put, args=(incoming("patient"),))
        patient.start()
        time.sleep(0.05)
        foreigner.let_go()
    first.join()
    patient.join()

    receipt = inbox.put(incoming("last"))

    assert {type(result) for result in gave_up} == {DeadlinePassed}
    assert value(where, "SELECT id FROM delivery WHERE key = 'last'") == receipt.delivery_id
    assert value(where, "SELECT count(*) FROM delivery WHERE key IN ('first', 'patient')") == 2


def test_a_crowd_shares_transactions_of_a_bounded_size(inbox, where, batches):
    def put(number):
        return inbox.put(incoming(f"k{number}"), timeout_seconds=10).status

    with Foreigner(where) as foreigner:
        holder = threading.Thread(target=inbox.put, args=(incoming("first"),))
        holder.start()
        time.sleep(0.1)
        releasing = threading.Timer(0.3, foreigner.let_go)
        releasing.start()
        verdicts = together(300, put)
        releasing.join()
    holder.join()

    assert verdicts == [PutStatus.ACCEPTED] * 300
    assert value(where, "SELECT count(*) FROM delivery") == 301
    assert 2 < batches() < 150  # some 5 where nothing else runs, and never one each


def test_check_writable_answers_all_callers_within_the_deadline(where):
    inbox = open_inbox(where, deadline_seconds=0.3)
    inbox.check_writable()
    with hung(where):
        started = time.monotonic()
        answers = together(20, lambda _: inbox.check_writable())
        seconds = time.monotonic() - started
        with pytest.raises(DeadlinePassed, match=r"no write within 0\.3 s"):
            inbox.check_writable()

    assert {type(answer) for answer in answers} == {DeadlinePassed}
    assert seconds < scaled(1.4)  # one after the other they would take 6
    until(lambda: is_writable(inbox))


@only_sqlite
def test_other_puts_fail_at_once_while_one_probes_failed_storage(where):
    inbox = open_inbox(where, deadline_seconds=1.5)
    inbox.put(incoming("before"))
    change(where, "ALTER TABLE delivery RENAME TO lost")
    with pytest.raises(InboxUnavailable, match="delivery"):
        inbox.put(incoming("k1"))
    change(where, "ALTER TABLE lost RENAME TO delivery")
    with Foreigner(where):
        one = threading.Thread(target=lambda: _accepted(inbox, "k2"))
        one.start()
        until(lambda: inbox._committer._busy_since is not None)
        started = time.monotonic()
        with pytest.raises(InboxUnavailable, match="the inbox is failing"):
            inbox.put(incoming("k3"))
        seconds = time.monotonic() - started
        one.join()

    assert seconds < scaled(0.8)
    assert until(lambda: _accepted(inbox, "after")).status is PutStatus.ACCEPTED


@pytest.mark.parametrize(("slow_seconds", "sizes"), [(0.0, [1, 2]), (60.0, [1, 1, 1])])
def test_after_a_slow_batch_a_request_that_comes_before_the_turn_to_write_is_in_the_batch(
    monkeypatch, slow_seconds, sizes
):
    """With the control: on a quick disk a batch is filled before it waits for other processes."""
    monkeypatch.setattr("billhook.inbox.storing.committer.SLOW_SECONDS", slow_seconds)
    monkeypatch.setattr("billhook.inbox.storing.committer.GATHER_SECONDS", 0.0)
    other_process, waiting, committed = threading.Lock(), threading.Event(), []

    @contextlib.contextmanager
    def turn():
        waiting.set()
        with other_process:
            yield

    def commit(batch):
        waiting.set()
        with contextlib.nullcontext() if slow_seconds == 0.0 else other_process:
            committed.append(len(batch))
        return [Receipt(PutStatus.ACCEPTED, 1, one.key) for one in batch]

    committer = Committer(commit, (), 20.0, turn=turn)
    committer.put(incoming("first"), 20.0)
    waiting.clear()
    with other_process:
        threads = [threading.Thread(target=committer.put, args=(incoming(key), 20.0)) for key in ("k1", "k2")]
        threads[0].start()
        assert waiting.wait(20)
        threads[1].start()
        until(lambda: committer._queue.qsize() == 1)
    for thread in threads:
        thread.join(20)
    committer.close()

    assert committed == sizes


def test_a_request_that_is_interrupted_while_its_batch_is_committed_holds_up_no_other(monkeypatch):
    begun, queued, taken, ended = (threading.Event() for _ in range(4))
    result, seconds = Future.result, []

    def commit(batch):
        if batch[0].key == "before":
            begun.set()
            queued.wait(10)
        else:
            taken.set()
            ended.wait(10)
        return [Receipt(PutStatus.ACCEPTED, 1, one.key) for one in batch]

    def interrupted(future, timeout=None):
        if threading.current_thread().name != "interrupted":
            return result(future, timeout)
        taken.wait(10)
        raise SystemExit

    def put(key):
        started = time.monotonic()
        with contextlib.suppress(SystemExit):
            committer.put(incoming(key), 10.0)
            seconds.append(time.monotonic() - started)
        if key == "interrupted":
            ended.set()

    monkeypatch.setattr(Future, "result", interrupted)
    committer = Committer(commit, (), 20.0)
    threads = [
        threading.Thread(target=put, args=(key,), name=key) for key in ("before", "interrupted", "next")
    ]
    for number, thread in enumerate(threads):
        thread.start()
        begun.wait(10)
        until(lambda number=number: committer._queue.qsize() == number)
    queued.set()
    for thread in threads:
        thread.join(20)
    committer.close()

    assert len(seconds) == 2
    assert max(seconds) < 9


# --- the end --------------------------------------------------------------------------------------


@only_sqlite
def test_closing_commits_what_waits(where):
    inbox = open_inbox(where)
    results = []
    with Foreigner(where) as foreigner:
        threads = putting(inbox, 10, results)
        time.sleep(0.1)
        closing = threading.Thread(target=inbox.close)
        closing.start()
        time.sleep(0.05)
        foreigner.let_go()
    for thread in (*threads, closing):
        thread.join()

    assert [receipt.status for receipt in results] == [PutStatus.ACCEPTED] * 10
    assert value(where, "SELECT count(*) FROM delivery") == 10


@only_sqlite
def test_after_closing_nothing_more_is_taken(where):
    used, unused = open_inbox(where), open_inbox(where)
    used.put(incoming("k"))
    used.close()
    unused.close()

    for inbox in (used, unused):
        with pytest.raises(Draining, match="shutting down"):
            inbox.put(incoming("late"))
        inbox.close()


@only_sqlite
def test_where_threads_are_greenlets_all_of_a_batch_are_woken_at_once(inbox, monkeypatch):
    """gevent runs them one after the other, so none has to wake the next."""
    monkeypatch.setattr(committer, "threads_are_greenlets", lambda: True)
    receipts = []
    with inbox.database.write():  # the committer waits here, so that all of them are in its next batch
        threads = putting(inbox, 5, receipts)
        until(lambda: inbox._committer._queue.qsize() + (inbox._committer._busy_since is not None) > 0)
    for thread in threads:
        thread.join(30)

    assert sorted(receipt.status for receipt in receipts) == [PutStatus.ACCEPTED] * 5


@only_sqlite
def test_an_armed_process_reaches_the_failpoints_of_a_batch(inbox, monkeypatch):
    reached = []
    monkeypatch.setattr(committer, "reach", reached.append)

    inbox.put(incoming("not armed"))
    assert reached == []
    monkeypatch.setattr(committer, "ARMED", True)
    inbox.put(incoming("armed"))

    assert reached == ["before_insert", "after_insert"]
