"""Work that has stalled without an error: what `doctor` and `status` say, and what their commands show."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from billhook.inbox import WorkerRecord
from support.inbox_view import open_inbox
from support.runs import planned
from support.signing import SECRET

OLD = timedelta(minutes=25)


@pytest.fixture
def inbox(run, tmp_path):
    """An inbox where the commands look for it, with a worker that was seen just now."""
    made = open_inbox(tmp_path / "billhook.db")
    alive(made, "web-1", 4711)
    yield made
    made.close()


def alive(inbox, host, pid):
    now = datetime.now(UTC)
    inbox.record_worker(WorkerRecord(f"{host}:{pid}", "worker", 2, now - OLD, host=host, pid=pid), now)


def begin(inbox, number):
    """Have the worker call a handler so many times, 25 minutes ago."""
    for each in range(number):
        planned(inbox, "book", key=f"k{each}")
    now = datetime.now(UTC)
    with inbox.transaction("web-1:4711") as transaction:
        assert len(transaction.claim(number, now - OLD, now + OLD)) == number


def found(run, code):
    """What doctor says of a condition."""
    told = json.loads(run("doctor", "--json", SECRETS=SECRET, ENGINE="worker").stdout)
    return next((one for one in told["findings"] if one["code"] == code), None)


def commands(text):
    return re.findall(r"`billhook ([^`]+)`", text)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "1 call of book has not returned for 25 min"),
        (2, "2 calls of book have not returned, the oldest for 25 min"),
    ],
)
def test_a_call_that_hangs_is_told_with_where_it_runs_and_how_to_end_it(run, inbox, number, text):
    assert found(run, "hanging") is None
    begin(inbox, number)

    told, status = found(run, "hanging"), run("status").stdout
    where = run(*commands(told["remedy"])[0].split()).stdout

    assert {name: text for name, text in told.items() if text} == {
        "level": "warning",
        "code": "hanging",
        "what": text,
        "why": "each keeps a thread of its worker until it returns, and is not called again meanwhile",
        "remedy": "`billhook workers` says where; to end it now, kill that worker: the run is attempted "
        "again, by another. Give the handler a `timeout_seconds`, and what it calls time-outs",
    }
    assert f"{text}  billhook workers\n" in status
    assert re.search(r"web-1 +4711 +running .*book of delivery 1, since 25 min ago", where)
    assert ("and 1 more" in where) is (number == 2)


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ([], "the only worker is held, and starts no run"),
        ([5], "1 of 2 workers is held"),
    ],
)
def test_a_held_worker_is_told_with_who_holds_it_and_how_to_resume_it(run, inbox, others, text):
    for pid in others:
        alive(inbox, "web-2", pid)
    assert found(run, "held") is None
    run("workers", "hold", "web-1:4711", "--reason", "a new disk")

    told, status = found(run, "held"), run("status").stdout
    who, which, resume = commands(told["remedy"])
    by, why = run(*who.split()).stdout, run(*which.split()).stdout
    held = json.loads(run(*which.split(), "--json").stdout)
    (place,) = (f"{one['host']}:{one['pid']}" for one in held if one["state"] == "held")
    run(*resume.replace("WORKER", place).split())

    assert {name: text for name, text in told.items() if text} == {
        "level": "warning",
        "code": "held",
        "what": text,
        "why": "the runs of a held worker are left to others, and wait where there is none",
        "remedy": "`billhook actions` says who holds it, and `billhook workers` since when and why; "
        "`billhook workers resume WORKER` ends it, for each that is listed as held",
    }
    assert f"{text}  billhook actions\n" in status
    assert re.search(r"hold +worker web-1:4711", by)
    assert re.search(r"web-1 +4711 +held just now .*held for: a new disk", why)
    assert place == "web-1:4711"
    assert found(run, "held") is None
