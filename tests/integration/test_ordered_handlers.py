"""Ordered handlers in several processes: one at a time of each key, in the order of arrival, nobody held up.

On every database. What the handlers did is read from a file that each line is appended to in one write.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from billhook import Handlers, Retry
from billhook.events import InvoicePaymentStatusChanged
from billhook.extension import get_state
from support.apps import make_app
from support.inbox_view import incoming, open_inbox, place_of, rows, value
from support.processes import in_children

pytestmark = pytest.mark.slow

PROCESSES = 4
THREADS = 2
KEYS = 20
"""Many more than one process claims at once: it takes the next run of a key as it settles the last."""
OF_EACH = 6
FAILING = 0.25
HELD = "held"
CLAIMABLE = "SELECT count(*) FROM delivery WHERE state IN ('received', 'planned')"


def body(key, number):
    fields = {"invoiceId": key, "billingStatus": "Paid", "amountDue": 0, "amountPaid": number, "total": 1}
    return json.dumps(fields).encode()


class Diary:
    """Lines `what key number pid`, from any thread of any process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, what, key, number):
        os.write(self._file, f"{what} {key} {number} {os.getpid()}\n".encode())

    def lines(self):
        return [line.split() for line in self.path.read_text().splitlines()]


def make_handlers(diary, **order):
    """A handler that takes a moment, fails at random, and is succeeded by `end`."""
    handlers, dice = Handlers(), random.Random()

    @handlers.on(InvoicePaymentStatusChanged, name="note", retry=[0] * 400, **order)
    def note(event):
        key, number = event.invoice_id, int(event.amount_paid)
        diary.note("begin", key, number)
        time.sleep(dice.random() * 0.004)
        if key == HELD and number == 0 and not all_others_are_through(diary):
            diary.note("fail", key, number)
            raise Retry("until the others are through", after_seconds=0.04)
        if dice.random() < FAILING:
            diary.note("fail", key, number)
            raise ValueError("at random")
        diary.note("end", key, number)

    return handlers


def all_others_are_through(diary):
    ended = {(key, number) for what, key, number, _ in diary.lines() if what == "end" and key != HELD}
    return len(ended) == KEYS * OF_EACH


def work(folder, url, handlers):
    """A worker process's worker, until every delivery is finished."""
    app = make_app(folder, handlers=[handlers], BILLHOOK_INBOX_URL=url, BILLHOOK_LEASE_SECONDS=4)
    app_state = get_state(app)
    worker = app_state.worker(THREADS)
    thread = threading.Thread(target=worker.run, args=(5.0,))
    thread.start()
    end = time.monotonic() + 60.0
    while value(place_of(url), CLAIMABLE) and time.monotonic() < end:
        time.sleep(0.02)
    worker.stop()
    thread.join()
    app_state.close()
    return b"done"


def fill(inbox, keys):
    """Deliveries of all keys, dealt like cards; what comes first of each key has the lower number."""
    left = {key: list(range(OF_EACH)) for key in keys}
    while left:
        key = random.choice(list(left))
        number = left[key].pop(0)
        if not left[key]:
            del left[key]
        inbox.put(
            incoming(f"{key}-{number}", event_type="InvoicePaymentStatusChanged", body=body(key, number))
        )


def check_order(lines):
    """Of each key the next attempt begins when the last one ended, and success comes in order of arrival."""
    by_key = defaultdict(list)
    for what, key, number, _ in lines:
        by_key[key].append((what, int(number)))
    for key, found in by_key.items():
        for (what, number), (following, its_number) in pairwise(found):
            if what == "begin":
                assert following in ("end", "fail"), f"{key} overlaps"
                assert its_number == number, f"{key} overlaps"
            else:
                assert following == "begin"
                assert its_number == number + (what == "end"), f"{key} out of order"
        ended = [number for what, number in found if what == "end"]
        assert ended == list(range(OF_EACH)), f"{key}: {ended}"
    return by_key


def overlapping(lines):
    """How often an attempt began while one of another key was at work."""
    at_work, times = set(), 0
    for what, key, number, _ in lines:
        if what == "begin":
            times += any(other != key for other, _ in at_work)
            at_work.add((key, number))
        else:
            at_work.discard((key, number))
    return times


def run_in_processes(inbox_url, tmp_path, **order):
    """Every delivery handled by several processes while they still come; what the handlers noted."""
    diary = Diary(tmp_path / "diary.txt")
    keys = [f"key{number}" for number in range(KEYS)]
    inbox = open_inbox(place_of(inbox_url))
    fill(inbox, [HELD])

    def child(number):
        if number == PROCESSES:  # not a worker: who receives
            receiving = open_inbox(place_of(inbox_url))
            fill(receiving, keys)
            receiving.close()
            return b"done"
        folder = tmp_path / f"worker{number}"
        folder.mkdir()
        return work(folder, inbox_url, make_handlers(diary, **order))

    # The inbox stays open here: who opens a file first, or closes it last, has it alone for a moment.
    assert in_children(PROCESSES + 1, child) == [b"done"] * (PROCESSES + 1)
    inbox.close()
    assert rows(place_of(inbox_url), "SELECT DISTINCT state FROM delivery") == [("done",)]
    return diary.lines()


def test_runs_of_an_order_key_are_sequential_while_other_keys_continue(inbox_url, tmp_path):
    lines = run_in_processes(inbox_url, tmp_path, ordered_by="invoice_id")

    by_key = check_order(lines)
    assert len(by_key) == KEYS + 1
    assert len({pid for *_, pid in lines}) > 1  # not one process did it all
    assert overlapping(lines) > 0
    # The first of one key was held until all the others were through: they waited for nobody.
    last_of_others = max(n for n, (what, key, *_) in enumerate(lines) if what == "end" and key != HELD)
    first_of_held = min(n for n, (what, key, *_) in enumerate(lines) if what == "end" and key == HELD)
    assert last_of_others < first_of_held
    states = "SELECT DISTINCT state, twin_of FROM run"
    assert rows(place_of(inbox_url), states) == [("succeeded", None)]


@pytest.mark.parametrize("bare_url", ["sqlite"], indirect=True)
def test_without_an_order_that_would_be_noticed(inbox_url, tmp_path):
    lines = run_in_processes(inbox_url, tmp_path)

    with pytest.raises(AssertionError, match=r"overlaps|out of order|begin"):
        check_order(lines)
