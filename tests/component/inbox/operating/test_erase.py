"""Erasing deliveries: what goes for good, what is left, and that no handler meets an empty body."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from billhook.inbox import ContentKey, DeliveryFilter, HandlerLimits, PutStatus, RunOptions, RunState
from billhook.inbox.counting.retention import Cutoffs
from billhook.inbox.operating.operations import EraseResult, ReplayResult, discard, empty_log, erase, replay
from billhook.inbox.reading.searches import search_bodies
from billhook.inbox.sqlite.library import sqlite3
from support.inbox_view import NOON, incoming, open_inbox, rows, value
from support.postgres import only_sqlite
from support.runs import OWNER, claim, planned, result_of, settle

MARK = b"a-secret-of-the-customer"
BODY = b'{"customerId": "' + MARK + b'"}'
LATER = NOON + timedelta(hours=1)


def put(inbox, key, *handlers, body=BODY, options=None):
    """A delivery that is planned for these handlers; its id."""
    return planned(inbox, *handlers, key=key, body=body, options=options)


def handle(inbox, state=RunState.SUCCEEDED, seconds=0, times=1, limits=None):
    """Whatever is due ends so; an error quotes the body, as those of handlers do."""
    error = None if state is RunState.SUCCEEDED else f"KeyError: {MARK.decode()}" * times
    due = seconds + 3600 if state is RunState.DUE else None
    claims = claim(inbox, 200, seconds, limits)
    with inbox.transaction(OWNER, limits or {}) as transaction:
        ended = [result_of(one, state, seconds, due=due, error=error, traceback=error) for one in claims]
        transaction.settle(ended)
    return claims


def stored_text(where):
    """All that the inbox's tables hold, as one text."""
    tables = ("delivery", "run", "failure", "billhook_action", "billhook_handler")
    return "".join(str(rows(where, f"SELECT * FROM {table}")) for table in tables)


# --- what goes and what stays ---------------------------------------------------------------------


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.DEAD])
def test_an_erased_delivery_keeps_its_key_and_its_result_and_nothing_of_its_content(inbox, where, state):
    content = ContentKey("digest", ("customer_id",), NOON, 60.0)
    options = RunOptions(f"order {MARK.decode()}", content, newest_only=True, newest_key=MARK.decode())
    erased = planned(inbox, "book", body=BODY, options=options, identifiers=(MARK.decode(),))
    handle(inbox, state)
    other = put(inbox, "k2", "book", body=b"{}")
    assert MARK.decode() in stored_text(where)

    result = erase(inbox, [erased], LATER)

    assert result == EraseResult(deliveries=1)
    assert rows(
        where, "SELECT key, state, body, headers, error, digest FROM delivery WHERE id = ?", erased
    ) == [("k", "erased", b"", "{}", None, None)]
    assert rows(where, "SELECT handler, state, attempts, last_error, order_key, identity FROM run WHERE "
                "delivery_id = ?", erased) == [("book", state.value, 1, None, None, None)]  # fmt: skip
    assert MARK.decode() not in stored_text(where)
    assert value(where, "SELECT state FROM delivery WHERE id = ?", other) == "planned"


def test_failed_attempts_of_an_erased_delivery_are_gone_and_those_of_others_stay(inbox, where):
    erased, other = put(inbox, "k1", "book"), put(inbox, "k2", "book")
    handle(inbox, RunState.DEAD)

    erase(inbox, [erased], LATER)

    left = rows(where, "SELECT delivery_id FROM failure JOIN run ON run.id = run_id")
    assert left == [(other,)]


def test_the_error_of_an_erased_delivery_is_removed_from_the_pause_of_its_handler(inbox, where):
    erased = put(inbox, "k1", "book")
    handle(inbox, RunState.DEAD, limits={"book": HandlerLimits(("book",), pause_after=1)})
    inbox.pause_handler("other", "by hand", NOON)
    assert MARK.decode() in stored_text(where)

    erase(inbox, [erased], LATER)

    assert MARK.decode() not in stored_text(where)
    assert rows(where, "SELECT paused_why FROM billhook_handler ORDER BY id") == [
        ("1 failed attempts in a row",),
        ("by hand",),
    ]
    assert [(one.name, one.why) for one in inbox.paused_handlers()] == [
        ("book", "1 failed attempts in a row, the last one: erased with its delivery"),
        ("other", "by hand"),
    ]


def test_a_quarantined_delivery_is_erased_with_the_reason_and_its_further_types(inbox, where):
    unreadable = planned(inbox, body=BODY, error=f"not readable: {MARK.decode()}")
    kinds = ("InvoiceApproved", "Aa", f"Bb.{MARK.decode()}")
    *_, conflict = [inbox.put(incoming("k", event_type=kind)).delivery_id for kind in kinds]

    assert erase(inbox, [unreadable, conflict], LATER) == EraseResult(deliveries=2)
    assert MARK.decode() not in stored_text(where)


