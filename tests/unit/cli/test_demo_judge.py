"""The demo's judge can say no: every kind of doctored result is found."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime

from billhook.cli.demo import report
from billhook.cli.demo_expectations import (
    DemoDelivery,
    HandlerCall,
    bad_deliveries,
    compare,
    group_by_type,
    samples,
)
from billhook.events import EVENT_TYPES
from billhook.posting import HttpReply
from support.signing import OTHER_SECRET, SECRET

NOW = datetime.now(UTC)


def planned() -> list[DemoDelivery]:
    """A sample of each type, and the five bad ones."""
    rows = samples(SECRET, NOW)
    return [*rows, *bad_deliveries(rows, SECRET, OTHER_SECRET, NOW)]


class GoodRun:
    """What a good receiver would have done with every row, to be doctored."""

    def __init__(self) -> None:
        self.rows = planned()
        for row in self.rows:
            row.reply = HttpReply(row.status, row.answer, 0.01)
        self.notes = [
            HandlerCall(row.key, row.event_type, row.handled_as, row.body.decode())
            for row in self.rows
            if row.handled_as and not row.label.startswith("duplicate")
        ]
        self.states = {row.key: row.state for row in self.rows if row.state}

    def results(self) -> list[DemoDelivery]:
        compare(self.rows, self.notes, self.states)
        return self.rows

    def wrong(self) -> list[str]:
        return [f"{row.label}: {wrong}" for row in self.results() for wrong in row.wrong]

    def at(self, label: str) -> int:
        return next(number for number, row in enumerate(self.rows) if row.label.startswith(label))


def test_the_demo_sends_every_type_and_five_bad_deliveries():
    rows = planned()

    assert [row.event_type for row in rows[:23]] == list(EVENT_TYPES)
    assert [row.status for row in rows[23:]] == [401, 401, 200, 200, 200]
    assert SECRET not in repr(rows)


def test_correct_results_pass(capsys):
    good_run = GoodRun()

    assert good_run.wrong() == []
    assert report(good_run.results(), 1.0, as_json=False)
    assert "28 of 28 as expected" in capsys.readouterr().out


def test_an_accepted_forgery_is_found():
    for label in ("forged", "stale"):
        good_run = GoodRun()
        number = good_run.at(label)
        good_run.rows[number].reply = HttpReply(200, '{"status": "accepted"}', 0.01)
        good_run.states[good_run.rows[number].key] = "done"

        told = "\n".join(good_run.wrong())

        assert "answered 200, not 401" in told
        assert "stored as done, not None" in told


def test_a_duplicate_that_is_accepted_or_handled_twice_is_found():
    good_run = GoodRun()
    number = good_run.at("duplicate")
    good_run.rows[number].reply = HttpReply(200, '{"status": "accepted"}', 0.01)
    good_run.notes.append(next(note for note in good_run.notes if note.key == good_run.rows[number].key))

    told = "\n".join(good_run.wrong())

    assert """not '{"status": "duplicate"}'""" in told
    assert "InvoiceApproved: handled 2 times, not 1" in told


def test_a_lost_delivery_is_found():
    good_run = GoodRun()
    good_run.notes.pop(3)
    good_run.states[good_run.rows[5].key] = "received"

    assert len(good_run.wrong()) == 2


def test_another_event_and_other_values_are_found():
    good_run = GoodRun()
    good_run.notes[0] = good_run.notes[0]._replace(handled_as="PingTest")
    good_run.notes[14] = good_run.notes[14]._replace(body='{"date":"2020-01-01","reportId":"x"}')
    good_run.notes[11] = good_run.notes[11]._replace(body="[]")

    assert [wrong.split(": ")[1] for wrong in good_run.wrong()] == [
        "the handler got PingTest, not AnonymousCustomer",
        "the handler got other values than were sent",
        "the handler got other values than were sent",
    ]


def test_a_broken_body_that_reaches_a_handler_is_found():
    good_run = GoodRun()
    row = good_run.rows[good_run.at("a body that is not JSON")]
    good_run.notes.append(HandlerCall(row.key, row.event_type, "InvoiceApproved", row.body.decode()))

    assert good_run.wrong() == ["a body that is not JSON: handled 1 times, not 0"]


def test_no_answer_is_found_and_shown(capsys):
    good_run = GoodRun()
    good_run.rows[0].reply = HttpReply(None, "Connection refused", 0.0)
    results = good_run.results()

    assert not report(results, 1.0, as_json=False)
    shown = capsys.readouterr().out
    assert "WRONG" in shown
    assert "AnonymousCustomer: no answer, expected 200" in shown
    assert not report(results, 1.0, as_json=True)
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_the_table_fits_a_terminal_with_every_name_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    good_run = GoodRun()

    report(good_run.results(), 1.0, as_json=False)

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["sent", "answer", "handler", "got", "inbox", "result"]
    assert len(lines) == 2 + 28 + 1
    assert all(len(line) <= 80 for line in lines)
    assert all(any(row.label in line for line in lines) for row in good_run.rows)
    assert sum(" same " in line for line in lines) == 24


def test_several_deliveries_of_a_type_are_one_line_and_one_bad_one_spoils_it():
    good_run = GoodRun()
    twice = [*good_run.results()[:23], good_run.rows[3]]
    name = good_run.rows[3].event_type

    assert {row.label for row in group_by_type(twice)} == {*EVENT_TYPES, f"{name} x2"} - {name}
    assert not any(row.wrong for row in group_by_type(twice))

    twice[3] = dataclasses.replace(twice[3], wrong=["handled 0 times, not 1"])
    assert [(row.label, row.wrong) for row in group_by_type(twice) if row.wrong] == [
        (f"{name} x2", ["handled 0 times, not 1"])
    ]


def test_a_type_that_was_never_sent_is_reported():
    found = group_by_type(GoodRun().results()[1:23])

    assert [(row.label, row.wrong) for row in found if row.wrong] == [
        ("AnonymousCustomer", ["it was never sent"])
    ]
