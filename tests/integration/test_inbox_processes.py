"""One inbox, several processes: forks, concurrent starts, one key from everywhere, kill -9.

On every database.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from billhook.basics import concurrency
from billhook.inbox import Inbox, RunPlan
from billhook.inbox.tables.revision import REVISION
from support.inbox_view import NOON, change, incoming, open_inbox, place_of, rows, value
from support.processes import in_children, together
from support.timeouts import scaled


def whole(where):
    """Nothing is amiss inside the file; a server looks after that itself."""
    return isinstance(where, str) or rows(where, "PRAGMA integrity_check") == [("ok",)]


def check_one_key_from_four_processes_is_stored_once(where, put):
    """`put(key)` gives the verdict; the same keys come from everywhere at once."""

    def child(_):
        verdicts = together(8, lambda n: str(put(f"k{n % 4}")))
        return ",".join(verdicts).encode()

    verdicts = b",".join(in_children(4, child)).decode().split(",")

    assert value(where, "SELECT count(*) FROM delivery") == 4
    assert sorted(verdicts) == ["accepted"] * 4 + ["duplicate"] * 28


def test_one_key_from_four_processes_of_eight_threads_is_accepted_once(where):
    inbox = open_inbox(where)

    check_one_key_from_four_processes_is_stored_once(where, lambda key: inbox.put(incoming(key)).status)

    inbox.close()


def test_looking_before_inserting_would_be_caught(bare_url):
    where = place_of(bare_url)
    change(where, "CREATE TABLE delivery (id INTEGER, key TEXT)")

    def look_then_insert(key):
        if rows(where, "SELECT 1 FROM delivery WHERE key = ?", key):
            return "duplicate"
        time.sleep(0.02)
        change(where, "INSERT INTO delivery (key) VALUES (?)", key)
        return "accepted"

    with pytest.raises(AssertionError, match="assert"):
        check_one_key_from_four_processes_is_stored_once(where, look_then_insert)


def test_children_of_a_process_that_wrote_already_write_on_and_the_file_stays_whole(where):
    inbox = open_inbox(where)
    for number in range(20):
        inbox.put(incoming(f"parent{number}"))

    def child(number):
        receipts = together(8, lambda n: [inbox.put(incoming(f"child{number}-{n}-{m}")) for m in range(10)])
        inbox.close()
        return str(sum(len(r) for r in receipts if isinstance(r, list))).encode()

    stop = threading.Event()
    beside = threading.Thread(target=_put_until, args=(inbox, stop))
    beside.start()
    counts = in_children(4, child)
    stop.set()
    beside.join()
    after = inbox.put(incoming("parent-after")).status

    assert counts == [b"80"] * 4
    assert after == "accepted"
    assert value(where, "SELECT count(*) FROM delivery WHERE key LIKE 'child%'") == 320
    inbox.close()
    assert whole(where)


def _put_until(inbox, stop):
    number = 0
    while not stop.is_set():
        inbox.put(incoming(f"beside{number}"))
        number += 1


@pytest.mark.slow
@pytest.mark.parametrize("guarded", [True, False])
def test_control_a_child_forked_during_a_read_without_the_guard_can_never_empty_the_log(
    tmp_path, monkeypatch, guarded
):
    if not guarded:
        monkeypatch.setattr(concurrency, "_steps", [])
    inbox = open_inbox(tmp_path / "billhook.db")
    inbox.put(incoming("parent"))
    reading = threading.Event()

    def read():
        with inbox.database.read() as connection:
            connection.exec_driver_sql("SELECT 1 FROM delivery").all()
            reading.set()
            time.sleep(1)

    def put_and_checkpoint(_):
        status = inbox.put(incoming("child")).status
        time.sleep(2)  # until the parent has read to its end: only what this process inherited is left
        inbox.database.checkpoint(at_once=True)
        return f"{status} {(tmp_path / 'billhook.db-wal').stat().st_size > 0}".encode()

    thread = threading.Thread(target=read)
    thread.start()
    reading.wait(60)
    (result,) = in_children(1, put_and_checkpoint)
    thread.join()
    inbox.close()

    assert result == (b"accepted False" if guarded else b"accepted True")


def test_a_fork_during_a_read_does_not_deadlock(where, monkeypatch):
    # As long as that a fork which waits for its own thread is late on a busy machine too.
    monkeypatch.setattr("billhook.inbox.sqlite.driver._LONGEST_SECONDS", 60.0)
    inbox = open_inbox(where)
    inbox.put(incoming("parent"))

    with inbox.database.read():
        started = time.monotonic()
        assert in_children(1, lambda _: b"alive") == [b"alive"]
        assert time.monotonic() - started < scaled(2.0)

    assert inbox.put(incoming("after")).status == "accepted"
    inbox.close()


def test_the_first_puts_of_a_child_may_come_from_many_threads_at_once(where):
    inbox = open_inbox(where)
    inbox.put(incoming("parent"))

    def child(number):
        sys.setswitchinterval(1e-5)  # whoever can be interrupted is
        results = together(16, lambda n: inbox.put(incoming(f"{number}-{os.getpid()}-{n}")))
        return b",".join(str(getattr(result, "status", result)).encode() for result in results)

    for _ in range(2):
        assert in_children(2, child) == [b",".join([b"accepted"] * 16)] * 2

    inbox.close()
    assert value(where, "SELECT count(*) FROM delivery") == 65
    assert whole(where)


def test_a_forked_child_reads_and_plans(where):
    inbox = open_inbox(where)
    delivery_id = inbox.put(incoming("k")).delivery_id
    inbox.received(1)
    with inbox.transaction("parent"):
        pass

    def child(number):
        with inbox.transaction(f"child{number}") as transaction:
            planned_here = transaction.plan([RunPlan(delivery_id, ("a",))], NOON)
        return f"{len(inbox.received(1))}{len(planned_here)}".encode()

    results = in_children(4, child)

    assert sorted(results) == [b"00"] * 3 + [b"01"]
    inbox.close()


@pytest.mark.slow
def test_four_processes_may_upgrade_a_new_inbox_at_once(bare_url):
    def child(number):
        inbox = Inbox(bare_url)
        inbox.upgrade()
        inbox.prepare()
        return str(inbox.put(incoming(f"k{number}")).status).encode()

    results = in_children(4, child)

    where = place_of(bare_url)
    assert results == [b"accepted"] * 4
    assert rows(where, "SELECT version_num FROM billhook_version") == [(REVISION,)]
    assert whole(where)
