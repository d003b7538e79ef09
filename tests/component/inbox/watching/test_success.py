"""How large a part of its runs a handler succeeded with: in the end, in three spans of time, in words."""

from __future__ import annotations

from datetime import timedelta

import pytest

from billhook.inbox import RunState
from billhook.inbox.operating.operations import discard
from billhook.inbox.watching.success import Success, SuccessOverTime, read_success
from support.inbox_view import NOON
from support.runs import at, claim, failed, handled, settle

HOUR = 3_600


@pytest.mark.parametrize(
    ("succeeded", "dead", "text"),
    [
        (0, 0, ""),
        (3, 0, "100 %"),
        (0, 3, "0 %"),
        (992, 8, "99.2 %"),
        (2, 1, "66.7 %"),
        (99_999, 1, "99.9 %"),
        (1, 99_999, "0.1 %"),
    ],
)
def test_a_rate_in_words_is_100_only_if_all_succeeded(succeeded, dead, text):
    assert Success(succeeded, dead).text == text


def test_an_attempt_that_is_made_again_is_no_failure_and_a_discarded_run_does_not_count(inbox):
    failed(inbox, "retried", 0, RunState.DUE, error="OSError: x")
    settle(inbox, claim(inbox, 1, 60), seconds=60)
    failed(inbox, "dead", 60, error="OSError: x")
    discard(inbox, [failed(inbox, "left", 60, RunState.DUE, error="OSError: x")], "not needed", at(70))
    handled(inbox, "other", 60, handler="mail")

    found = read_success(inbox, at(120))

    assert found == {
        "h": SuccessOverTime(Success(1, 1), Success(1, 1), Success(1, 1)),
        "mail": SuccessOverTime(Success(1), Success(1), Success(1)),
    }
    assert found["h"].text == "50.0 % in 1 h, 50.0 % in 24 h, 50.0 % in 7 d"


def test_an_hour_a_day_and_a_week_are_counted_apart(inbox):
    for days, number in ((6.4, 1), (0.5, 2), (0, 3)):
        for each in range(number):
            handled(inbox, f"{days} {each}", -days * 24 * HOUR)
    handled(inbox, "before", -7 * 24 * HOUR)

    found = read_success(inbox, NOON)["h"]

    assert [one.succeeded for one in found] == [3, 5, 6]
    assert read_success(inbox, NOON + timedelta(days=8)) == {}
    later = read_success(inbox, NOON + timedelta(days=2))["h"]
    assert later.text == "100 % in 7 d"