def test_a_delivery_that_is_sent_again_after_its_erasure_is_a_duplicate_and_not_stored(inbox, where):
    delivery_id = put(inbox, "k", "book")
    handle(inbox)
    erase(inbox, [delivery_id], LATER)

    for body in (BODY, b'{"other": "bytes"}'):
        receipt = inbox.put(incoming("k", body=body))
        assert (receipt.status, receipt.delivery_id) == (PutStatus.DUPLICATE, delivery_id)

    assert rows(where, "SELECT body FROM delivery") == [(b"",)]
    # The control: under another key it is new.
    assert inbox.put(incoming("k2", body=BODY)).status is PutStatus.ACCEPTED


def test_an_erased_delivery_is_not_replayed(inbox, where):
    ids = [put(inbox, "k1", "book"), put(inbox, "k2")]
    handle(inbox, RunState.DEAD)
    erase(inbox, ids, LATER)

    new = {"handler": "new", "backfill": lambda *_: pytest.fail("a handler that is newer is asked")}
    for how in ({}, {"all_handlers": True}, {"handler": "book"}, {"as_type": "PingTest"}, new):
        assert replay(inbox, ids, LATER, **how) == ReplayResult(), how
        assert handle(inbox) == [], how
    assert rows(where, "SELECT state FROM delivery") == [("erased",)] * 2
    assert erase(inbox, ids, LATER, discard_unfinished=True) == EraseResult()
    assert discard(inbox, ids, "why", LATER).deliveries == 0


# --- what is not finished -------------------------------------------------------------------------


def test_a_delivery_that_is_not_finished_is_left_with_its_body(inbox, where):
    unread = inbox.put(incoming("k1", body=BODY)).delivery_id
    waiting = put(inbox, "k2", "book")

    result = erase(inbox, [unread, waiting], LATER)

    assert result == EraseResult(unfinished=2)
    assert rows(where, "SELECT body FROM delivery") == [(BODY,), (BODY,)]
    (handled,) = handle(inbox)
    assert handled.delivery.body == BODY


def test_one_that_is_discarded_for_it_is_not_handled_any_more(inbox, where):
    unread = inbox.put(incoming("k1", body=BODY)).delivery_id
    waiting, retrying = put(inbox, "k2", "book"), put(inbox, "k3", "send")
    handle(inbox, RunState.DUE)

    result = erase(inbox, [unread, waiting, retrying], LATER, discard_unfinished=True)

    assert result == EraseResult(deliveries=3, discarded=3)
    assert MARK.decode() not in stored_text(where)
    assert inbox.received(9) == []
    assert claim(inbox, seconds=2 * 86_400) == []


def test_the_result_of_a_running_handler_is_not_written_to_an_erased_delivery(inbox, where):
    delivery_id = put(inbox, "k", "book")
    claims = claim(inbox)
    erase(inbox, [delivery_id], NOON, discard_unfinished=True)

    settle(inbox, claims, RunState.DEAD, 3600, error=MARK.decode(), traceback=MARK.decode())

    assert MARK.decode() not in stored_text(where)
    assert value(where, "SELECT state FROM delivery") == "erased"


def test_a_dry_run_counts_and_changes_nothing(inbox, where):
    done = put(inbox, "k1", "book")
    handle(inbox)
    open_one = put(inbox, "k2", "book")
    before = stored_text(where)

    counts = [
        erase(inbox, [done, open_one], LATER, discard_unfinished=flag, dry_run=True) for flag in (False, True)
    ]

    assert counts == [EraseResult(deliveries=1, unfinished=1), EraseResult(deliveries=2, discarded=1)]
    assert stored_text(where) == before


def test_an_erased_delivery_is_deleted_when_its_key_may_go(inbox, where):
    delivery_id = put(inbox, "k")
    erase(inbox, [delivery_id], LATER)

    for days, left in ((3, "erased"), (29, "erased"), (31, None)):
        inbox.prune(Cutoffs.of(NOON + timedelta(days=days), 30))
        assert rows(where, "SELECT state FROM delivery") == ([(left,)] if left else [])


# --- the file -------------------------------------------------------------------------------------


def bytes_of(path: Path) -> bytes:
    """What the files of a SQLite inbox hold, whatever SQLite makes of it."""
    files = [path.with_name(path.name + suffix) for suffix in ("", "-wal")]
    return b"".join(one.read_bytes() for one in files if one.exists())


