"""Groups of runs that fail now, and the deliveries that are related to one."""

from __future__ import annotations

import dataclasses

from billhook.inbox.deliveries import details, summaries
from billhook.inbox.error_groups import failing_delivery_ids, failure_groups
from billhook.inbox.related import related_deliveries
from support.inbox_view import NOON, change, incoming

RUN = (
    "INSERT INTO run (id, delivery_id, handler, state, attempts, due_at, token, last_error, order_key) "
    "VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?)"
)
FAILURE = "INSERT INTO failure (run_id, attempt, failed_at, error) VALUES (?, ?, ?, ?)"


def stored(inbox, where, *runs: tuple[str, str, int, str | None], state: str = "planned", order=None) -> int:
    """Store a delivery in this state with runs: handler, state, attempts, last error."""
    number = len(summaries(inbox, list(range(1, 100)))) + 1
    inbox.put(incoming(f"key{number}"))
    change(where, "UPDATE delivery SET state = ? WHERE id = ?", state, number)
    for position, (handler, of_run, attempts, error) in enumerate(runs):
        run_id = number * 10 + position
        change(
            where,
            RUN,
            run_id,
            number,
            handler,
            of_run,
            attempts,
            "2026-01-15 12:00:00.000000",
            error,
            order,
        )
        for attempt in range(attempts if error else 0):
            moment = f"2026-01-15 1{number}:0{attempt}:00.000000"
            change(where, FAILURE, run_id, attempt + 1, moment, error)
    return number


def test_dead_and_retrying_runs_are_grouped_by_handler_and_first_line(inbox, where):
    stored(
        inbox, where, ("book", "dead", 2, "KeyError: 1\nmore"), ("mail", "succeeded", 1, None), state="dead"
    )
    stored(inbox, where, ("book", "due", 1, "KeyError: 1"), ("mail", "dead", 1, "KeyError: 1"))
    stored(inbox, where, ("book", "due", 0, None))
    stored(inbox, where, ("book", "discarded", 3, "KeyError: 1"), state="done")

    groups = failure_groups(inbox)

    assert [(one.handler, one.line, one.dead, one.retrying, one.examples) for one in groups] == [
        ("book", "KeyError: 1", 1, 1, [2, 1]),
        ("mail", "KeyError: 1", 1, 0, [2]),
    ]
    assert (groups[0].first_at.hour, groups[0].last_at.hour) == (11, 12)
    assert len({one.id for one in groups}) == 2


def test_the_deliveries_of_a_group_differ_in_case_from_those_of_another(inbox, where):
    stored(inbox, where, ("book", "dead", 1, "KeyError: A"), state="dead")
    stored(inbox, where, ("book", "dead", 1, "keyerror: a"), state="dead")
    stored(inbox, where, ("mail", "dead", 1, "KeyError: A"), state="dead")

    assert list(failing_delivery_ids(inbox, "book", "KeyError: A")) == [[1]]
    assert list(failing_delivery_ids(inbox, "book", "KeyError: B")) == []


def test_the_deliveries_of_a_group_are_read_in_batches(inbox, where, monkeypatch):
    monkeypatch.setattr("billhook.inbox.error_groups._BATCH", 2)
    for error in ("KeyError: A", "KeyError: A", "KeyError: B", "KeyError: B", "KeyError: A"):
        stored(inbox, where, ("book", "dead", 1, error), state="dead")

    assert list(failing_delivery_ids(inbox, "book", "KeyError: A")) == [[1, 2], [5]]


def test_of_a_large_group_the_newest_are_examples(inbox, where):
    for _ in range(4):
        stored(inbox, where, ("book", "dead", 1, "KeyError: A"), state="dead")

    (group,) = failure_groups(inbox)

    assert (group.count, group.examples) == (4, [4, 3, 2])


def test_a_run_without_an_error_is_in_a_group_of_its_own(inbox, where):
    stored(inbox, where, ("book", "dead", 1, None), state="dead")

    (group,) = failure_groups(inbox)

    assert (group.line, group.count, group.first_at, group.last_at) == ("", 1, None, None)


def test_a_duplicate_is_related_to_the_delivery_that_it_repeats(inbox, where):
    stored(inbox, where, ("book", "succeeded", 1, None), state="done")
    stored(inbox, where, ("book", "discarded", 1, None), state="done")
    change(where, "UPDATE run SET twin_of = 1 WHERE delivery_id = 2")
    (one,) = details(inbox, [2])

    (found,) = related_deliveries(inbox, one.summary, [(run.handler, run.order_key) for run in one.runs])

    assert (found.summary.id, found.relation) == (1, "the same content")


def test_deliveries_of_one_order_key_or_one_key_are_related(inbox, where):
    for _ in range(3):
        stored(inbox, where, ("book", "succeeded", 1, None), state="done", order="default:cus_1")
    stored(inbox, where, ("book", "succeeded", 1, None), state="done", order="default:cus_2")
    inbox.put(dataclasses.replace(incoming("key2"), body=b"[]", received_at=NOON))
    (one,) = details(inbox, [2])

    found = related_deliveries(inbox, one.summary, [(run.handler, run.order_key) for run in one.runs])

    *ordered, conflicting = sorted((each.summary.id, each.relation, each.order_key) for each in found)
    assert ordered == [(1, "the same order", "default:cus_1"), (3, "the same order", "default:cus_1")]
    assert conflicting[1:] == ("the same key", None)