@only_sqlite
@pytest.mark.parametrize("size", [0, 9_000], ids=["in-a-page", "over-pages"])
def test_nothing_of_an_erased_body_is_left_in_the_file_or_its_log(inbox, where, size):
    body = b'{"customerId": "' + MARK + b'", "x": "' + MARK * (size // len(MARK)) + b'"}'
    ids = [put(inbox, f"k{number}", "book", body=body) for number in range(20)]
    handle(inbox, RunState.DUE)
    assert MARK in bytes_of(where)

    erase(inbox, ids, LATER, discard_unfinished=True)
    assert empty_log(inbox) is True

    assert MARK not in bytes_of(where)


@only_sqlite
def test_old_copies_of_moved_rows_are_gone_after_vacuum(inbox, where):
    """Rows that grow by their errors are moved to other pages, and SQLite zeroes only what it deletes."""
    ids = [put(inbox, f"k{number}", "book", "mail") for number in range(60)]
    for hours in range(4):
        handle(inbox, RunState.DUE, hours * 3600, times=1 + 7 * hours)

    erase(inbox, ids, LATER, discard_unfinished=True)
    assert empty_log(inbox) is True
    inbox.close()
    with closing(sqlite3.connect(where)) as connection:
        connection.execute("VACUUM")

    assert MARK not in bytes_of(where)


@only_sqlite
def test_control_without_overwriting_the_body_stays_in_the_file_until_vacuum(inbox, where):
    put(inbox, "k", body=BODY * 500)
    inbox.close()

    with closing(sqlite3.connect(where)) as connection:
        connection.execute("PRAGMA secure_delete=OFF")
        connection.execute("UPDATE delivery SET body = ''")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    assert MARK in bytes_of(where)
    with closing(sqlite3.connect(where)) as connection:
        connection.execute("VACUUM")
    assert MARK not in bytes_of(where)
    assert open_inbox(where).put(incoming("k2")).status is PutStatus.ACCEPTED


@pytest.mark.parametrize("behind_a_link", [False, True])
def test_a_log_that_a_reader_still_needs_is_said_to_stay(tmp_path, monkeypatch, behind_a_link):
    """Behind a link it is beside the file itself."""
    monkeypatch.setattr("billhook.inbox.operating.operations._LOG_SECONDS", 0.1)
    file, link = tmp_path / "folder" / "inbox.db", tmp_path / "link.db"
    file.parent.mkdir()
    open_inbox(file).close()
    link.symlink_to(file)
    inbox = open_inbox(link if behind_a_link else file)
    delivery_id = put(inbox, "k")

    with closing(sqlite3.connect(file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM delivery").fetchone()
        erase(inbox, [delivery_id], LATER)
        assert empty_log(inbox) is False
        assert MARK in bytes_of(file)

    assert empty_log(inbox) is True
    assert MARK not in bytes_of(file)


# --- search ---------------------------------------------------------------------------------------


@only_sqlite
def test_a_search_examines_the_bodies_that_have_a_part_a_batch_at_a_time(inbox, monkeypatch):
    monkeypatch.setattr("billhook.inbox.reading.searches.BATCH", 3)
    ids = [put(inbox, f"k{number}", body=body) for number, body in enumerate([b"a", b"ab", b"b", b"abc"])]
    seen, steps = [], []

    def examine(event_type, body):
        seen.append(body)
        return {b"ab": True, b"abc": None}.get(body, False)

    search = search_bodies(inbox, DeliveryFilter(), [b"b", b"\\"], examine, steps.append)

    assert (seen, steps) == ([b"ab", b"b", b"abc"], [3, 1])
    assert (search.found, search.unsure, search.searched) == ([ids[1]], [ids[3]], 4)


def test_a_delivery_that_is_erased_and_replayed_at_one_time_is_handled_with_its_body_or_not_at_all(
    inbox, where
):
    ids = [put(inbox, f"k{number}", "book") for number in range(30)]
    handle(inbox, RunState.DEAD)
    others = [open_inbox(where) for _ in range(2)]

    def replay_each():
        return [replay(others[0], [one], NOON).runs for one in ids]

    def erase_each():
        return [erase(others[1], [one], NOON).deliveries for one in reversed(ids)]

    with ThreadPoolExecutor(2) as pool:
        replayed, erased = (work.result() for work in [pool.submit(replay_each), pool.submit(erase_each)])
    bodies = [one.delivery.body for one in handle(inbox)]

    assert [before + after for before, after in zip(replayed, reversed(erased), strict=True)] == [1] * 30
    assert bodies == [BODY] * sum(replayed)
    assert value(where, "SELECT count(*) FROM delivery WHERE state = 'erased'") == sum(erased)
